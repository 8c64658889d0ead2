"""The flags of runs: each rule on its own side of its line, and what they say of records without the field."""

import json

import pytest

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.health import BEGUN, LEAST_GAIN, begun_from, best_guess, examine, noise
from recallscope.records import Evaluation, RunRecord, binding, parse_record, row_of
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions
from recallscope.specs import RunSpec, TrainSpec, flat_fields
from recallscope.tasks.associative_recall import MQARSpec

QUERIES = 80_000


def record(curve=(0.5, 0.9, 0.9), accuracy=None, losses=None, stop=1.0, num_facts=8, seed=0):
    """A run of 800 steps evaluated at the given accuracies, evenly spread."""
    spec = RunSpec(
        task=MQARSpec(vocab_size=64, num_facts=num_facts),
        model=LinearMambaSpec(embed_dim=8, state_dim=4),
        train=TrainSpec(stop_accuracy=stop),
        seed=seed,
    )
    steps = [800 * (k + 1) // len(curve) for k in range(len(curve))]
    return RunRecord(
        run=spec.content_hash(), spec=spec, test_accuracy=max(curve) if accuracy is None else accuracy,
        val_accuracy=max(curve), test_queries=QUERIES, best_step=800, steps=800, seconds=1.0,
        history=[
            Evaluation(step=step, loss=loss, accuracy=seen)
            for step, loss, seen in zip(steps, losses or [1.0] * len(curve), curve, strict=True)
        ],
    )  # fmt: skip


def flag(**facts):
    return examine(record(**facts).model_dump(mode="json")).kind


def test_a_run_that_learned_and_settled_has_no_warning():
    assert flag() == ""


def test_a_loss_that_is_not_finite_is_divergence_whatever_the_accuracy():
    assert flag(curve=(0.9, 0.95, 0.0), losses=[1.0, 0.5, None]) == "diverged"
    said = examine(record(curve=(0.9, 0.0), losses=[1.0, None]).model_dump(mode="json")).sentence
    assert "at step 800" in said
    assert "smaller --learning-rate than 0.01" in said


def test_still_improving_is_a_gain_in_the_last_eighth_beyond_two_points_and_beyond_luck():
    flat = [0.5] * 7
    assert flag(curve=(*flat, 0.5 + LEAST_GAIN + 0.001)) == "still-improving"
    assert flag(curve=(*flat, 0.5 + LEAST_GAIN - 0.001)) == ""
    assert flag(curve=(*[0.5] * 6, 0.6, 0.6)) == ""  # it had settled before the last eighth
    assert flag(curve=(*[0.5] * 3, 0.5 + 2 * LEAST_GAIN - 0.001)) == ""  # evaluated every quarter: as much per eighth
    assert flag(curve=(*[0.5] * 3, 0.5 + 2 * LEAST_GAIN + 0.001)) == "still-improving"
    assert flag(curve=(*flat, 0.6), stop=0.55) == ""  # it got where it was told to stop
    few = record(curve=(*flat, 0.6)).model_copy(update={"test_queries": 50})
    assert examine(few.model_dump(mode="json")).kind == ""  # so few queries say nothing


@pytest.mark.parametrize("num_facts", [2, 8])
def test_chance_is_a_guess_among_the_values_of_the_context(num_facts):
    level = 1 / num_facts
    assert flag(accuracy=level, num_facts=num_facts) == "at-chance"
    assert flag(accuracy=level + 0.99 * noise(level, QUERIES), num_facts=num_facts) == "at-chance"
    assert flag(accuracy=level + 1.01 * noise(level, QUERIES), num_facts=num_facts) == ""


def test_chance_is_known_by_binding_where_accuracy_does_not_tell():
    """0.5 of the answers are values of the context, and 1/8 of those right: chance, though 1/16 is far from 1/8."""

    def kind(in_context, binding, accuracy):
        facts = record(accuracy=accuracy, num_facts=8).model_dump(mode="json")
        return examine(facts | {"in_context": in_context, "binding": binding}).kind

    assert kind(1.0, 0.04, 1 / 8 + 0.04 * 7 / 8) == "at-chance"
    assert kind(1.0, 0.06, 1 / 8 + 0.06 * 7 / 8) == ""
    assert kind(1.0, None, 1 / 8 + 0.04 * 7 / 8) == "", "an older record has its accuracy only"
    assert begun_from(8, QUERIES) == BEGUN
    assert begun_from(8, 100) == pytest.approx(noise(1 / 8, 100) * 8 / 7), "few answers, more luck"


def test_binding_is_0_for_any_value_of_the_context_and_1_for_the_keys_own():
    assert binding(0.25, 1.0, 4) == pytest.approx(0)
    assert binding(0.125, 0.5, 4) == pytest.approx(0)
    assert binding(0.5, 0.5, 4) == pytest.approx(1)
    assert binding(0.0, 0.0, 4) == 0
    assert binding(1.0, 1.0, 1) is None
    assert binding(0.5, None, 4) is None


def test_the_best_guess_follows_from_the_task():
    assert best_guess(flat_fields(record().spec)).accuracy == 1 / 8
    assert best_guess({"num_facts": 1, "vocab_size": 64}).accuracy == 1 / 32  # the only value there is recall already
    assert best_guess({"vocab_size": 64}).accuracy == 1 / 64
    assert best_guess({}) is None


def test_luck_passes_chance_once_in_a_thousand():
    """Exactly binomial at chance: the share of runs that would miss the flag is below .0013 (normal tail .00097)."""
    from scipy.stats import binom

    for level in (1 / 2, 1 / 8, 1 / 16):
        line = level + noise(level, QUERIES)
        assert 0.0007 < binom.sf(int(line * QUERIES), QUERIES, level) < 0.0013


def test_a_record_without_the_field_gets_its_flag_on_reading():
    facts = record(curve=(0.1, 0.0), losses=[1.0, None]).model_dump(mode="json")
    del facts["flag"]
    facts["schema_version"] = 2  # its records needed no digest
    assert parse_record(json.dumps(facts)).flag == row_of(facts)["warning"] == "diverged"
    assert row_of(facts | {"flag": "at-chance"})["warning"] == "at-chance"  # what was recorded stays
    for odd in (None, [], [None], [{"step": "x"}], [{"step": 1, "accuracy": True}]):
        assert examine({"history": odd, "spec": odd, "steps": None}).kind == ""


def test_warnings_are_a_column_to_filter_by(tmp_path):
    store = RunStore(tmp_path, create=True)
    runs = {"diverged": record(curve=(0.1, 0.0), losses=[1.0, None], seed=1), "": record(seed=2)}
    for flag, found in runs.items():
        store.put(found.model_copy(update={"flag": flag}))
    for sign, wanted in (("=", runs["diverged"]), ("!=", runs[""])):
        (row,) = find_runs(store, parse_conditions([f"warning{sign}diverged"]))
        assert row["run"] == wanted.run


def test_list_show_and_fit_name_warnings_and_fit_excludes_them(run, tmp_path):
    store = RunStore(tmp_path, create=True)
    bad = record(curve=(0.1, 0.0), losses=[1.0, None], seed=1).model_copy(update={"flag": "diverged"})
    for found in (bad, record(seed=2), record(seed=3, accuracy=0.1).model_copy(update={"flag": "at-chance"})):
        store.put(found)
    assert "diverged" in run("store", "list", tmp_path)[1]
    code, out, _ = run("store", "show", tmp_path, bad.run[:8])
    assert code == 0
    assert "diverged: at step 800" in out
    shown = json.loads(run("store", "show", tmp_path, bad.run, "--json")[1])
    assert (shown["warning"], shown["explanation"][:9]) == ("diverged", "diverged:")
    quick = ["--bootstrap", 0, "--law", "unified", "--reduce", "mean"]
    code, out, _ = run("fit", tmp_path, *quick, "--json")
    assert json.loads(out)["warnings"] == {"diverged": 1, "at-chance": 1}
    code, out, _ = run("fit", tmp_path, *quick, "--exclude", "diverged", "at-chance", "--json")
    answer = json.loads(out)
    assert (answer["warnings"], answer["left_out"]) == ({}, {"diverged": 1, "at-chance": 1})
    assert answer["experiments"][0]["accuracy"] == [[0.9]]
    assert "left out 1 of 3 runs: 1 diverged" in run("fit", tmp_path, *quick, "--exclude", "diverged")[1]
    code, _, err = run("fit", tmp_path, *quick, "--where", "warning=diverged", "--exclude", "diverged")
    assert code == 2
    assert "1 left out by warnings" in err


def test_a_sweep_counts_a_diverged_run_as_done_and_names_it(run, tmp_path):
    bad = record(curve=(0.1, 0.0), losses=[1.0, None], seed=1).model_copy(update={"flag": "diverged"})
    RunStore(tmp_path / "store", create=True).put(bad)
    grid = tmp_path / "grid.toml"
    grid.write_text(
        '[task]\nkind = "mqar"\nvocab_size = 64\nnum_facts = 8\n'
        '[model]\nkind = "linear_mamba"\nembed_dim = 8\nstate_dim = 4\n[axes]\nseed = [1]\n',
        encoding="utf-8",
    )
    code, out, err = run("sweep", grid, "--store", tmp_path / "store", "--json")
    answer = json.loads(out)
    assert (code, answer["skipped"], answer["diverged"]) == (0, 1, 1)
    assert f"1 of the finished runs diverged: {bad.run[:8]}" in err
