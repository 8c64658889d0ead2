"""The paper's experiments as grids: the published axes, every figure covered, and scales that grow."""

from pathlib import Path

import pytest

from recallscope.runs.plan import estimated_cost
from recallscope.runs.store import RunStore
from recallscope.studies.claims import CLAIMS, claim
from recallscope.studies.dn_parts import REGIMES
from recallscope.studies.experiment import SCALES, SECONDS_PER_BILLION, core_seconds, experiments, find_experiment


def cells(name: str, label: str, scale: str = "paper") -> list[dict[str, object]]:
    parts = {part.label: part for part in find_experiment(name).parts(scale)}  # type: ignore[arg-type]
    return [cell.spec.model_dump() for cell in parts[label].cells]


def test_every_measured_figure_and_table_has_an_experiment() -> None:
    """Fig. 2 is a drawing, Tab. 1-7, 9 and 10 are notation, settings and licences: nothing to run."""
    shown = {key for experiment in experiments() for key in experiment.claims}
    without = {"fig-2", *(f"tab-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10))}
    asked = {row.key for row in CLAIMS if row.kind in ("figure", "table")}
    assert asked - without == {key for key in shown if claim(key).kind in ("figure", "table")}


def test_the_dn_grids_have_the_published_axes() -> None:
    """D 2..64 in steps of 2, N 2..32, N <= D, 3 seeds: three regimes, two tasks."""
    pairs = [(D, N) for D in range(2, 65, 2) for N in range(2, 33) if N <= D]
    for task in ("MQAR", "AR"):
        for regime, letters in REGIMES.items():
            runs = cells("dn-grid", f"linear {task} ({regime})")
            assert len(runs) == 3 * len(pairs)
            assert {run["task"]["vocab_size"] for run in runs} == {letters["vocab_size"]}  # type: ignore[index]
            train = runs[0]["train"]
            assert (train["batch_size"], train["learning_rate"], train["clip_norm"]) == (128, 0.01, 1.5)
            assert (train["warmup_steps"], train["flat_steps"], train["decay_steps"]) == (100, 400, 1500)
    full = cells("dn-grid", "full MQAR (i)")
    assert len(full) == 5 * len(pairs)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("layers", 2 * 15 * 5 * 3),
        ("heads", 4 * 9 * 6 * 3),
        ("repeated-keys", 25 * 3),
        ("minimality", 30),
        ("mechanism", 3),
    ],
)
def test_the_paper_scale_has_as_many_runs_as_the_paper(name: str, runs: int) -> None:
    assert len(find_experiment(name).cells("paper")) == runs


def test_repeated_keys_hold_the_total_state_fixed() -> None:
    for run in cells("repeated-keys", "repeated keys"):
        model = run["model"]
        assert model["state_dim"] * model["num_layers"] == 60


def test_large_vocabularies_are_those_of_the_paper() -> None:
    """V from 1000 to 50000, evenly in log, L = 1000 .. 4000; cells with more facts than keys cannot be drawn."""
    runs = cells("large-vocab", "large vocabularies")
    sizes = sorted({run["task"]["vocab_size"] for run in runs})  # type: ignore[index]
    assert (sizes[0], sizes[-1], len(sizes)) == (1000, 50000, 10)
    assert {run["task"]["length"] for run in runs} == {1000, 2000, 3000, 4000}  # type: ignore[index]


def test_a_part_that_departs_from_the_recipe_says_so() -> None:
    """In `small`, batch, schedule and sizes are the paper's, or `cut` is not empty."""
    for experiment in experiments():
        published = {part.label: part.cells[0].spec.train for part in experiment.parts("paper")}
        for part in experiment.parts("small"):
            train = part.cells[0].spec.train
            assert part.cut or train == published[part.label], part.label


def test_scales_grow_and_costs_are_known_for_each() -> None:
    for experiment in experiments():
        runs = [len(experiment.cells(scale)) for scale in SCALES]
        assert runs == sorted(runs)
        costs = [core_seconds(experiment.name, scale) for scale in SCALES]
        assert all(cost > 0 for cost in costs)
        assert costs[0] < 300  # quick is for a demonstration


def test_an_unknown_experiment_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'dn-gird' is not an experiment\. Choose one of dn-grid"):
        find_experiment("dn-gird")


def test_the_estimate_of_a_cost_is_the_sum_over_its_runs() -> None:
    """And near what the stored runs took, all together."""
    for scale in ("quick", "small"):
        cells = find_experiment("layers").cells(scale)
        work = sum(estimated_cost(cell.spec) for cell in cells.values())
        assert core_seconds("layers", scale) == pytest.approx(work / 1e9 * SECONDS_PER_BILLION)
    records = list(RunStore(Path(__file__).parents[2] / "results" / "paper").records())
    rate = sum(record.seconds for record in records) / sum(estimated_cost(record.spec) for record in records)
    assert pytest.approx(1e9 * rate, rel=0.01) == SECONDS_PER_BILLION
