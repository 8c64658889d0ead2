"""The law of the designed model: reference values, its counts, its limits, and how exact its integrals are."""

import numpy as np
import pytest

from recallscope.theory.laws import contest as geometry
from recallscope.theory.laws.contest import Nodes
from recallscope.theory.laws.designed import designed_contest, designed_improved_law
from recallscope.theory.quadrature import gamma_rule, gamma_tail_rule, slot_rule

CELL = {"vocab_size": 512, "num_facts": 16, "embed_dim": 48, "state_dim": 16}
REGIMES = [(1024, 16), (512, 32), (512, 16)]
TASKS = pytest.mark.parametrize("task", ["ar", "mqar"])
QUADRATURE = 3e-5


@pytest.mark.parametrize(
    ("V", "D", "N", "task", "expected"),
    [
        (1024, 48, 16, "ar", 0.8088),
        (1024, 48, 16, "mqar", 0.6319),
        (512, 64, 32, "ar", 0.9954),
        (512, 64, 32, "mqar", 0.9632),
    ],
)
def test_reference_values(V, D, N, task, expected):
    """Worked out independently, with other quadratures."""
    p = designed_improved_law(vocab_size=V, num_facts=16, embed_dim=D, state_dim=N, task=task)
    assert p == pytest.approx(expected, abs=1e-4)


@TASKS
def test_an_array_holds_what_its_cells_hold(task):
    V, N_f, D, N = np.array([64, 512]), np.array([[2], [9]]), np.array([[[4]], [[16]], [[700]]]), 3
    p = designed_improved_law(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N, task=task)
    assert p.shape == (3, 2, 2)
    for i, j, k in np.ndindex(p.shape):
        one = designed_improved_law(vocab_size=V[k], num_facts=N_f[j, 0], embed_dim=D[i, 0, 0], state_dim=N, task=task)
        assert one.shape == ()
        assert p[i, j, k] == pytest.approx(float(one), abs=1e-12)
    assert designed_improved_law(**{**CELL, "embed_dim": []}, task=task).shape == (0,)


def test_cells_do_not_feel_how_many_are_computed_at_once(monkeypatch):
    cell = {**CELL, "embed_dim": np.arange(8, 60, 4)}
    whole = designed_improved_law(**cell)
    monkeypatch.setattr(geometry, "CHUNK", 1)
    np.testing.assert_allclose(designed_improved_law(**cell), whole, rtol=0, atol=1e-12)


def test_a_state_larger_than_the_embedding_cannot_be_designed():
    p = designed_improved_law(**{**CELL, "state_dim": [47, 48, 49, 500]})
    assert np.isnan(p).tolist() == [False, False, True, True]


@TASKS
def test_recall_rises_with_both_dimensions_and_falls_with_vocabulary_and_facts(task):
    D, N = np.meshgrid(np.arange(2, 65, 6), np.arange(1, 33, 3))
    p = designed_improved_law(**{**CELL, "embed_dim": D, "state_dim": N}, task=task)
    steps = np.concatenate([np.diff(p, axis=0).ravel(), np.diff(p, axis=1).ravel()])
    assert np.nanmin(steps) > -QUADRATURE
    for name, values in (("vocab_size", [256, 512, 4096, 10**6, 10**9]), ("num_facts", [4, 8, 16, 32, 64])):
        assert np.all(np.diff(designed_improved_law(**{**CELL, name: values}, task=task)) < 0)


def test_one_query_is_easier_than_many():
    D = np.arange(8, 100, 8)
    ar, mqar = (designed_improved_law(**{**CELL, "embed_dim": D, "state_dim": 8}, task=t) for t in ("ar", "mqar"))
    assert np.all(ar > mqar)


@pytest.mark.parametrize(("V", "N_f", "ceiling"), [(1024, 16, 0.996355), (512, 32, 0.985155), (512, 16, 0.992742)])
def test_filler_that_repeats_a_key_caps_mqar_but_not_ar(V, N_f, ceiling):
    """The cap is 1 - 1/2 mean P(some filler before the query equals its key), a coin flip, to first order in N_f/V."""
    cell = {"vocab_size": V, "num_facts": N_f, "embed_dim": 1000, "state_dim": 1000}
    assert designed_improved_law(**cell) == pytest.approx(ceiling, abs=3e-4)
    assert designed_improved_law(**cell, task="ar") == pytest.approx(1, abs=1e-9)


@TASKS
@pytest.mark.parametrize(
    ("V", "N_f", "D", "N"),
    [
        (512, 16, 32, 1), (512, 16, 32, 2), (512, 16, 32, 32), (512, 16, 2, 2), (512, 16, 2, 1), (64, 1, 16, 4),
        (64, 2, 16, 4), (66, 16, 32, 8), (34, 16, 32, 8), (4, 1, 2, 1), (10**9, 16, 2**20, 1), (10, 2, 2**20, 2**20),
        (512, 16, 12.5, 1.5), (64, 2, 1, 1),
    ],
)  # fmt: skip
def test_edges_give_probabilities(task, V, N_f, D, N):
    p = designed_improved_law(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N, task=task)
    assert 1 / V <= p <= (1 if D > 1 else 1 / V)  # one dimension only guesses


@TASKS
@pytest.mark.parametrize(("V", "N_f"), REGIMES)
def test_finer_quadrature_changes_nothing(task, V, N_f, monkeypatch):
    D = np.array([2, 6, 10, 14, 32, 64, 64, 96])
    N = np.array([2, 3, 10, 2, 16, 2, 64, 8])
    cell = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": task}
    coarse = designed_improved_law(**cell)
    monkeypatch.setattr(geometry, "NODES", Nodes(9, 32, 40, 96, 20, 60, 24))
    np.testing.assert_allclose(designed_improved_law(**cell), coarse, rtol=0, atol=QUADRATURE)


