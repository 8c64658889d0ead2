"""Lem 4.1: if eps_v + eps_k + t eps_v eps_k < 1/2, no context can be recalled wrongly."""

import numpy as np
import pytest
import torch

from recallscope.circuits.codes import distortion
from recallscope.circuits.linear import compressive_circuit
from recallscope.tasks.associative_recall import ARSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.bounds import jl_condition, jl_least_square, jl_least_state


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("N_f", "noise"), [(2, 0.015), (4, 0.01), (8, 0.005)])
def test_codes_whose_measured_distortions_meet_the_condition_recall_every_context(N_f, noise, seed):
    """No dimension and no constant c: the distortions of E and F E themselves. Then AR is perfect, every time."""
    g = torch.Generator().manual_seed(seed)
    V = 4 * N_f + 8
    E = torch.eye(V) + noise * torch.randn(V, V, generator=g)
    F = torch.eye(V) + noise * torch.randn(V, V, generator=g)
    E, F = E / E.norm(dim=0), F / F.norm(dim=0)
    eps_v, eps_k = distortion(E), distortion(F @ E)
    assert eps_v + 1.5 * eps_k + 2 * N_f * eps_v * eps_k < 0.5  # the queried key itself may match twice: 3/2 eps_k
    batch = sample_batch(ARSpec(vocab_size=V, num_facts=N_f), 500, g)
    said = compressive_circuit(E, F).answer(batch.tokens, batch.query_positions).argmax(-1)
    assert torch.equal(said, batch.answers)


def test_least_square_model():
    eps, D = jl_least_square(vocab_size=1024, num_facts=16, task="ar")
    np.testing.assert_allclose((eps, D), (0.097597, 2910.797973), atol=1e-6)


@pytest.mark.parametrize(("V", "N_f", "L", "D"), [(1024, 16, 64, 5045), (512, 32, 128, 8198), (512, 16, 64, 4541)])
def test_the_bound_asks_for_more_than_the_uncompressed_circuit_needs(V, N_f, L, D):
    """In all three regimes of the paper D > V: the lemma is true and says nothing there."""
    fields = {"vocab_size": V, "num_facts": N_f, "length": L}
    least = float(jl_least_square(**fields)[1])
    assert int(np.ceil(least)) == D > V
    assert jl_condition(**fields, embed_dim=D, state_dim=D).feasible
    assert not jl_condition(**fields, embed_dim=least * 0.999, state_dim=least * 0.999).feasible
    np.testing.assert_allclose(jl_least_state(**fields, embed_dim=least), least, rtol=1e-6)
    assert jl_least_state(**fields, embed_dim=64) == np.inf


def test_equal_dimensions_minimise_the_state():
    fields = {"vocab_size": 1024, "num_facts": 16, "task": "ar"}
    square = float(jl_least_square(vocab_size=1024, num_facts=16, task="ar")[1])
    for D in square * np.array([0.7, 0.9, 1.1, 1.5, 3.0]):
        assert D * jl_least_state(**fields, embed_dim=D) > square**2
