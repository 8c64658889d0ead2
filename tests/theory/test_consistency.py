"""Laws do not contradict themselves: `size` and `predict` agree, numbers grow and fall as they should, at any size."""

import numpy as np
import pytest

from recallscope.predictions import law_or_nan, prediction
from recallscope.theory.law import LAWS, Law, find_law
from recallscope.theory.laws import paper
from recallscope.theory.problem import Problem
from recallscope.theory.solve import SizeQuery, solve

HEADS = {"num_heads": 4, "head_pattern": "MVA"}
# one step towards more recall
BETTER = {"state_dim": 1, "embed_dim": 1, "num_layers": 1, "num_facts": -1, "vocab_size": -2}
LAW_NAMES = [law.name for law in LAWS if "mqar" in law.tasks]  # laws of correlated keys take a second a cell
PRINTED = ("trained-printed", "designed-printed")  # sums with a term too many: no probabilities, up to 3/2 at N_f = 1
EDGES = ("do not fit", "would leave", "vocabulary up to")  # reasons of answers beyond which `size` does not look


def draw_sizes(rng: np.random.Generator, law: Law) -> dict:
    """A setting of sizes that are log-uniform, heads where the law needs them."""
    log = lambda low, high: int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))  # noqa: E731
    N_f = log(1, 64)
    found = {"task": str(rng.choice(["ar", "mqar"])), "vocab_size": 2 * log(max(N_f + 1, 4), 2048), "num_facts": N_f}
    found |= {"embed_dim": 4 * log(1, 64), "state_dim": log(1, 64)}
    found["num_layers"] = 1 if rng.random() < 0.8 else log(1, 4)
    if found["task"] == "mqar" and rng.random() < 0.2:
        found["length"] = 4 * N_f + 2 * log(1, 5 * N_f)
    return found | (HEADS if law.heads else {})


def predicted(law: Law, setting: dict) -> float:
    """What `recallscope predict --law NAME` says; nan where it says that there is no answer."""
    asked = {"law": (law.name,), "model": "linear_mamba", "length": None, "num_heads": 1, "head_pattern": None}
    asked |= setting | {name: [setting[name]] for name in ("embed_dim", "state_dim")}
    try:
        (row,) = prediction(asked)["rows"]
    except ValueError:
        return float("nan")
    return float(row["laws"][law.name])


def check(rng: np.random.Generator, law: Law) -> bool:
    """One random call of `predict`, and of `size` for one of its sizes; whether the latter had an answer."""
    setting, unknown = draw_sizes(rng, law), str(rng.choice(list(BETTER)))
    p = predicted(law, setting)
    assert np.isnan(p) or 0 <= p <= (1.5 if law.name in PRINTED else 1), (law.name, setting, p)
    target = float(rng.uniform(0.02, 0.995))
    try:
        found = solve(SizeQuery(**setting | {unknown: None}, law=law, target=target), unknown)
    except ValueError:  # sizes that the law refuses
        return False
    if found.value is None:
        return False
    step = BETTER[unknown] * (4 if law.heads and unknown == "embed_dim" else 1)  # heads split D evenly
    there, worse = ({**setting, unknown: value} for value in (found.value, found.value - step))
    p = predicted(law, there)
    assert p == pytest.approx(found.probability, abs=1e-12), (law.name, there)
    assert p >= target - 1e-12, (law.name, there, target)
    if not any(edge in found.reason for edge in EDGES) and worse[unknown] >= 1:
        assert not predicted(law, worse) >= target + 1e-12, (law.name, worse, target)
    return True


