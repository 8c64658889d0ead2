"""Longer: four times the zoo's steps in the zoo's own cells, and the rate that counts is chosen by validation."""

from pathlib import Path

import pytest
from made_up import fill

from recallscope.paper.experiments.fresh_cells import FORMS
from recallscope.paper.experiments.longer import TRIED, chosen_rate, longer, name_of
from recallscope.paper.experiments.zoo import zoo
from recallscope.paper.zoo_forms import label_of


def test_runs_are_those_of_the_zoo_but_for_steps_rate_and_seeds() -> None:
    of_zoo = {part.label: part for part in zoo.parts("small")}
    for part in longer.parts("small"):
        (form,) = (form for form in FORMS if part.label.endswith(f", {form.label}"))
        like = {(cell.spec.task, cell.spec.model) for cell in of_zoo[label_of("recall", form)].cells}
        assert {(cell.spec.task, cell.spec.model) for cell in part.cells} == like
        (before,) = {cell.spec.train.total_steps for cell in of_zoo[label_of("recall", form)].cells}
        assert {cell.spec.train.total_steps for cell in part.cells} == {4 * before}


def test_a_form_counts_when_both_rates_have_run(tmp_path: Path) -> None:
    """Runs as `unified-mv` has them are far from the laws of these memories."""
    form, *_ = FORMS
    half = fill(tmp_path / "half", "quick", [label_of(name_of(TRIED[0]), form)], designed=False, inside=False)
    assert chosen_rate(half, form) is None
    (empty,) = longer.find(half)
    assert empty.verdict == "not tested"
    labels = [label_of(name_of(rate), form) for rate in TRIED]
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

    assert chosen_rate(Runs(), FORMS[0]) == best  # type: ignore[arg-type]
