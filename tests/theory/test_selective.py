"""Laws of a selective model: reference values, what sharing dimensions costs, what tight frames gain."""

import numpy as np
import pytest

from recallscope.theory.extremes import success_integral
from recallscope.theory.laws import contest, selective
from recallscope.theory.laws.contest import Nodes
from recallscope.theory.laws.selective import (
    selective_law,
    selective_max_law,
    trained_t1_law,
    trained_t2_law,
    welch_dim,
)

CELL = {"vocab_size": 1024, "num_facts": 16, "embed_dim": 48, "state_dim": 16}
LAWS = [trained_t1_law, trained_t2_law, selective_law, selective_max_law]
TASKS = pytest.mark.parametrize("task", ["ar", "mqar"])
QUADRATURE = 3e-5


def grid(**change):
    D, N = np.meshgrid(np.arange(4, 65, 6), np.arange(1, 33, 3))
    return {"vocab_size": 512, "num_facts": 16, "embed_dim": D, "state_dim": N, **change}


@pytest.mark.parametrize(("task", "expected"), [("ar", 0.964259), ("mqar", 0.938169)])
def test_reference_values_of_the_gaussian_law(task, expected):
    assert trained_t1_law(**CELL, task=task) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("share", "task", "expected"),
    [("soft", "ar", 0.9833), ("soft", "mqar", 0.9554), ("hard", "ar", 0.9622), ("hard", "mqar", 0.9198)],
)
def test_reference_values_of_the_selective_law(share, task, expected):
    assert selective_law(**CELL, task=task, share=share) == pytest.approx(expected, abs=1e-4)


def test_reference_values_of_the_welch_dimension():
    np.testing.assert_allclose(welch_dim([48, 16], [256, 512]), [58.846154, 16.483871], rtol=0, atol=1e-6)


def test_tight_frames_stand_as_far_apart_as_the_welch_dimension_says():
    """A harmonic frame, rows of the Fourier matrix: n vectors in R^2k with mean squared inner product 1/d*."""
    n, rows = 31, np.array([1, 5, 11])
    angle = 2 * np.pi * np.outer(rows, np.arange(n)) / n
    codes = np.concatenate([np.cos(angle), np.sin(angle)]) / np.sqrt(len(rows))
    gram = codes.T @ codes
    off = gram[~np.eye(n, dtype=bool)]
    assert np.mean(off**2) == pytest.approx(1 / float(welch_dim(2 * len(rows), n)))


def test_as_many_dimensions_as_codes_leave_no_noise():
    assert np.isinf(welch_dim([8, 9], 8)).all()
    for law in (trained_t2_law, selective_law):
        assert law(vocab_size=64, num_facts=4, embed_dim=64, state_dim=32) == pytest.approx(1, abs=1e-12)


def test_gaussian_law_is_the_mean_over_query_slots():
    V, N_f, D, N = 512, 80, 40, 12
    n = N_f - 1 + np.arange(N_f) / 2
    mean = success_integral(np.sqrt(N * D / (n + N)), V / 2 - 1).mean()
    p = trained_t1_law(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N)
    assert p == pytest.approx(float(mean), abs=1e-9)


