"""The quick quadrature of trained-sharing against its slow twin: within 1e-3 wherever the law is used.

The twin's own nodes are too few where D comes near V/2 (it is up to 5e-3 off there): it gets more of them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta as beta_law

from recallscope.theory.law import find_law
from recallscope.theory.laws.heads import sharing_heads_law
from recallscope.theory.laws.sharing import QUICK, recall_given_variances, sharing_codes, sharing_law
from recallscope.theory.quadrature import split_rule
from recallscope.theory.solve import frontier

MORE: dict[str, Any] = {"weight_nodes": 64, "signal_nodes": 90, "norm_nodes": 10, "residual_nodes": 5}
ORDINARY = {"vocab_size": 512, "num_facts": 16}

# N, D, N_f, V, task, L: keys that repel each other, repeats, few key dimensions, many facts for the vocabulary
SMALL_VOCAB = [
    (3, 248, 8, 120, "mqar", 104),
    (2, 83, 29, 94, "mqar", None),
    (5, 149, 59, 366, "ar", None),
    (1, 240, 4, 274, "mqar", 60),
    (8, 91, 51, 194, "mqar", None),
    (16, 32, 8, 64, "mqar", None),
]
# the ends of V 64..4096, N_f >= 4, D 4..256, N 1..64
EXTREME = [
    (N, D, N_f, V, task, L)
    for V, N_f in ((64, 4), (64, 31), (4096, 4), (4096, 255))
    for D in (4, 256)
    for N in (1, 2, 64)
    for task, L in (("ar", None), ("mqar", None), ("mqar", 16 * N_f))
    if 4.8 * D <= V
]


def fields(N: float, D: float, N_f: int, V: int, task: str = "mqar", L: int | None = None) -> dict[str, Any]:
    return {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": task, "length": L}


KEPT = Path(__file__).with_name("sharing_exact.json")  # the twin's values, which take half a minute; a slow test
EXACT: dict[str, float] = json.loads(KEPT.read_text())  # makes them again. To write it: python THIS_FILE


def name_of(sizes: dict[str, Any], nodes: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in (sizes | nodes).items() if value is not None)


def twin(sizes: dict[str, Any], **nodes: int) -> float:
    """The slow form's value, as it is kept; worked out where it is not."""
    return EXACT.get(name_of(sizes, nodes)) or slow_form(sizes, **nodes)


def slow_form(sizes: dict[str, Any], **nodes: int) -> float:
    codes = sharing_codes(**sizes)
    measured = {name: getattr(codes, name) for name in ("key_variance", "value_variance", "leak", "unshared")}
    return float(recall_given_variances(**sizes, **measured, exact=True, **nodes))


