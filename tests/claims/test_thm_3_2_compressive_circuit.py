"""Thm 3.2: the circuit of any E and F computes Eq. 8, entry by entry."""

import pytest
import torch

from closeness import assert_near
from recallscope.circuits.codes import distortion, hash_matrix, jl_pair, sphere_code, tight_frame
from recallscope.circuits.linear import compressive_circuit, designed_circuit
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch


@pytest.mark.parametrize(("V", "D", "N"), [(16, 5, 3), (64, 8, 8), (10, 3, 7), (32, 1, 1)])
def test_output_is_eq_8_entry_by_entry(V, D, N):
    g = torch.Generator().manual_seed(1)
    E, F = (torch.randn(D, V, generator=g, dtype=torch.float64), torch.randn(N, D, generator=g, dtype=torch.float64))
    model = compressive_circuit(E.float(), F.float()).double()
    E, F = model.E.detach(), model.layers[0].S_C.detach()[:, D:]
    tokens = torch.randint(V, (3, 12), generator=g)
    logits = model(tokens)
    E_tilde = F @ E
    for row in range(3):
        for t in range(12):
            expected = torch.zeros(V, dtype=torch.float64)
            for tau in range(1, t + 1):  # x_{-1} = 0
                match = E_tilde[:, tokens[row, tau - 1]] @ E_tilde[:, tokens[row, t]]
                expected += (E.T @ E[:, tokens[row, tau]]) * match
            assert_near(logits[row, t], expected, terms=logits)


def test_enough_dimensions_recall_almost_always():
    task = MQARSpec(vocab_size=256, num_facts=8)
    g = torch.Generator().manual_seed(0)
    model = designed_circuit(256, 128, 128, g)
    batch = sample_batch(task, 500, g)
    said = model.answer(batch.tokens, batch.query_positions).argmax(-1)
    assert (said == batch.answers).float().mean() > 0.97


def test_designed_codes_have_the_statistics_of_app_e_1():
    """Var of off-diagonals 1/D and 1/N; of the diagonal 2(D-N)/(N(D+2)), twice the printed 1/N - 1/D (to 5 %, V²
    samples)."""
    g = torch.Generator().manual_seed(3)
    D, N, V = 32, 16, 2000
    E, F = sphere_code(D, V, g), hash_matrix(N, D, g)
    assert_near(E.norm(dim=0), torch.ones(V))
    assert_near(F @ F.T, torch.eye(N) * D / N)
    off = ~torch.eye(V, dtype=torch.bool)
    gram, hashed = E.T @ E, (F @ E).T @ (F @ E)
    assert abs(gram[off].var() * D - 1) < 0.05
    assert abs(hashed[off].var() * N - 1) < 0.05
    right, printed = 2 * (D - N) / (N * (D + 2)), 1 / N - 1 / D
    measured = float(hashed.diagonal().var())
    assert abs(measured / right - 1) < 0.12
    assert measured / printed > 1.5


def test_tight_frames_reach_the_welch_bound():
    g = torch.Generator().manual_seed(0)
    for d, n in [(4, 32), (16, 64), (3, 3)]:
        E = tight_frame(d, n, g)
        assert_near(E @ E.T, torch.eye(d) * n / d)
        assert_near(E.norm(dim=0), torch.ones(n))
        off = (E.T @ E)[~torch.eye(n, dtype=torch.bool)]
        assert abs(float((off**2).mean()) - (n - d) / (d * (n - 1))) < 1e-5


def test_a_hash_with_more_rows_than_dimensions_is_refused():
    with pytest.raises(ValueError, match="state_dim <= 8"):
        designed_circuit(64, 8, 9, torch.Generator())


def test_jl_distortions_are_those_of_the_lemmas():
    """Lem C.1, C.3: epsilon = sqrt(c log V / d). With c = 4 a Gaussian E meets it asymptotically; F E needs more
    (seen: c < 9 * 4)."""
    g = torch.Generator().manual_seed(0)
    V, D, N = 256, 512, 256
    E, F = jl_pair(V, D, N, g)
    eps_v, eps_k = distortion(E), distortion(F @ E)
    log_V = float(torch.log(torch.tensor(float(V))))
    assert eps_v < (2 * 4 * log_V / D) ** 0.5
    assert eps_k < (9 * 4 * log_V / N) ** 0.5
    sphere = sphere_code(D, V, g)
    assert distortion(sphere) < (4 * log_V / (D - 1)) ** 0.5  # union bound, proved for unit columns