@pytest.mark.parametrize("law", LAWS)
@TASKS
def test_an_array_holds_what_its_cells_hold(law, task):
    V, N_f, D, N = np.array([64, 512]), np.array([[3], [9]]), np.array([[[4]], [[16]], [[40]]]), 7.5
    p = law(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N, task=task)
    assert p.shape == (3, 2, 2)
    for i, j, k in np.ndindex(p.shape):
        one = law(vocab_size=V[k], num_facts=N_f[j, 0], embed_dim=D[i, 0, 0], state_dim=N, task=task)
        assert one.shape == ()
        assert p[i, j, k] == pytest.approx(float(one), abs=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_an_empty_array_stays_empty(law):
    assert law(**{**CELL, "embed_dim": []}).shape == (0,)


@TASKS
def test_the_more_dimensions_keys_take_the_worse(task):
    p = np.stack([selective_law(**grid(), task=task, share=share) for share in ("none", 0.25, "soft", 0.7, "hard")])
    assert np.all(np.diff(p, axis=0) < QUADRATURE)


@TASKS
def test_named_shares_are_numbers(task):
    for name, number in (("none", 0.0), ("hard", 1.0)):
        np.testing.assert_array_equal(
            selective_law(**grid(), task=task, share=name), selective_law(**grid(), task=task, share=number)
        )


def test_soft_share_is_one_half_for_ar_and_between_1_2_and_5_8_for_mqar():
    """1 - r, r = (N_f + g/2) / (2 N_f + 2 g)."""
    np.testing.assert_allclose(
        selective_law(**CELL, task="ar"), selective_law(**CELL, task="ar", share=0.5), rtol=0, atol=1e-12
    )
    assert selective_law(**CELL, share=5 / 8) < selective_law(**CELL) < selective_law(**CELL, share=1 / 2)


@TASKS
def test_tight_frames_help(task):
    assert np.all(selective_law(**grid(), task=task) > selective_law(**grid(), task=task, welch=False) - QUADRATURE)
    assert np.all(trained_t2_law(**grid(), task=task) > trained_t1_law(**grid(), task=task))


@pytest.mark.parametrize("law", LAWS)
@TASKS
def test_recall_rises_with_the_embedding(law, task):
    assert np.diff(law(**grid(), task=task), axis=1).min() > -QUADRATURE


@pytest.mark.parametrize("law", [trained_t1_law, trained_t2_law, selective_max_law])
@TASKS
def test_recall_never_falls_with_the_state(law, task):
    assert np.diff(law(**grid(), task=task), axis=0).min() >= 0


def test_a_hard_split_is_best_near_half_the_embedding():
    """N (D - N) is largest at N = D/2."""
    N = np.arange(1, 48)
    best = N[np.argmax(selective_law(**{**CELL, "state_dim": N, "num_facts": 48}, share="hard"))]
    assert 21 <= best <= 27


@TASKS
def test_the_running_maximum_is_one(task):
    N = np.arange(1, 33)
    cell = {**CELL, "vocab_size": 512, "embed_dim": 32, "state_dim": N, "task": task}
    slow = np.maximum.accumulate(selective_law(**cell))
    np.testing.assert_allclose(selective_max_law(**cell), slow, rtol=0, atol=1e-12)
    assert selective_max_law(**{**cell, "state_dim": 7.5}) >= selective_law(**{**cell, "state_dim": 7.5})


@pytest.mark.parametrize("law", LAWS)
def test_a_state_beyond_the_embedding_adds_no_rank(law):
    p = law(**{**CELL, "state_dim": [48, 49, 4800]})
    np.testing.assert_allclose(p, p[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("law", LAWS)
@TASKS
@pytest.mark.parametrize(
    ("V", "N_f", "D", "N"),
    [
        (512, 16, 32, 1), (512, 16, 32, 2), (512, 16, 32, 32), (512, 16, 1, 1), (512, 16, 2, 2), (64, 2, 16, 4),
        (64, 1, 16, 4), (66, 16, 32, 8), (34, 16, 32, 8), (4, 1, 2, 1), (10**9, 16, 2**20, 1), (512, 16, 99.5, 99.5),
        (512, 16, 12.5, 1.5),
    ],
)  # fmt: skip
def test_edges_give_probabilities(law, task, V, N_f, D, N):
    p = law(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N, task=task)
    assert 0 <= p <= 1


def test_one_fact_has_no_rival_pair():
    assert selective_law(vocab_size=64, num_facts=1, embed_dim=8, state_dim=2, task="ar") == 1


def test_a_hard_split_without_room_for_values_guesses():
    assert selective_law(vocab_size=64, num_facts=4, embed_dim=8, state_dim=8, share="hard") == 1 / 32


def test_one_hash_dimension_cannot_tell_facts_apart_however_large_the_embedding():
    """Keys hash to a sign: half of the wrong facts weigh as much as the right one."""
    p = selective_law(vocab_size=512, num_facts=16, embed_dim=10**6, state_dim=1, task="ar")
    assert p == pytest.approx(2 / 16, abs=0.02)


@TASKS
@pytest.mark.parametrize(("share", "tolerance"), [("soft", QUADRATURE), ("hard", 2e-4)])
def test_finer_quadrature_changes_nothing(task, share, tolerance, monkeypatch):
    """A hard split leaves D_v = 2 in some cells, the hardest to integrate."""
    cell = grid(embed_dim=np.array([[4], [12], [22], [64]]), state_dim=np.array([1, 2, 10, 20, 40]))
    coarse = selective_law(**cell, task=task, share=share)
    monkeypatch.setattr(contest, "NODES", Nodes(5, 16, 40, 96, 20, 60, 24))
    monkeypatch.setattr(selective, "SLOT_NODES", 9)
    np.testing.assert_allclose(selective_law(**cell, task=task, share=share), coarse, rtol=0, atol=tolerance)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 32}, r"vocab_size >= 2 num_facts \+ 2 = 34"),
        ({"length": 128}, "trained-sharing"),
        ({"length": 62}, "4 num_facts"),
        ({"task": "repeated"}, "'ar' and 'mqar'"),
        ({"embed_dim": 0}, "embed_dim"),
        ({"state_dim": np.inf}, "finite"),
    ],
)
def test_wrong_input_is_explained(law, change, message):
    with pytest.raises(ValueError, match=message):
        law(**{**CELL, **change})


@pytest.mark.parametrize("share", ["half", -0.1, 1.5, np.nan])
def test_an_unknown_share_is_explained(share):
    with pytest.raises(ValueError, match="share="):
        selective_law(**CELL, share=share)


def test_welch_needs_a_dimension_and_two_codes():
    for d, n in ((0, 8), (4, 1), (np.nan, 8)):
        with pytest.raises(ValueError, match="at least two codes"):
            welch_dim(d, n)
