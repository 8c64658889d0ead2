"""Longer: four times the steps in the cells of the architecture comparison; the rate is chosen by validation."""

import re
from pathlib import Path

import numpy as np
import pytest
from made_up import fill

from closeness import assert_same_text
from recallscope.runs.store import RunStore
from recallscope.studies.architecture_variants import WITH_LAWS as VARIANTS
from recallscope.studies.architecture_variants import label_of, law_errors
from recallscope.studies.own.architectures import CELLS, architectures
from recallscope.studies.own.longer import TRIED, chosen_rate, longer, name_of
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.report import TABLES

STORE = Path(__file__).resolve().parents[3] / "results" / "paper"


def test_runs_are_those_of_the_comparison_but_for_steps_rate_and_seeds() -> None:
    of_comparison = {part.label: part for part in architectures.parts("small")}
    for part in longer.parts("small"):
        (variant,) = (variant for variant in VARIANTS if part.label.endswith(f", {variant.label}"))
        like = {(cell.spec.task, cell.spec.model) for cell in of_comparison[label_of("recall", variant)].cells}
        assert {(cell.spec.task, cell.spec.model) for cell in part.cells} == like
        (before,) = {cell.spec.train.total_steps for cell in of_comparison[label_of("recall", variant)].cells}
        assert {cell.spec.train.total_steps for cell in part.cells} == {4 * before}


def test_a_form_counts_when_both_rates_have_run(tmp_path: Path) -> None:
    """Runs as `unified-mv` has them are far from the laws of these memories."""
    variant, *_ = VARIANTS
    half = fill(tmp_path / "half", "quick", [label_of(name_of(TRIED[0]), variant)], designed=False, inside=False)
    assert chosen_rate(half, variant) is None
    (empty,) = longer.find(half)
    assert empty.verdict == "not tested"
    labels = [label_of(name_of(rate), variant) for rate in TRIED]
    runs = fill(tmp_path / "one", "quick", labels, designed=False, inside=False)
    (found,) = longer.find(runs)
    assert found.question.split()[3] == "gated"
    assert found.verdict == "does not hold"


@pytest.mark.parametrize("best", TRIED)
def test_the_rate_is_the_one_with_the_better_validation(best: float) -> None:
    class Runs:
        def records(self, label: str) -> list[object]:
            value = 0.9 if f"rate {best:g}," in label else 0.8
            return [type("Record", (), {"val_accuracy": value})]

    assert chosen_rate(Runs(), VARIANTS[0]) == best  # type: ignore[arg-type]


def test_the_committed_runs_are_as_near_their_laws_as_the_support_lines_say() -> None:
    runs = PaperRuns(RunStore(STORE), "small")
    admitted = {"mLSTM": (0.0105, 0.03), "DeltaNet": (0.005, 0.015), "Gated DeltaNet": (0.005, 0.015)}
    admitted |= {"MesaNet": (0.006, 0.025)}
    for variant in VARIANTS:
        rate = chosen_rate(runs, variant)
        ((errors,),) = (variants.values() for variants in law_errors(runs, name_of(rate), [variant]).values())
        mean, largest = admitted[variant.label]
        assert len(errors) == len(CELLS)
        assert np.abs(errors).mean() <= mean
        assert np.abs(errors).max() <= largest


def test_the_page_on_laws_gives_these_errors() -> None:
    runs = PaperRuns(RunStore(STORE), "small")

    def error(what: str, label: str) -> float:
        (variant,) = (variant for variant in VARIANTS if variant.label == label)
        name = name_of(chosen_rate(runs, variant) or 0) if what == "longer" else what
        (variants,) = law_errors(runs, name, [variant]).values()
        return float(np.abs(variants[variant]).mean())

    page = " ".join((STORE.parents[1] / "docs" / "LAWS.md").read_text(encoding="utf-8").split())
    sentences = {
        r"Gated DeltaNet is on average ([.\d]+) below its law": [error("recall", "Gated DeltaNet")],
        r"after 8000 steps the error is ([.\d]+) ": [error("longer", "Gated DeltaNet")],
        r"That of mLSTM stays at ([.\d]+):": [error("longer", "mLSTM")],
    }
    for sentence, errors in sentences.items():
        said = re.search(sentence, page)
        assert said, sentence
        assert [float(number) for number in said.groups()] == pytest.approx(errors, abs=6e-4), sentence


def test_the_table_of_blind_tests_is_what_the_records_give() -> None:
    page = (STORE.parents[1] / "docs" / "LAWS.md").read_text(encoding="utf-8")
    table = page.split("<!-- blind -->")[1].split("<!-- /blind -->")[0]
    assert_same_text(
        "\n".join(TABLES["blind"](PaperRuns(RunStore(STORE), "small"), page)), table.strip(), "make report"
    )