@pytest.mark.parametrize("name", LAW_NAMES)
@pytest.mark.parametrize("calls", [4, pytest.param(3000 // len(LAW_NAMES) + 1, marks=pytest.mark.slow)])
def test_what_size_returns_reaches_its_target_by_predict_and_one_less_does_not(name, calls):
    rng, law = np.random.default_rng(LAW_NAMES.index(name)), find_law(name)
    answered = sum(check(rng, law) for _ in range(calls))
    assert answered >= (calls // 10 if law.inverse else 0)


def test_a_law_that_is_named_keeps_to_its_domain_in_predict_as_in_size():
    """It said 1 for N = 3, where `size` found 5 to be the least."""
    setting = {"task": "mqar", "vocab_size": 256, "num_facts": 8, "embed_dim": 32}
    law = find_law("softmax")
    assert solve(**setting, law=law, target=0.9).value == 5
    assert np.isnan(predicted(law, setting | {"state_dim": 3, "num_layers": 1}))
    assert predicted(law, setting | {"state_dim": 5, "num_layers": 1}) == 1


# Largest steps the wrong way, by the error of a law's quadrature or (delta, full-bank) of its approximation, or since
# filler repeats fewer keys of a larger vocabulary (least-squares, rank-bound); else none.
STEPS = {"trained-sharing": 1e-3, "designed-improved": 1e-3, "delta": 1e-2, "full-bank": 0.02, "full-mamba": 0.02}
STEPS |= {"least-squares": 1e-5, "rank-bound": 1e-6}


def inside(law: Law, problem: Problem):
    """Where the law has a meaning, and was compared with something if it was compared with anything."""
    return law.in_domain(problem) & ~(law.extrapolated(problem) if law.compared else np.zeros(problem.shape, bool))


@pytest.mark.parametrize("name", LAW_NAMES)
@pytest.mark.parametrize("count", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_recall_grows_with_the_state_and_falls_with_the_vocabulary(name, count):
    """Wherever a law was compared with measurements; or in its domain, if it was compared with nothing."""
    rng, law = np.random.default_rng(LAW_NAMES.index(name)), find_law(name)
    some, checked = max(4000, 200 * count), 0
    for task in ("mqar", "ar"):
        N_f = rng.integers(4, 64, some)
        sizes = {"num_facts": N_f, "vocab_size": 2 * rng.integers(2 * N_f + 1, 600)}
        sizes |= {"embed_dim": rng.integers(2, 48, some) * 4}
        sizes["state_dim"] = rng.integers(1, np.minimum(sizes["embed_dim"], 64))
        if law.heads:  # compared at one size only
            sizes |= {"vocab_size": np.full(some, 512), "num_facts": np.full(some, 16), "embed_dim": np.full(some, 60)}
        for grown, by in (("state_dim", 1), ("vocab_size", -2)):
            for pattern in ("MVA", "MQA") if law.heads else (None,):
                heads = {"head_pattern": pattern, "num_heads": 4} if pattern else {}
                one = Problem(task=task, **sizes, **heads)
                other = one.replace(**{grown: sizes[grown] + by})
                both = np.flatnonzero(inside(law, one) & inside(law, other))[:count]
                if both.size:
                    drop = law(one.take(both)) - law(other.take(both))
                    worst = {n: v[both][np.argmax(drop)] for n, v in sizes.items()}
                    assert np.max(drop) <= STEPS.get(name, 1e-12), (task, grown, worst)
                    checked += both.size
    assert checked >= count


def test_where_trained_sharing_turns_the_other_way_it_is_extrapolated():
    """With orthogonal values (D > V/2) only values that filler repeats disturb, and a larger vocabulary has fewer; a
    single fact needs one key direction, and each further one lets (value, key) pairs in."""
    law, wide = find_law("trained-sharing"), {"num_facts": 8, "embed_dim": 128, "state_dim": 4}
    p = law(**wide, vocab_size=[64, 128])
    assert p[1] > p[0]
    p = law(**wide, vocab_size=[64, 128, 256], task="ar")  # without filler
    assert np.all(np.diff(p) < 1e-12)
    alone = {"vocab_size": 64, "num_facts": 1, "embed_dim": 4}
    p = law(**alone, state_dim=[1, 2])
    assert p[1] < p[0]
    p = law(**alone | {"num_facts": 2}, state_dim=[1, 2])
    assert p[1] > p[0]
    assert all(law.extrapolated(**alone, state_dim=[1, 2]))
    assert law.extrapolated(**wide, vocab_size=64)


LARGEST = 10**9
ADMITTED = {
    "long": {"vocab_size": 512, "num_facts": 16, "length": 10**7, "embed_dim": 64, "state_dim": 16},
    "longest": {"vocab_size": 512, "num_facts": 16, "length": LARGEST, "embed_dim": 64, "state_dim": 16},
    "facts": {"vocab_size": LARGEST, "num_facts": 10**8, "embed_dim": 64, "state_dim": 16},
    "words": {"vocab_size": LARGEST, "num_facts": 16, "embed_dim": 64, "state_dim": 16},
    "dimensions": {"vocab_size": LARGEST, "num_facts": 10**6, "embed_dim": LARGEST, "state_dim": LARGEST},
    "layers": {"vocab_size": 512, "num_facts": 16, "embed_dim": LARGEST, "state_dim": 16, "num_layers": LARGEST},
    "least": {"vocab_size": 64, "num_facts": 16, "embed_dim": 2, "state_dim": 1, "length": 10**6},
}


@pytest.mark.parametrize("name", LAW_NAMES)
def test_every_law_answers_one_setting_at_any_admitted_size(name):
    """In work that does not grow with the size: a sum over 5e8 slots would end in no test's time."""
    law = find_law(name)
    for sizes in ADMITTED.values():
        p = float(law_or_nan(law, Problem(**sizes, **(HEADS if law.heads else {})))[0])
        assert np.isnan(p) or 0 <= p <= (1.5 if name in PRINTED else 1)


def test_a_long_sum_takes_few_terms_and_is_that_of_all_of_them(monkeypatch):
    for count in (1, 2, 511, 512, 513, 514, 5000):
        places, weights = np.array(list(paper._terms(count))).T
        assert weights.sum() == pytest.approx(count, rel=1e-12)
        assert np.all((places >= 0) & (places <= count - 1))
        assert (weights == 1).all() if count <= 512 else len(places) < count
    assert len(list(paper._terms(LARGEST))) < 512
    sizes = {"vocab_size": 512, "num_facts": 16, "embed_dim": [64, 30, 500], "state_dim": [16, 30, 100], "length": 6002}
    laws = [find_law(name) for name in ("trained", "trained-printed", "designed", "designed-printed", "designed-exact")]
    quick = [law(**sizes) for law in laws]
    monkeypatch.setattr(paper, "SUMMED", 10**5)
    for law, p in zip(laws, quick, strict=True):
        np.testing.assert_allclose(p, law(**sizes), rtol=0, atol=1e-6)


def test_odd_lengths_and_parts_of_facts_keep_within_one():
    """A slot has two tokens; half a slot counted as one made 3/2 of certain recall."""
    sizes = {"vocab_size": 512, "embed_dim": 10**6, "state_dim": 10**6}
    for name in ("trained", "designed", "designed-exact"):
        assert find_law(name)(**sizes, num_facts=[1, 2.7], length=[7, 12]) == pytest.approx(1)
