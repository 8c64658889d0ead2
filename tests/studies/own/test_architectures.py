"""The architecture comparison's numbers, findings, figures and page, from runs of known accuracy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_up import fill

from closeness import assert_same_text
from made_records import made
from recallscope.architectures.model import build_model
from recallscope.records import Evaluation
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.specs import find_architecture
from recallscope.studies.architecture_variants import (
    AGES,
    MINIMAL,
    PUBLISHED,
    VARIANTS,
    Variant,
    age_gap,
    ages,
    flagged,
    label_of,
    linear_at,
    linear_by_parameters,
    measured,
    ranking,
)
from recallscope.studies.experiment import paper_figures
from recallscope.studies.own.architectures import CELLS, measure_ages
from recallscope.studies.own.architectures import architectures as study
from recallscope.studies.paper_runs import NoRunsError, PaperRuns
from recallscope.studies.report import chapter
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.weights import write_weights

ROOT = Path(__file__).resolve().parents[3]
RECALL = {"adds": 0.6, "fades": 0.7, "replaces": 0.71, "solves": 0.9, "keeps all": 1.0}
TWICE = {"adds": 0.5, "fades": 0.95, "replaces": 0.995, "solves": 0.52, "keeps all": 1.0}


def accuracy(variant: Variant, what: str, seed: int) -> float:
    return min((TWICE if what == "repeated" else RECALL)[variant.rule] + 0.002 * (seed - 0.5), 1.0)


def put(store: RunStore, variant: Variant, what: str, *, best: float = 0.01, flag: str = "") -> None:
    (part,) = (part for part in study.parts("small") if part.label == label_of(what, variant))
    for cell in part.cells:
        p, rate = accuracy(variant, what, min(cell.spec.seed, 1)), cell.spec.train.learning_rate
        history = [Evaluation(step=500, loss=1 + abs(rate - best), accuracy=p)]
        facts = {"history": history, "flag": flag, "parameters": 600 * cell.spec.model.embed_dim}
        entries = cell.spec.model.state_entries_after(cell.spec.task.sequence_length)
        store.put(made(cell.spec, p, **facts, state_entries=entries))


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> PaperRuns:
    """A variant of every rule, one of them published; the search of one ends at another rate than it is trained at."""
    store = RunStore(tmp_path_factory.mktemp("architectures") / "store", create=True)
    for variant in (MINIMAL[0], MINIMAL[4], MINIMAL[6], MINIMAL[10]):
        for what in ("rates", "recall", "repeated"):
            put(store, variant, what, best=0.003 if variant is MINIMAL[4] and what == "rates" else variant.rate)
    put(store, PUBLISHED[0], "recall", flag="at-chance")
    return PaperRuns(store, "small")


def test_a_cell_has_all_seeds_and_an_interval_around_their_mean(some: PaperRuns) -> None:
    found = measured(some, "recall", MINIMAL[6])
    assert list(found) == list(CELLS)
    one = found[CELLS[0]]
    assert one.seeds == (pytest.approx(0.709), pytest.approx(0.711))
    assert one.interval[0] < one.mean < one.interval[1] < one.mean + 0.01
    assert (one.state_entries, one.parameters) == (32 * 8, 600 * 32)
    assert not measured(some, "recall", MINIMAL[1])


def test_the_parameters_of_the_linear_mamba_are_what_its_model_has() -> None:
    spec = find_architecture("linear_mamba")(embed_dim=24, state_dim=6)
    model = build_model(spec, 256, torch.Generator().manual_seed(0))
    count = float(sum(weight.numel() for weight in model.parameters()))
    assert linear_by_parameters(256)(np.array([count]), np.array([6.0]))[0] == pytest.approx(24)


def test_more_parameters_or_state_never_recall_less_by_the_law() -> None:
    task = MQARSpec(vocab_size=512, num_facts=16)
    for size in ("state_entries", "parameters"):
        recall = [linear_at(task, size, float(value)) for value in (256, 1024, 16_384, 65_536)]  # type: ignore[arg-type]
        assert recall == sorted(recall)
        assert recall[-1] > 0.99


def test_who_recalls_more_at_equal_state_stands_first(some: PaperRuns) -> None:
    assert [label for label, _ in ranking(some, "state_entries")] == ["MesaNet", "DeltaNet", "GLA", "linear Mamba"]


def test_a_rate_that_the_search_does_not_give_is_named(some: PaperRuns) -> None:
    finding = study.find(some)[0]
    assert finding.verdict == "does not hold"
    assert finding.ours.startswith("GLA is trained at 0.01, and the search prefers 0.003")
    assert "linear Mamba" not in finding.ours


def test_findings_say_who_overwrites_who_guesses_and_who_failed(some: PaperRuns) -> None:
    verdicts = {finding.question: finding.verdict for finding in study.find(some)}
    assert verdicts["Does the delta rule overwrite?"] == "holds"
    assert verdicts["Does a state that only adds return either value?"] == "holds"
    assert verdicts["Do fading, least squares and attention overwrite?"] == "holds approximately"
    assert verdicts["Do states that replace recall recent facts better?"] == "not tested"
    assert len(flagged(some)) == 2
    assert all(text.startswith("DeltaNet (published) at mqar") for text in flagged(some).values())


def test_the_page_holds_the_numbers_of_the_runs_that_are_there(some: PaperRuns) -> None:
    page = chapter("ARCHITECTURE_COMPARISON.md", some)
    assert "**MesaNet recalls the most per state entry.**" in page
    assert "(accuracy at least 0.9): GLA 0.950, DeltaNet 0.995." in page
    assert "| MesaNet | 0.900" in page
    assert "| KDA | - | - | - | - | - | - |" in page
    assert "DeltaNet (published) 2" in page


def test_docs_hold_what_the_committed_records_give() -> None:
    page = chapter("ARCHITECTURE_COMPARISON.md", PaperRuns(RunStore(ROOT / "results" / "paper"), "small"))
    assert_same_text(page, (ROOT / "docs" / "ARCHITECTURE_COMPARISON.md").read_text(encoding="utf-8"), "make report")


def test_figures_are_drawn_from_a_few_runs_and_refused_without_any(some: PaperRuns, tmp_path: Path) -> None:
    drawn = {
        name: paper_figures()[name].draw(some)
        for name in ("architectures", "architectures-parameters", "architectures-repeated")
    }
    panels = [ax for ax in drawn["architectures"].axes if ax.get_title()]
    assert panels[0].get_title() == "$V=512$, $N_f=16$\n$D=32$, $N=8$"
    assert len(panels) == len(CELLS)
    assert panels[0].get_yticklabels()[0].get_text() == "MesaNet", "the best gain is on top"
    assert [label.get_text() for label in drawn["architectures-repeated"].axes[0].get_yticklabels()] == [
        "linear Mamba", "GLA", "DeltaNet", "MesaNet"
    ]  # fmt: skip
    for runs in (some, PaperRuns(RunStore(tmp_path / "empty", create=True), "small")):
        with pytest.raises(NoRunsError, match="recallscope reproduce architectures"):
            paper_figures()["architectures-age"].draw(runs)


def test_ages_are_read_once_measured_and_models_without_weights_are_left_out(tmp_path: Path) -> None:
    runs = fill(tmp_path / "store", "quick", {label_of("by age", variant) for variant in VARIANTS}, designed=False)
    assert {label: round(age_gap(places), 3) for label, places in ages(runs).items()} == {
        "linear Mamba": 0.3, "DeltaNet": 0.3
    }  # fmt: skip
    (record,) = runs.records(label_of("by age", MINIMAL[0]))
    runs.keep_inside(AGES, {run: seen for run, seen in runs.inside(AGES).items() if run != record.run})
    measure_ages(runs)  # there are no weights to read
    assert list(ages(runs)) == ["DeltaNet"]
    model = build_model(record.spec.model, record.spec.task.vocab_size, torch.Generator().manual_seed(0))
    write_weights(runs.store.folder(record.run) / WEIGHTS, model, record.spec.task)
    measure_ages(runs)
    assert len(ages(runs)["linear Mamba"]) == record.spec.task.num_facts
