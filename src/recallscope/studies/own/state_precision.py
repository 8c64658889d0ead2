"""State precision, our own experiment: what do few bits per state entry cost, and did the law say so?

Every minimal memory of the architecture comparison, one run each with its weights kept, is evaluated with its state
rounded after every token. The law is fed with the unrounded model, on the same sequences. `results/theory` has the same
with predictions committed before the measurement, for more sizes, and the Monte Carlo of random codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recallscope.state_precision import StatePrecision
from recallscope.studies.architecture_variants import COMPARISON, MINIMAL, NEW, QUARTER, Variant
from recallscope.studies.claims import Finding, by_conditions, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import PaperRuns, sheet, source_line
from recallscope.theory.laws.precision import absmax_square, bits_needed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = tuple(one for one in MINIMAL if one.label != "attention" and one not in NEW)  # it keeps all keys and values
QUICK = tuple(variant for variant in VARIANTS if variant.label in ("linear Mamba", "DeltaNet"))
TINY = {"vocab_size": 64, "num_facts": 4}
SEQUENCES, SEED = 128, 1
STORED = "stored"  # what `PaperRuns.inside` keeps
ONCE, NEAREST, COARSE, STOCHASTIC, FLOATS, CHUNKS = (
    "once and error feedback", "nearest, 5 to 8 bits", "nearest, 3 and 4 bits", "stochastic", "floats",
    "every 8 tokens",
)  # fmt: skip
FORMATS = {
    "int8 nearest": (NEAREST, StatePrecision.of("int8", "tensor")),
    "int6 nearest": (NEAREST, StatePrecision.of("int6", "tensor")),
    "int5 nearest": (NEAREST, StatePrecision.of("int5", "tensor")),
    "int4 nearest": (COARSE, StatePrecision.of("int4", "tensor")),
    "int3 nearest": (COARSE, StatePrecision.of("int3", "tensor")),
    "int5 stochastic": (STOCHASTIC, StatePrecision.of("int5", "tensor", rounding="stochastic")),
    "int4 stochastic, rows": (STOCHASTIC, StatePrecision.of("int4", "row", rounding="stochastic")),
    "int3 once": (ONCE, StatePrecision.of("int3", "tensor", every="once")),
    "int3 error feedback": (ONCE, StatePrecision.of("int3", "tensor", rounding="error-feedback")),
    "int4, every 8 tokens": (CHUNKS, StatePrecision.of("int4", "tensor", every=8)),
    "bf16": (FLOATS, StatePrecision.of("bf16")),
    "e4m3": (FLOATS, StatePrecision.of("fp8-e4m3")),
    "e5m2": (FLOATS, StatePrecision.of("fp8-e5m2")),
    "e5m2 stochastic": (FLOATS, StatePrecision.of("fp8-e5m2", rounding="stochastic")),
}
WANTED = {ONCE: 0.01, NEAREST: 0.015, COARSE: 0.015, STOCHASTIC: 0.015, FLOATS: 0.015, CHUNKS: 0.015}  # mean error
QUESTIONS = {
    ONCE: "One rounding, or error feedback: does the law hold on trained models?",
    NEAREST: "Rounded to the nearest after every token, in 5 to 8 bits?",
    COARSE: "And in 3 and 4 bits, where writes fall into the dead zone?",
    STOCHASTIC: "Rounded at random?",
    FLOATS: "Stored as bf16 or fp8?",
    CHUNKS: "Rounded every 8 tokens?",
}


def label_of(variant: Variant) -> str:
    """How parts are named."""
    return f"state precision, {variant.label}"


@experiment("state-precision", "our own: bits of a state entry, law beside measurement")
def state_precision(scale: Scale) -> Iterator[Part]:
    """One run of every variant with a state, its weights kept: the ones of the architecture comparison."""
    variants, sizes, task, train, cut = (
        (QUICK, (16, 4), TINY, QUARTER | {"eval_size": 500}, "tiny task") if scale == "quick"
        else (VARIANTS, (16, 16), {}, {}, "")
    )  # fmt: skip
    for variant in variants:
        model = variant.fields | dict(zip(("embed_dim", "state_dim"), sizes, strict=True))
        rate = {} if scale == "quick" else {"learning_rate": variant.rate}
        seeds = range(5 if scale == "paper" else 1)
        yield part(label_of(variant), COMPARISON, task=task, model=model, train=train | rate, axes={"seed": seeds},
                   keep_weights=True, cut=cut)  # fmt: skip


@state_precision.after_runs
def measure_formats(runs: PaperRuns) -> None:
    """Predicted and measured recall in every format, of every model that was not asked before."""
    runs.measure_inside(STORED, map(label_of, VARIANTS), measured_formats)


def measured_formats(weights: Path) -> dict[str, Any]:
    """Exact, predicted and measured recall, and what the law needs of every head."""
    from dataclasses import asdict

    import torch

    from recallscope.architectures.stored_state import StoredState
    from recallscope.interp.stored_states import measure_heads
    from recallscope.measuring.stored_states import predicted_recall
    from recallscope.tasks.drawing import sample_batch
    from recallscope.train.evaluate import evaluate
    from recallscope.train.weights import read_weights

    model, task = read_weights(weights)
    batch = sample_batch(task, SEQUENCES, torch.Generator().manual_seed(SEED))
    formats = {}
    for name, (_, precision) in FORMATS.items():
        score = evaluate(StoredState(model, precision, seed=SEED), task, SEQUENCES, SEED)
        predicted = predicted_recall(model, task, precision, SEQUENCES, SEED)
        formats[name] = {"predicted": predicted, "measured": score.accuracy, "standard_error": score.standard_error}
    return {
        "sequences": SEQUENCES,
        "exact": evaluate(model, task, SEQUENCES, SEED).accuracy,
        "formats": formats,
        "heads": [asdict(head) for head in measure_heads(model, batch, scale="tensor")],
    }


class Row(NamedTuple):
    """One model in one format."""

    variant: str
    format: str
    exact: float
    predicted: float
    measured: float


def stored(runs: PaperRuns) -> dict[str, dict[str, Any]]:
    """What was measured, by variant; the first run of each."""
    kept = runs.inside(STORED)
    return {
        variant.label: kept[record.run]
        for variant in VARIANTS
        for record in runs.records(label_of(variant))[:1]
        if record.run in kept
    }


def rows_of(runs: PaperRuns) -> list[Row]:
    """Every model in every format."""
    return [
        Row(variant, name, kept["exact"], one["predicted"], one["measured"])
        for variant, kept in stored(runs).items()
        for name, one in kept["formats"].items()
    ]


@state_precision.findings
def law_beside_measurement(runs: PaperRuns) -> Iterator[Finding]:
    """Every kind of rounding, then the dead zone."""
    rows, missing = rows_of(runs), runs.missing(*map(label_of, VARIANTS))
    for group, question in QUESTIONS.items():
        here = [row for row in rows if FORMATS[row.format][0] == group]
        check = own_check(question)
        if not here:
            yield check.untested("not measured yet", missing)
            continue
        off = np.array([row.predicted - row.measured for row in here])
        worst = here[int(np.abs(off).argmax())]
        yield check.answer(
            f"mean absolute error {np.abs(off).mean():.3f}, at most {np.abs(off).max():.3f}, bias {off.mean():+.3f}",
            by_distance("mean absolute error", float(np.abs(off).mean()), WANTED[group], 3 * WANTED[group]),
            f"{len(here)} rows, {SEQUENCES} sequences each; predicted minus measured; worst: {worst.variant}, "
            f"{worst.format}, exact {worst.exact:.3f}, predicted {worst.predicted:.3f}, measured {worst.measured:.3f}",
            missing,
        )
    helped = [row for row in rows if row.measured > row.exact + 0.03]
    if rows:
        yield own_check("Can a coarse state recall more than the exact one?").answer(
            "; ".join(f"{row.variant} {row.exact:.3f} to {row.measured:.3f} in {row.format}" for row in helped)
            or "no model gains more than 0.03",
            by_conditions(bool(helped), False, "holds: some model gains more than 0.03"),
            "a state that is rounded to the nearest stops fading where the loss of a token is less than half a step: "
            "higher recall is no proof that the state is kept faithfully",
            missing,
        )


@state_precision.figure("state-precision", "ours: bits against tokens, and recall with rounded states")
def state_precision_figure(runs: PaperRuns) -> Figure:
    """Bits by the law with the heads of trained models, and predicted against measured recall."""
    from recallscope.figures.style import BLUE, GREEN, ORANGE, PAGE, PURPLE, SKY, VERMILION

    text = source_line(runs, state_precision.name, [label_of(variant) for variant in VARIANTS])
    with sheet(PAGE, 3.2, f"{text}; {SEQUENCES} sequences per point") as figure:
        left, right = figure.subplots(1, 2)
        writes = np.geomspace(1, 65536, 200)
        for (name, numbers), colour in zip(
            {"a head of 128 x 128": 128 * 128, "a row of 128": 128, "16 neighbours": 16}.items(),
            (VERMILION, BLUE, GREEN), strict=True,
        ):  # fmt: skip
            bits = [bits_needed(T, absmax_square(numbers) ** 0.5) for T in writes]
            left.step(writes, bits, where="post", color=colour, label=f"scale per {name}")
        kept = stored(runs)
        counted = [(one["heads"][0]["roundings"], fewest) for one in kept.values() if (fewest := fewest_bits(one))]
        if counted:
            left.plot(*zip(*counted, strict=True), "ko", ms=3.5, label="trained, measured")
        left.set(xscale="log", xlabel="roundings whose noise is in the state", ylabel="bits for a loss of 0.01")
        left.legend()
        rows = rows_of(runs)
        for group, colour in zip(QUESTIONS, (BLUE, GREEN, VERMILION, PURPLE, ORANGE, SKY), strict=True):
            here = [row for row in rows if FORMATS[row.format][0] == group]
            right.plot(
                [row.predicted for row in here], [row.measured for row in here], "o", ms=3, color=colour, label=group
            )
        right.plot([0, 1], [0, 1], color="0.6", lw=0.7)
        right.set(xlabel="predicted recall", ylabel="measured recall")
        right.legend()
    return figure


def fewest_bits(kept: dict[str, Any]) -> int | None:
    """Of integers to the nearest: the fewest that lost at most 0.01; None if all that were measured lost more."""
    tried = {8: "int8 nearest", 6: "int6 nearest", 5: "int5 nearest", 4: "int4 nearest", 3: "int3 nearest"}
    enough = [bits for bits, name in tried.items() if kept["exact"] - kept["formats"][name]["measured"] <= 0.01]
    return min(enough, default=None)
