"""Capacity by few trainings: the law proposes, training corrects. Trainings are made up here, by a known curve."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from made_records import made
from recallscope.measuring import capacity
from recallscope.measuring.capacity import CapacityQuery, fit_probit
from recallscope.measuring.training_runs import RATES, Training, search_rate, store_trainer
from recallscope.records import Evaluation
from recallscope.specs import RunSpec, flat_fields
from recallscope.theory.law import find_law
from recallscope.theory.problem import Problem

LINEAR = {"task": {"vocab_size": 512}, "model": {"embed_dim": 32, "state_dim": 16}, "train": {}}
MINE = {"task": {"vocab_size": 512}, "model": {"kind": "examples/gru.py:Model"}, "train": {}}


def made_up(curve):
    """A trainer whose accuracy is a function of the run's fields, and the runs it was asked for."""
    asked = []

    def train(runs):
        asked.extend(flat_fields(run) for run in runs)
        return [Training(record(run, curve(flat_fields(run))), True, lambda: None) for run in runs]

    return train, asked


def record(run, accuracy):
    accuracy = min(max(float(accuracy), 0.0), 1.0)
    history = [Evaluation(step=1, loss=1 - accuracy, accuracy=accuracy)]
    return made(run, accuracy, test_queries=30_000, seconds=10.0, history=history)


def find_capacity(*args, **options):
    """Without extending runs: these curves do not depend on the steps."""
    return capacity.find_capacity(*args, **{"extend": False} | options)


def lawful(shift):
    """The law's own accuracy, moved by so many standard deviations."""
    law = find_law("trained-sharing")
    return lambda fields: ndtr(ndtri(float(law(Problem.from_fields(fields)))) + shift)


@pytest.mark.parametrize("shift", [0.0, 0.3, -0.3])
def test_the_law_proposes_and_training_corrects(shift):
    curve = lawful(shift)
    train, asked = made_up(curve)
    found = find_capacity(CapacityQuery(LINEAR, "num_facts", 0.9), train)
    sizes = {"vocab_size": 512, "embed_dim": 32, "state_dim": 16}
    truth = found.value
    assert curve({**sizes, "num_facts": truth}) >= 0.9 > curve({**sizes, "num_facts": truth + 1})
    assert len(asked) <= 4
    assert found.predicted == 15
    assert found.law == "trained-sharing"
    low, high = found.interval
    assert truth <= found.crossing <= truth + 1
    assert low < found.crossing < high
    assert found.grid_runs == max(fields["num_facts"] for fields in asked)
    assert found.grid_seconds > found.seconds


@pytest.mark.parametrize(("unknown", "known"), [("state_dim", {"embed_dim": 32}), ("embed_dim", {"state_dim": 16})])
def test_the_least_size_is_found_as_well(unknown, known):
    curve = lawful(0.1)
    fields = {"task": {"vocab_size": 512, "num_facts": 16}, "model": known, "train": {}}
    found = find_capacity(CapacityQuery(fields, unknown, 0.9), made_up(curve)[0])
    sizes = {"vocab_size": 512, "num_facts": 16, **known}
    assert curve({**sizes, unknown: found.value}) >= 0.9 > curve({**sizes, unknown: found.value - 1})
    assert len(found.runs) <= 4


@pytest.mark.parametrize("capacity", [1.5, 3.4, 12.5, 35.5])
def test_without_a_law_the_answer_is_bracketed_by_doubling(capacity):
    train, _ = made_up(lambda fields: ndtr(ndtri(0.9) + 3 * math.log(capacity / fields["num_facts"])))
    found = find_capacity(CapacityQuery(MINE, "num_facts", 0.9), train)
    assert found.value == int(capacity)
    assert len(found.runs) <= 6
    assert found.law is None
    assert found.crossing == pytest.approx(capacity, abs=0.5)


