"""Laws of correlated keys: their statements that are proved, and memories of explicit codes."""

from pathlib import Path

import numpy as np
import pytest

import commands
from recallscope.predictions import law_or_nan
from recallscope.tasks.correlated_keys import TemplateMQAR
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.law import LAWS, find_law
from recallscope.theory.laws.correlated_keys import (
    _contexts,
    _keys,
    delta_slope,
    effective_dimension,
    similarities,
    table_rank,
    template_rate,
    weights,
)
from recallscope.theory.problem import TEMPLATES, Problem

THEORY = Path(__file__).resolve().parents[2] / "results" / "theory"
CELL = {"vocab_size": 128, "num_facts": 8, "embed_dim": 24, "state_dim": 8, "task": "template_ar"}
KINDS = [{"rho": 0.0}, {"rho": 1.0}, {"rho": 0.7, "key_tokens": 3}, {"rows": 3, "columns": 4}]
LARGEST = {
    "addition": 0.05,
    "addition, N_eff": 0.08,
    "delta, b = 0.05": 0.05,
    "delta, b = 0.15": 0.05,
    "delta, b = 0.4": 0.06,
}


@pytest.fixture(scope="module")
def script():
    return commands.script("results/theory/template_monte_carlo.py")


def unit_keys(seed: int, contexts: int, n: int, N: int, shared: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((contexts, n, N)) + shared * rng.standard_normal((contexts, 1, N))
    return keys / np.linalg.norm(keys, axis=-1, keepdims=True)


@pytest.mark.parametrize("b", [0.1, 0.7, 1.0])
def test_the_weights_of_the_delta_rule_are_those_of_the_recurrence(b):
    """And sum_j w_ij² = b / (2 - b) (1 - |x_i|²), x_i being what all writes leave of the key."""
    keys = unit_keys(0, 2, 7, 4)
    n, W = 7, weights(keys, "delta", b)
    for context in range(2):
        S = np.zeros((n, 4))  # values are unit vectors
        for t, k in enumerate(keys[context]):
            S += b * np.outer(np.eye(n)[t] - S @ k, k)
        np.testing.assert_allclose(W[context], keys[context] @ S.T, atol=1e-12)
        left = keys[context].copy()
        for k in keys[context][::-1]:
            left -= b * np.outer(left @ k, k)
        np.testing.assert_allclose((W[context] ** 2).sum(1), b / (2 - b) * (1 - (left**2).sum(1)), atol=1e-12)


def test_least_squares_does_not_see_an_invertible_map_of_the_keys():
    keys = unit_keys(1, 3, 9, 5)
    skewed = keys @ np.random.default_rng(2).standard_normal((5, 5))
    np.testing.assert_allclose(weights(keys, "least-squares"), weights(skewed, "least-squares"), atol=1e-5)


@pytest.mark.parametrize("memory", ["addition", "delta", "least-squares"])
def test_no_memory_passes_the_rank_of_its_keys(memory):
    """Sum of h = w_ii² / sum_j w_ij², over keys of a full 3 x 4 table in 16 dimensions; least squares attains it."""
    rng = np.random.default_rng(3)
    rows, columns = rng.standard_normal((3, 16)), rng.standard_normal((4, 16))
    keys = (rows[:, None] + columns).reshape(1, 12, 16)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    W = weights(keys, memory, 0.3)[0]
    h = np.diag(W) ** 2 / (W**2).sum(1)
    assert h.sum() <= 6 + 1e-6
    assert memory != "least-squares" or h.sum() == pytest.approx(6, abs=1e-5)
    assert float(table_rank(Problem(**CELL | {"num_facts": 12}, rows=3, columns=4))) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_laws_draw_the_contexts_of_the_task(kind):
    """How often two keys share 0, 1, ... places: by the formula, by the laws' draws, and by the task's."""
    gamma, chance = similarities(Problem(**CELL, **kind))
    m = kind.get("key_tokens", 2)
    task = TemplateMQAR(vocab_size=128, num_facts=8, **kind)
    for drawn in (_contexts(Problem(**CELL, **kind), 8, 63, 3000), sample_batch(task, 3000, 0).keys.numpy()):
        shared = (drawn[:, 1] == drawn[:, 4]).mean(axis=-1)
        found = [(shared == value).mean() for value in gamma]
        np.testing.assert_allclose(found, chance, atol=0.04)
        assert set(np.round(shared * m)) <= set(range(m + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_at_rate_0_is_that_of_the_weights(kind):
    """By a finite difference of log SNR²; random keys have nearly 1 - 1/N, which is that of the mean SNR²."""
    keys = _keys(Problem(**CELL, **kind), 8, 8, 64)

    def log_snr(b: float) -> float:
        W = weights(keys, "delta", b)
        own = np.diagonal(W, axis1=-2, axis2=-1)
        return float(np.mean(np.log(own**2 / ((W**2).sum(-1) - own**2))))

    slope = float(delta_slope(Problem(**CELL, **kind)))
    assert slope == pytest.approx((log_snr(1e-5) - log_snr(0)) / 1e-5, abs=2e-3)
    if kind == {"rho": 0.0}:
        assert slope == pytest.approx(1 - 1 / 8, abs=0.2)


def test_uncorrelated_keys_follow_the_laws_of_plain_recall():
    plain = {name: value for name, value in CELL.items() if name != "task"} | {"task": "ar"}
    for own, other in (("gated", "template-addition"), ("gated", "template-effective"), ("delta", "template-delta"),
                       ("least-squares", "template-least-squares")):  # fmt: skip
        assert float(find_law(other)(**CELL)) == pytest.approx(float(find_law(own)(**plain)), abs=0.025), other
    assert find_law("delta").for_task("template_ar").name == "template-delta"
    assert find_law("delta").for_task("mqar").name == "delta"


def test_correlations_cost_addition_most_and_least_squares_nothing():
    crowded = CELL | {"num_facts": 14, "rho": 1.0}
    p = {name: float(find_law(f"template-{name}")(**crowded)) for name in ("addition", "delta", "least-squares")}
    assert p["addition"] + 0.03 < p["delta"] < p["least-squares"] - 0.1
    plain = float(find_law("template-least-squares")(**crowded | {"rho": 0.0}))
    assert p["least-squares"] == pytest.approx(plain, abs=0.03)
    assert float(effective_dimension(Problem(**CELL, rho=1.0))) < 5 < float(effective_dimension(Problem(**CELL)))
    for name in ("addition", "least-squares"):
        law = find_law(f"template-{name}")
        assert np.all(np.diff(law(**crowded | {"state_dim": [2, 4, 8, 16]})) > 0)
        assert np.all(np.diff(law(**crowded | {"vocab_size": [128, 512, 2048]})) < 0)
    assert 0.05 < float(template_rate(Problem(**CELL, rho=1.0))) < 0.4


def test_dimensions_between_whole_numbers_are_interpolated():
    p = find_law("template-addition")(**CELL | {"state_dim": [8, 8.5, 9]}, rho=1.0)
    assert p[1] == pytest.approx((p[0] + p[2]) / 2)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "sizes",
    [
        {"num_facts": 10**6, "key_tokens": 2},
        {"num_facts": 1, "key_tokens": 10**8},
        {"num_facts": 16, "rows": 10**8, "columns": 10**8},
        {"num_facts": 16, "embed_dim": 10**9, "state_dim": 10**9},
    ],
)
def test_sizes_that_would_take_all_memory_are_refused(sizes):
    """A million facts asked for a matrix of 8e12 numbers."""
    problem = Problem(**CELL | {"vocab_size": 10**9} | sizes)
    for law in LAWS:
        if law.tasks == TEMPLATES:
            p = law_or_nan(law, problem)
            assert np.isnan(p) or 0 <= p <= 1
    with pytest.raises(ValueError, match="computed up to"):
        find_law("template-delta")(problem)


def test_with_one_state_entry_codes_may_cancel_and_such_a_fact_is_lost():
    for memory in ("addition", "delta", "least-squares"):
        assert 0 < find_law(f"template-{memory}")(Problem(**CELL | {"state_dim": 1})) < 0.6


def test_laws_of_other_tasks_refuse():
    with pytest.raises(ValueError, match="use 'template-delta'"):
        find_law("delta")(**CELL, rho=1.0)
    with pytest.raises(ValueError, match="not to mqar"):
        find_law("template-delta")(**CELL | {"task": "mqar"})
    with pytest.raises(ValueError, match="rho=2"):
        Problem(**CELL, rho=2)


def test_memories_of_explicit_codes_recall_as_the_laws_say(script):
    """Played with the script's own codes and states, at a size of its own, within four standard errors besides."""
    rng, size = np.random.default_rng(5), (128, 8, 24, 8)
    draws = [script.play(rng, script.WORLDS["m=2, rho=1"], *size) for _ in range(6)]
    for memory in script.LAWS:
        means = np.array([draw[memory.removesuffix(", N_eff")].mean() for draw in draws])
        error = script.predicted(memory, script.WORLDS["m=2, rho=1"], size) - means.mean()
        assert abs(error) < LARGEST.get(memory, 0.03) + 4 * max(means.std(ddof=1), 0.01) / 6**0.5, (memory, error)


def test_the_committed_errors_stay_within_what_is_stated(script):
    told = {tuple(row.values())[:-1]: row["predicted"] for row in script.read(script.PREDICTED)}
    checked = script.read(script.CHECKED)
    assert {tuple(row.values())[:6]: row["predicted"] for row in checked} == told
    for row in (*script.read(script.DEVELOPED), *checked):
        assert abs(float(row["error"])) < LARGEST.get(row["memory"], 0.03), row