def drawn(count: int, seed: int, *, small_vocab: bool) -> list[dict[str, Any]]:
    """Problems from all over V 64..4096, N_f >= 4, D 4..256, N 1..64, log-uniform; V >= 4.8 D unless V is small."""
    rng = np.random.default_rng(seed)

    def log_uniform(low: float, high: float) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))

    problems: list[dict[str, Any]] = []
    while len(problems) < count:
        V = 2 * log_uniform(32, 2048)
        N_f, D, N = log_uniform(4, min(V // 2 - 1, 128)), log_uniform(4, 256), log_uniform(1, 64)
        task = str(rng.choice(["ar", "mqar", "mqar"]))
        L = N_f * int(rng.integers(4, 17)) if task == "mqar" and rng.random() < 0.25 else None
        if (V < 4.8 * D) == small_vocab:
            problems.append(fields(N, D, N_f, V, task, L))
    return problems


def assert_close(found: float, exact: float, bound: float, sizes: dict[str, Any]) -> None:
    assert abs(found - exact) <= bound, f"{found:.5f} instead of {exact:.5f} for {sizes}"


@pytest.mark.parametrize(("count", "seed"), [(100, 1), pytest.param(400, 2, marks=pytest.mark.slow)])
def test_quick_and_exact_agree_all_over_the_domain(count: int, seed: int) -> None:
    """Within 1e-3, and 5e-4 where the law was compared with models; 2e-4 in root mean square."""
    differences = []
    for sizes in drawn(count, seed, small_vocab=False):
        found, exact = float(sharing_law(**sizes)), twin(sizes)
        compared = sizes["embed_dim"] >= 8 and sizes["num_facts"] >= 8
        assert_close(found, exact, QUICK / 2 if compared else QUICK, sizes)
        differences.append(found - exact)
    assert np.sqrt(np.mean(np.square(differences))) < 2e-4


@pytest.mark.parametrize("case", EXTREME)
def test_quick_and_exact_agree_at_the_ends_of_the_domain(case: tuple[Any, ...]) -> None:
    sizes = fields(*case)
    assert_close(float(sharing_law(**sizes)), twin(sizes), QUICK, sizes)


@pytest.mark.parametrize("case", SMALL_VOCAB)
def test_quick_is_right_where_values_nearly_fit_and_keys_repel(case: tuple[Any, ...]) -> None:
    sizes = fields(*case)
    assert_close(float(sharing_law(**sizes)), twin(sizes, **MORE), QUICK, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_quick_is_right_all_over_small_vocabularies(seed: int) -> None:
    for sizes in drawn(60, seed=100 + seed, small_vocab=True):
        assert_close(float(sharing_law(**sizes)), twin(sizes, **MORE), QUICK, sizes)


@pytest.mark.parametrize("pattern", ["MHA", "MQA"])
def test_heads_are_as_quick_and_as_right(pattern: str) -> None:
    """MQA leaves key dimensions idle, so that keys repel each other; MVA is one head, MKA as MQA."""
    grid = {"embed_dim": [[12], [60]], "state_dim": [2, 6, 24], "num_heads": 6, "head_pattern": pattern}
    quick, exact = (sharing_heads_law(**ORDINARY, **grid, exact=exact) for exact in (False, True))
    np.testing.assert_allclose(quick, exact, rtol=0, atol=QUICK)


def test_near_certain_recall_loses_no_digits() -> None:
    """The chance to fail, down to 1e-8, within a third: what lies beyond the nodes is not taken for failure."""
    sizes = {"vocab_size": [512, 64, 512, 1024], "num_facts": [16, 4, 16, 8], "task": "mqar"}
    sizes |= {"embed_dim": [100, 64, 64, 64], "state_dim": [60, 16, 30, 20]}
    quick, exact = (1 - sharing_law(**sizes, exact=exact) for exact in (False, True))
    assert np.all((exact > 1e-9) & (exact < 3e-3))
    np.testing.assert_allclose(quick, exact, rtol=1 / 3)


def test_a_frontier_reaches_its_target_by_the_exact_form_as_far_as_both_agree() -> None:
    law = find_law("trained-sharing")
    for point in frontier(**ORDINARY, target=0.9, max_points=6):
        sizes = {"embed_dim": point.embed_dim, "state_dim": point.state_dim}
        assert point.probability == pytest.approx(float(sharing_law(**ORDINARY, **sizes)), abs=law.tolerance)
        assert float(sharing_law(**ORDINARY, **sizes, exact=True)) >= 0.9 - law.tolerance


@pytest.mark.parametrize(("shape", "cut"), [(0.8, 0.3), (4.0, 0.1), (40.0, 0.02), (40.0, 0.9), (1e5, 2e-5)])
def test_the_split_rule_integrates_across_a_bend_and_a_jump(shape: float, cut: float) -> None:
    B, weights = split_rule(shape, cut, 12, 12)
    law = beta_law(0.5, shape)
    assert np.sum(weights * B) == pytest.approx(law.mean(), rel=2e-3)
    assert np.sum(weights * (cut < B)) == pytest.approx(law.sf(cut), abs=2e-3)
    bend = law.expect(lambda b: np.minimum(b, cut), points=(cut,), limit=400) if shape < 1e3 else None
    assert bend is None or np.sum(weights * np.minimum(B, cut)) == pytest.approx(bend, rel=5e-3)


def kept_cases() -> list[tuple[dict[str, Any], dict[str, int]]]:
    cases = [(sizes, {}) for sizes in drawn(100, 1, small_vocab=False)] + [(fields(*case), {}) for case in EXTREME]
    return cases + [(fields(*case), MORE) for case in SMALL_VOCAB]


@pytest.mark.slow
def test_the_kept_values_are_those_of_the_slow_form() -> None:
    """Sums of some thousand terms between 0 and 1, in any order: 1e-12."""
    assert len(EXACT) == len({name_of(*case) for case in kept_cases()})
    for sizes, nodes in kept_cases():
        assert EXACT[name_of(sizes, nodes)] == pytest.approx(slow_form(sizes, **nodes), abs=1e-12)


if __name__ == "__main__":
    values = {name_of(sizes, nodes): slow_form(sizes, **nodes) for sizes, nodes in kept_cases()}
    KEPT.write_text(json.dumps(values, indent=0) + "\n")