def test_any_argument_of_a_module_of_ones_own_can_be_looked_for():
    fields = {**MINE, "task": {"vocab_size": 64, "num_facts": 4}}
    train, _ = made_up(lambda sizes: ndtr(ndtri(0.8) + 2 * math.log(sizes["width"] / 21.5)))
    found = find_capacity(CapacityQuery(fields, "width", 0.8), train)
    assert found.value == 22


def test_trainings_that_run_out_are_said_and_the_fit_answers():
    train, _ = made_up(lambda fields: ndtr(ndtri(0.9) + 3 * math.log(100.5 / fields["num_facts"])))
    found = find_capacity(CapacityQuery(MINE, "num_facts", 0.9), train, max_runs=5)
    assert "used up" in found.reason
    assert len(found.runs) == 5
    assert found.value == pytest.approx(100, abs=15)


def test_hopeless_targets_are_answered_with_a_reason():
    poor = made_up(lambda fields: 0.3)[0]
    for fields in (LINEAR, MINE):
        found = find_capacity(CapacityQuery(fields, "num_facts", 0.9), poor)
        assert found.value is None
        assert "even num_facts=1 is trained to 0.3000" in found.reason
    sizes = {"task": {"vocab_size": 512, "num_facts": 16}, "model": {"embed_dim": 32}, "train": {}}
    found = find_capacity(CapacityQuery(sizes, "state_dim", 0.99), made_up(lawful(0.0))[0])
    assert found.value is None
    assert "even state_dim=32" in found.reason
    assert len(found.runs) == 1, "the law levels off at N = D: no larger state is trained"
    found = find_capacity(CapacityQuery(LINEAR, "num_facts", 0.003), poor)
    assert found.value is None
    assert "guessing" in found.reason
    assert found.runs == []


def test_a_stored_state_counts_and_the_exact_one_judges_the_training():
    """Half of the recall is lost by storing: training is not at chance, and the answer has both accuracies."""
    train, _ = made_up(lambda fields: 0.8)
    found = find_capacity(
        CapacityQuery(MINE, "num_facts", 0.5), train, stored=lambda record: record.test_accuracy / 100
    )
    assert found.value is None
    assert "even num_facts=1 is trained to 0.0080 (exact state 0.8000), below 0.5" in found.reason
    assert all(tried.learned and (tried.accuracy, tried.exact) == (0.008, 0.8) for tried in found.runs)


def test_a_model_that_holds_everything_is_told_what_fits():
    for fields in (LINEAR, MINE):
        found = find_capacity(CapacityQuery(fields, "num_facts", 0.9), made_up(lambda sizes: 1.0)[0])
        assert found.value == 255
        assert "do not fit" in found.reason


@pytest.mark.parametrize(
    ("unknown", "target", "says"),
    [
        ("vocab_size", 0.9, "cannot be looked for"),
        ("seed", 0.9, "cannot be looked for"),
        ("num_fact", 0.9, "cannot be looked for. Did you mean num_facts?"),
        ("residual", 0.9, "cannot be looked for"),
        ("num_facts", 1.2, "between 0 and 1"),
    ],
)
def test_bad_questions_are_refused(unknown, target, says):
    with pytest.raises(ValueError, match=says):
        CapacityQuery(LINEAR, unknown, target)


def test_the_rate_is_the_one_that_recalls_most_on_another_seed():
    reached = {0.01: 0.2, 0.003: 0.6, 0.001: 0.4, 0.0003: 0.2}
    train, asked = made_up(lambda fields: reached[fields["learning_rate"]])
    found = find_capacity(CapacityQuery(MINE, "num_facts", 0.5), train, max_runs=2, search_rates=True)
    assert found.rate.chosen == 0.003
    trials, rest = asked[: len(RATES)], asked[len(RATES) :]
    assert [fields["learning_rate"] for fields in trials] == list(RATES)
    assert {fields["seed"] for fields in trials} == {2**30}
    assert all(fields["learning_rate"] == 0.003 and fields["seed"] == 0 for fields in rest)
    assert "0.003" in found.rate.sentence()