def test_the_ways_to_integrate_agree_where_they_meet(monkeypatch):
    """Small D takes another rule for the noise's norm, and D >> n another for the signal."""
    cell = {"vocab_size": 512, "num_facts": 16, "embed_dim": 16, "state_dim": [2, 8, 16]}
    gauss = designed_improved_law(**cell)
    monkeypatch.setattr(geometry, "TAIL_DIM", 20)
    np.testing.assert_allclose(designed_improved_law(**cell), gauss, rtol=0, atol=QUADRATURE)
    cell = {"vocab_size": 512, "num_facts": 16, "embed_dim": 19 * 31, "state_dim": [1, 2, 4, 8, 16], "task": "ar"}
    fine = designed_improved_law(**cell)
    monkeypatch.setattr(geometry, "WIDE", 18)
    np.testing.assert_allclose(designed_improved_law(**cell), fine, rtol=0, atol=2e-3)


def test_a_huge_embedding_leaves_the_noise_of_keys():
    """With D >> n values are told apart, but N = 4 hash dimensions still confuse keys: p levels off below 1."""
    p = designed_improved_law(**{**CELL, "state_dim": 4, "embed_dim": [2**12, 2**16, 2**20]}, task="ar")
    assert np.all((0.4 < p) & (p < 0.45))
    assert np.ptp(p) < 5e-3


@pytest.mark.parametrize(("V", "N_f", "L"), [(512, 16, 64), (1024, 16, 64), (4096, 16, 128), (512, 4, 32)])
def test_competitors_are_counted_as_they_occur(V, N_f, L):
    """Expected numbers of tokens standing once, and twice or more, on the value side when slot g is asked.

    The counts are of first order in filler/V, which leaves up to .5 here; 2000 sequences put the standard errors below
    .04, so that a false alarm takes five of them: once in a million seeds.
    """
    rng = np.random.default_rng(7)
    G, runs = (L - 2 * N_f) // 2, 2000
    for g in (0, G // 2, G - 1):
        once, twice = np.empty(runs), np.empty(runs)
        for run in range(runs):
            keys = 1 + rng.permutation(V // 2 - 1)[:N_f]
            values = V // 2 + rng.permutation(V // 2)[:N_f]
            tokens = rng.integers(0, V, 2 * G)
            slots = np.concatenate([[g], rng.permutation(np.delete(np.arange(G), g))])[:N_f]
            order = rng.permutation(N_f)
            tokens[2 * slots] = keys[order]
            context = np.stack([keys, values], axis=1).ravel()
            value_side = np.concatenate([context[1:], tokens[: 2 * g + 1]])
            counts = np.bincount(value_side, minlength=V)
            counts[values[order[0]]] = 0
            once[run], twice[run] = (counts == 1).sum(), (counts >= 2).sum()
        arrays = (np.array(float(a)) for a in (V, N_f, 32, 16, G, g))
        _, contest = designed_contest(*arrays)
        assert abs(once.mean() - contest.once) < 0.7
        assert abs(twice.mean() - contest.twice) < 0.7
        assert contest.once + contest.twice + contest.empty == pytest.approx(V - 1)


def test_length_is_four_facts_unless_given_and_longer_is_harder():
    p = designed_improved_law(**CELL, length=[64, 66, 96, 128, 256, 512])
    assert p[0] == designed_improved_law(**CELL)
    assert np.all(np.diff(p) < 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 32}, r"vocab_size >= 2 num_facts \+ 2 = 34"),
        ({"vocab_size": 64, "length": 130}, "length <= 2 vocab_size = 128"),
        ({"length": 62}, "4 num_facts"),
        ({"task": "ar", "length": 64}, "Leave it out"),
        ({"task": "repeated"}, "'ar' and 'mqar'"),
        ({"embed_dim": 0}, "embed_dim"),
        ({"state_dim": [4, -1]}, "state_dim"),
        ({"num_facts": 0}, "num_facts"),
        ({"embed_dim": np.nan}, "finite"),
    ],
)
def test_wrong_input_is_explained(change, message):
    with pytest.raises(ValueError, match=message):
        designed_improved_law(**{**CELL, **change})


@pytest.mark.parametrize("G", [1, 2, 4, 5, 6, 16, 1000])
def test_the_slot_rule_is_exact_on_polynomials(G):
    nodes, weights = slot_rule(G, 5)
    assert np.all((nodes >= 0) & (nodes <= G - 1))
    g = np.arange(G)
    for degree in range(10):
        exact = np.mean((g / G) ** degree)
        assert (weights * (nodes / G) ** degree).sum() == pytest.approx(exact, abs=1e-12)
    if G <= 5:  # then on every function
        assert (weights * np.cos(7 * nodes)).sum() == pytest.approx(np.cos(7 * g).mean(), abs=1e-12)


@pytest.mark.parametrize("variance", [0.01, 0.1, 1.0, 2.0])
def test_both_gamma_rules_agree(variance):
    for f in (lambda r: r, lambda r: r**2, lambda r: np.exp(-r)):
        rules = gamma_rule(variance, 40), gamma_tail_rule(variance, 60)
        gauss, log = (sum(w * f(r) for r, w in zip(*rule, strict=True)) for rule in rules)
        assert log == pytest.approx(gauss, abs=1e-4)
