"""What a measurement says: intervals, bits, the linear Mamba it equals, and its place among stored runs."""

import math

import pytest
import torch
from matplotlib.figure import Figure

import recallscope as rs
from recallscope.analysis.table import load_runs
from recallscope.figures.variants import draw_measured
from recallscope.measuring import measurement
from recallscope.measuring.measurement import Accuracy, Information, LinearEqual, Neighbour, linear_curve, neighbours
from recallscope.measuring.training_runs import Training
from recallscope.records import RunRecord, binding
from recallscope.runs.plan import estimated_cost
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions
from recallscope.specs import TRIALS_FROM
from recallscope.theory.bounds import information_bits, most_recall

TASK = rs.MQARSpec(vocab_size=64, num_facts=4)


def test_one_seed_has_an_interval_over_sequences_and_several_over_seeds():
    one = Accuracy.of([0.9], [0.01], 2000, 8000)
    assert one.interval == pytest.approx((0.88, 0.92), abs=0.003)
    all_right = Accuracy.of([1.0], [0.0], 2000, 8000)
    assert all_right.interval[1] == pytest.approx(1)
    assert 1 - 4 / 2000 < all_right.interval[0] < 1, "all right in 2000 is no proof of 1"
    three = Accuracy.of([0.90, 0.91, 0.92], [0.01] * 3, 2000, 8000)
    assert three.mean == pytest.approx(0.91)
    assert three.interval[1] - three.mean == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-3)
    assert "3 seeds" in three.over
    low, high = Accuracy.of([1.0, 1.0], [0.0, 0.0], 50, 200).interval
    assert (low < 0.97, high) == (True, 1), "two seeds that agree have been tested on 100 sequences only"


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_an_interval_has_its_mean_inside_whatever_the_rounding(mean):
    for sequences in range(1, 3000):
        low, high = Accuracy.of([mean], [0.0], sequences, sequences).interval
        assert low <= mean <= high


def test_bits_are_those_of_the_information_bound():
    found = Information.of(0.9, TASK, 100)
    assert found.held == pytest.approx(float(information_bits(4, 64, 0.1, values="distinct")))
    assert found.of_task == pytest.approx(math.log2(32 * 31 * 30 * 29), abs=1e-6)
    assert found.per_entry == pytest.approx(found.held / 100)
    assert found.share_of_bound == pytest.approx(found.held / 3200)
    assert Information.of(0.01, TASK, None).held == 0
    assert Information.of(1.0, TASK, None).per_entry is None


def test_most_recall_inverts_the_information_bound():
    for p in (0.2, 0.6, 0.95):
        bits = float(information_bits(16, 512, 1 - p, values="distinct"))
        assert float(most_recall(bits, 16, 512)) == pytest.approx(p, abs=2e-3)
    assert most_recall([0.0, 1e4], 16, 512).tolist() == pytest.approx([2 / 512, 1.0])


def test_a_linear_mamba_equals_one_of_its_own_size_by_the_law():
    spec = rs.LinearMambaSpec(embed_dim=16, state_dim=5)
    p = float(rs.find_law("trained-sharing")(vocab_size=64, num_facts=4, embed_dim=16, state_dim=5))
    found = LinearEqual.of(Accuracy.of([p - 1e-9], [0.01], 100, 400), TASK, spec)
    assert (found.embed_dim, found.state_dim, found.state_entries) == (16, 5, 80), "effective: it stores twice as many"


def test_where_nothing_is_equal_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(measurement, "FRONTIER_POINTS", 2)  # few sizes N are enough to find one
    sure, poor = Accuracy.of([0.99], [0.001], 1000, 4000), Accuracy.of([0.02], [0.001], 1000, 4000)
    small = rs.LinearMambaSpec(embed_dim=4, state_dim=2)
    larger = LinearEqual.of(sure, TASK, small)
    assert larger.embed_dim > 4
    assert "at its D=4 none recalls as much" in larger.reason
    assert "guessing" in LinearEqual.of(poor, TASK, small).reason
    repeated = rs.RepeatedSpec(vocab_size=64, num_facts=4, key_repeats=2)
    assert "repeated keys" in LinearEqual.of(sure, repeated, small).reason


def test_an_argument_of_ones_own_may_have_the_name_of_a_size(tmp_path):
    (tmp_path / "mine.py").write_text("class Model: ...")
    spec = rs.user_module(f"{tmp_path}/mine.py:Model", embed_dim=[8, 4], state_dim="large")
    assert estimated_cost(rs.RunSpec(task=TASK, model=spec, train=rs.TrainSpec(batch_size=2))) > 0
    assert LinearEqual.of(Accuracy.of([0.3], [0.01], 100, 400), TASK, spec).state_dim is not None


def test_the_best_linear_mamba_of_a_state_only_gains_with_the_state():
    curve = linear_curve(TASK, torch.logspace(1, 3, 5).numpy())
    assert (curve[1:] >= curve[:-1]).all()
    assert 0 <= curve[0] < curve[-1] <= 1