def test_a_rate_that_stops_early_at_the_goal_wins_over_slower_ones_of_equal_accuracy():
    """All but one reach the goal; of those the one with the fewest steps, though its last loss is not the smallest."""
    steps, losses = {0.01: 900, 0.003: 400, 0.001: 250, 0.0003: 1000}, {0.01: 0.1, 0.003: 0.2, 0.001: 0.9, 0.0003: 0.3}

    def train(runs):
        done = []
        for run in runs:
            rate = run.train.learning_rate
            found = record(run, 0.5 if rate == 0.0003 else 0.995)
            history = [Evaluation(step=1, loss=losses[rate], accuracy=0.5)]
            done.append(Training(found.model_copy(update={"steps": steps[rate], "history": history}), True, None))
        return done

    assert search_rate(CapacityQuery(MINE, "num_facts", 0.5).run_at(8), train).chosen == 0.001


def test_a_value_that_misses_the_target_is_trained_for_longer_before_it_counts():
    """At half of the steps that it needs, 12 facts are missed; with all of them, they are recalled."""
    asked = []

    def curve(fields):
        steps = fields["warmup_steps"] + fields["flat_steps"] + fields["decay_steps"]
        asked.append((fields["num_facts"], steps))
        return 0.95 if fields["num_facts"] <= 12 and (steps >= 4000 or fields["num_facts"] < 10) else 0.5

    found = find_capacity(CapacityQuery(MINE, "num_facts", 0.9), made_up(curve)[0], extend=True)
    assert found.value == 12
    assert (12, 2000) in asked
    assert (12, 4000) in asked


def test_a_value_at_which_a_model_stays_at_chance_is_no_capacity():
    """With 5 facts or more it guesses among the values of the context, however long it is trained."""
    train, _ = made_up(lambda fields: 1.0 if fields["num_facts"] < 5 else 1 / fields["num_facts"])
    found = find_capacity(CapacityQuery(MINE, "num_facts", 0.9), train, extend=True)
    assert found.value is None
    assert "did not learn under this recipe: num_facts=5 stayed at chance" in found.reason
    assert "it recalls num_facts=4" in found.reason
    two, _ = made_up(lambda fields: 1.0 if fields["num_facts"] < 2 else 1 / fields["num_facts"])
    low = find_capacity(CapacityQuery(MINE, "num_facts", 0.4), two, extend=True)
    assert low.value is None, "naming either of two values reaches 0.4 without any recall"
    assert "num_facts=2 stayed at chance: accuracy 0.5000 is not above the 0.5000 of guessing" in low.reason


def test_a_training_that_fails_says_why(tmp_path, monkeypatch):
    (tmp_path / "bad.py").write_text("import no_such_module")
    monkeypatch.chdir(tmp_path)
    run = RunSpec.model_validate({"task": {"vocab_size": 16, "num_facts": 1}, "model": {"kind": "bad.py:Model"}})
    with pytest.raises(ValueError, match="no_such_module"):
        search_rate(run, store_trainer("store", workers=1))


def test_the_fit_covers_the_truth_in_95_of_100():
    """1000 fits of four accuracies with known errors; 95 % +- 3 %: wrong once in 10,000 suites at most."""
    rng, target = np.random.default_rng(0), 0.9
    truth, inside = 1.2, 0
    for _ in range(1000):
        x = np.array([0.8, 1.1, 1.3, 1.7])
        p = ndtr(ndtri(target) + 1.1 * (x - truth))
        seen = p + rng.normal(0, np.sqrt(p * (1 - p) / 30_000 + 0.005**2))
        found, (low, high) = fit_probit(x, seen, [30_000] * 4, slope=(1.0, 0.25)).crossing(target)
        inside += low <= truth <= high
        assert low < found < high
    assert 920 <= inside
