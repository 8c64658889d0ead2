"""Longer, our own experiment: does a memory that misses its law reach it with four times the steps?

The architecture comparison trains every variant for 2000 steps, at the rate that a short search preferred. A law
predicts what a trained memory can reach, not how soon. Here the same cells get 8000 steps at each of two rates, the
same for every variant; which rate counts is decided by the validation accuracy. It was asked after the comparison had
shown which variants miss, so it explains its figures and does not replace them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from recallscope.studies.architecture_variants import (
    CELLS,
    COMPARISON,
    QUARTER,
    TINY,
    WITH_LAWS,
    Variant,
    label_of,
    law_errors,
    law_finding,
    mean_error,
    measured,
)
from recallscope.studies.claims import Finding, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS

TRIED = (0.01, 0.003)
STEPS = {"flat_steps": 1900, "decay_steps": 6000}  # with 100 of warm-up, four times the architecture comparison's
Errors = Mapping[str, Mapping[Variant, NDArray[np.float64]]]


def name_of(rate: float) -> str:
    """What is asked, as `label_of` takes it."""
    return f"longer at rate {rate:g}"


@experiment("longer", "our own: the architecture comparison after four times the steps", reads=("architectures",))
def longer(scale: Scale) -> Iterator[Part]:
    """Every variant at both rates; one seed at the small scale."""
    cells, train, cut = (TINY, QUARTER, "tiny task") if scale == "quick" else (CELLS, STEPS, "")
    for variant in WITH_LAWS:
        for rate in TRIED:
            yield part(
                label_of(name_of(rate), variant),
                COMPARISON,
                model=variant.fields,
                train=train | {"learning_rate": rate},
                axes={"seed": range(5 if scale == "paper" else 1)},
                zipped=dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True)),
                cut=cut,
            )


def chosen_rate(runs: PaperRuns, variant: Variant) -> float | None:
    """The rate with the better validation accuracy over the cells; None until both have run."""
    validated = {
        rate: [record.val_accuracy for record in runs.records(label_of(name_of(rate), variant))] for rate in TRIED
    }
    if len({len(seen) for seen in validated.values()}) > 1 or not all(validated.values()):
        return None
    return max(TRIED, key=lambda rate: float(np.mean(validated[rate])))


@longer.findings
def after_longer(runs: PaperRuns) -> Iterator[Finding]:
    """How far every variant is from its law now, at either rate, and in the comparison."""
    missing = runs.missing(*(label_of(name_of(rate), variant) for variant in WITH_LAWS for rate in TRIED))
    rates = {variant: rate for variant in WITH_LAWS if (rate := chosen_rate(runs, variant))}
    if not rates:
        yield own_check("Do laws hold after four times the steps?").untested("no runs yet", missing)
    by_rate = {rate: law_errors(runs, name_of(rate), list(rates)) for rate in TRIED}
    comparison = law_errors(runs, "recall", WITH_LAWS)

    def told(law: str, one: Variant) -> str:
        """The error at the chosen rate, and in brackets at the other and in the comparison."""
        others = [f"{mean_error(by_rate[rate], law, one)} at {rate:g}" for rate in TRIED if rate != rates[one]]
        if before := mean_error(comparison, law, one):
            others.append(f"comparison {before} at {one.rate:g}")
        return f"{mean_error(by_rate[rates[one]], law, one)} at rate {rates[one]:g} ({', '.join(others)})"

    for law, variants in by_rate[TRIED[0]].items():
        yield law_finding(
            own_check(f"Does the law {law} hold after four times the steps?"),
            law,
            {one: by_rate[rates[one]][law][one] for one in variants},
            told,
            "of the architecture comparison, 8000 instead of 2000 steps, L = 4 N_f, measured minus predicted; rate by "
            "validation accuracy",
            missing,
        )


def recipe_effect(runs: PaperRuns, page: str = "") -> list[str]:
    """How far two delta rules are apart in the comparison, and after four times the steps."""
    pair = [variant for variant in WITH_LAWS if variant.label in ("DeltaNet", "Gated DeltaNet")]
    here = [measured(runs, "recall", variant) for variant in pair]
    longer = [measured(runs, name_of(rate), v) for v in pair if (rate := chosen_rate(runs, v))]
    if len(longer) < 2 or not all(here):
        return []
    gaps = [[p[cell].mean - q[cell].mean for cell in p if cell in q] for p, q in (here, longer)]
    return [
        f"{pair[1].label}, whose learning rate was chosen by an early loss, is on average {np.mean(gaps[0]):.3f} below "
        f"{pair[0].label} here, but within {np.abs(gaps[1]).max():.3f} of it in every setting after four times the "
        "steps."
    ]