def test_only_runs_on_exactly_this_task_stand_beside_it(tmp_path):
    store = RunStore(tmp_path / "store", create=True)

    def put(accuracy, task=TASK, seed=0, rate=0.01, **sizes):
        model = rs.LinearMambaSpec(**({"embed_dim": 8, "state_dim": 4} | sizes))
        run = rs.RunSpec(task=task, model=model, train=rs.TrainSpec(learning_rate=rate), seed=seed)
        numbers = {"test_accuracy": accuracy, "val_accuracy": accuracy, "test_queries": 10, "best_step": 1, "steps": 1}
        store.put(RunRecord(spec=run, seconds=1.0, **numbers))

    put(0.5)
    put(0.7, seed=1)
    put(0.2, rate=0.5)  # the better training of a model counts
    put(0.9, state_dim=8)
    put(0.99, task=rs.MQARSpec(vocab_size=64, num_facts=4, filler="zero"))
    put(0.99, task=rs.MQARSpec(vocab_size=64, num_facts=2))
    put(0.99, task=rs.ARSpec(vocab_size=64, num_facts=4))
    put(1.0, seed=TRIALS_FROM)  # a learning-rate trial
    best, other = neighbours(TASK, [tmp_path / "store"])
    assert best == Neighbour("linear_mamba", "D=8 N=8", 0.9, 1, 64, "store")
    assert (other.accuracy, other.seeds, other.state_entries) == (pytest.approx(0.6), 2, 32)
    assert other.interval == pytest.approx((0.6 - 12.706 * 0.1, 0.6 + 12.706 * 0.1), abs=1e-3)
    assert not other.learned, "with 10 queries 0.5 is not above guessing"
    listed, every = find_runs(store), find_runs(store, trials=True)
    assert [row for row in every if row not in listed] == find_runs(store, parse_conditions([f"seed={TRIALS_FROM}"]))
    assert len(load_runs(store.root)) == len(listed) == len(every) - 1


def test_the_effective_state_of_a_users_module_is_kept_with_its_record(tmp_path):
    store = RunStore(tmp_path / "store", create=True)
    run = rs.RunSpec(task=TASK, model=rs.user_module("examples/gru.py:Model"))
    numbers = {"test_accuracy": 0.5, "val_accuracy": 0.5, "test_queries": 4000, "best_step": 1, "steps": 1}
    store.put(RunRecord(spec=run, seconds=1.0, **numbers))
    store.add_state(run.content_hash(), 16)
    assert find_runs(store)[0]["effective_entries"] == 16
    (row,) = neighbours(TASK, [store.root])
    assert (row.state_entries, row.learned) == (16, True)
    store.add_state("0" * 24, 16)  # a run that is not there stays away
    assert len(store.names()) == 1


def trained(accuracies):
    """A trainer whose runs recall so well by their kind, and by their seed a little less."""

    def train(runs):
        done = []
        for run in runs:
            p = accuracies[run.model.kind] - 0.01 * (run.seed % TRIALS_FROM)
            numbers = {"test_accuracy": p, "val_accuracy": p, "test_queries": 8000, "best_step": 1, "steps": 1}
            record = RunRecord(spec=run, seconds=1.0, in_context=1.0, binding=binding(p, 1.0, 4), **numbers)
            done.append(
                Training(
                    record, True, lambda run=run: rs.build_model(run.model, run.task.vocab_size, torch.Generator())
                )
            )
        return done

    return train


def test_rivals_are_trained_by_the_same_recipe_and_failed_ones_are_marked(tmp_path):
    """Of the same width, N so that D N is about the state of the measured model; one that did not learn has no rank."""
    mine, short = rs.LinearMambaSpec(embed_dim=16, state_dim=3), rs.TrainSpec(batch_size=8, eval_size=20)
    accuracies = {"linear_mamba": 0.8, "delta_net": 0.9, "gla": 0.25}
    found = rs.measure(
        mine, TASK, train=short, seeds=2, trainer=trained(accuracies), compare_with=["delta_net", "gla"]
    )  # fmt: skip
    delta, gla = found.beside
    assert (delta.label, delta.accuracy, delta.state_entries) == ("delta_net D=16 N=3", pytest.approx(0.895), 48)
    assert delta.interval[0] < 0.89 < 0.9 < delta.interval[1]
    assert (delta.learned, gla.learned) == (True, False)
    assert found.rank.startswith("place 2 of 2 by recall, 1 that did not learn left out")
    axes = draw_measured(found, Figure().subplots(), {})
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["delta_net D=16 N=3", "gla D=16 N=3 (did not learn)", "linear_mamba"]
    assert axes.get_title(loc="left").startswith(
        "linear_mamba: recall of 4 facts, vocabulary of 64 tokens\nmean and 95% interval"
    )
    with pytest.raises(ValueError, match=r"no such store or architecture\. Did you mean delta_net"):
        rs.measure(mine, TASK, compare_with=["delta_nt"])


def test_a_model_is_measured_as_it_is():
    """The circuit that is perfect without key filler."""
    task = rs.MQARSpec(vocab_size=16, num_facts=3, filler="zero")
    circuit = rs.ideal_circuit(16)
    found = rs.measure(circuit, task, compare_with=[], num_sequences=50)
    assert found.accuracy.mean == 1
    assert found.information.held == pytest.approx(found.information.of_task)
    assert found.parameters == sum(weight.numel() for weight in circuit.parameters())
    assert found.place == 1
    assert "without training" in found.recipe
