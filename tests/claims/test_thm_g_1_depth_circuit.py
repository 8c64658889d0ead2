"""Thm 4.6 / G.1: Λ layers with jointly orthonormal hashes are one layer with state Λ N."""

import pytest
import torch

from closeness import assert_near
from recallscope.circuits.codes import orthonormal_rows, sphere_code
from recallscope.circuits.linear import compressive_circuit, depth_circuit, designed_depth
from recallscope.specs import parse_task
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch


def pair(layers, N, D_k, D_v, half, seed=0):
    """A deep circuit, and the single layer whose hash is the stack of its hashes."""
    g = torch.Generator().manual_seed(seed)
    keys, values = sphere_code(D_k, half, g), sphere_code(D_v, half, g)
    stacked = orthonormal_rows(layers * N, D_k, g) * (D_k / (layers * N)) ** 0.5
    deep = depth_circuit(keys, values, list(stacked.split(N))).double()
    E = torch.zeros(D_k + D_v, 2 * half)
    E[:D_k, :half], E[D_k:, half:] = keys * 2.0**-10, values
    F = torch.cat((stacked * 2.0**10, torch.zeros(layers * N, D_v)), dim=1)
    return deep, compressive_circuit(E, F).double()


@pytest.mark.parametrize(("layers", "N"), [(1, 12), (2, 6), (3, 4), (4, 3), (12, 1)])
@pytest.mark.parametrize("kind", ["ar", "mqar"])
def test_depth_circuit_equals_one_layer_with_state_layers_times_n(layers, N, kind):
    """Value logits equal to rounding, at every query; so the answers are the same, random filler and all."""
    deep, single = pair(layers, N, D_k=16, D_v=12, half=32)
    batch = sample_batch(
        parse_task({"kind": kind, "vocab_size": 64, "num_facts": 6}), 50, torch.Generator().manual_seed(2)
    )
    a, b = (m.answer(batch.tokens, batch.query_positions) for m in (deep, single))
    assert_near(a[..., 32:], b[..., 32:])
    assert torch.equal(a.argmax(-1), b.argmax(-1))


def test_recall_depends_on_layers_times_state_only():
    """Same codes, Λ N = 12 split four ways: the same answers to every question."""
    batch = sample_batch(MQARSpec(vocab_size=64, num_facts=6), 100, torch.Generator().manual_seed(3))
    said = []
    for layers, N in [(1, 12), (2, 6), (3, 4), (4, 3)]:
        deep, _ = pair(layers, N, D_k=16, D_v=12, half=32)
        said.append(deep.answer(batch.tokens, batch.query_positions).argmax(-1))
    assert all(torch.equal(said[0], other) for other in said[1:])


def test_independent_hashes_are_noisier_than_joint_ones():
    """Departs: Var(key noise) is 1/(ΛN) + (1-1/Λ)/D_k for independent hashes, 1/(ΛN) for joint ones (within 10 %)."""
    D_k, N, layers, half = 32, 4, 4, 600
    g = torch.Generator().manual_seed(0)
    keys = sphere_code(D_k, half, g)

    def key_noise(hashes):
        gram = sum((F @ keys).T @ (F @ keys) for F in hashes)
        return float(gram[~torch.eye(half, dtype=torch.bool)].var())

    joint = key_noise((orthonormal_rows(layers * N, D_k, g) * (D_k / (layers * N)) ** 0.5).split(N))
    independent = (
        sum(
            key_noise([orthonormal_rows(N, D_k, g) * (D_k / (layers * N)) ** 0.5 for _ in range(layers)])
            for _ in range(8)
        )
        / 8
    )
    assert abs(joint * layers * N - 1) < 0.1
    predicted = 1 / (layers * N) + (1 - 1 / layers) / D_k
    assert abs(independent / predicted - 1) < 0.1


def test_designed_depth_fits_or_says_why():
    model = designed_depth(64, 32, 4, 3, torch.Generator().manual_seed(0))
    assert (model.spec.embed_dim, model.spec.num_layers, model.spec.state_dim) == (32, 3, 4)
    with pytest.raises(ValueError, match="embed_dim >= 34"):
        designed_depth(64, 32, 8, 4, torch.Generator())
