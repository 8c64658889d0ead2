"""Keys written several times: one layer guesses, depth overwrites.

Paper: App. I.2 (`app-subsec:repeated-keys-queries`), Fig. 18 (`fig:mqar-keys`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid, planned_grid
from recallscope.analysis.table import seeds_by
from recallscope.presets import Preset
from recallscope.studies.claims import Check, Finding, by_conditions, by_distance
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import Caption, PaperRuns, sheet, source_line, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REPEATED_KEYS = Preset(
    "keys written N_k times (Fig. 18)",
    {"kind": "repeated", "vocab_size": 512, "num_facts": 10, "length": 128, "key_repeats": 2},
    {"kind": "linear_mamba", "embed_dim": 100, "state_dim": 30, "num_layers": 2, "residual": True},
    {
        "batch_size": 32, "learning_rate": 0.003, "weight_decay": 0.1, "warmup_steps": 500, "flat_steps": 2000,
        "decay_steps": 5000, "clip_norm": 1.0, "eval_every": 250,
    },
    seeds=3,
)  # fmt: skip
REPEATS = "repeated keys"
AXES = ("num_layers", "key_repeats")
MARKERS = ("o", "s", "^", "D", "v")


@experiment(
    "repeated-keys",
    "keys written N_k times: guessing, and what depth does",
    claims=("fig-18",),
    presets={"repeated-keys": REPEATED_KEYS},
)
def repeated_keys(scale: Scale) -> Iterator[Part]:
    """One grid over depth and repeats; the state of all layers together is held fixed."""
    if scale == "quick":
        yield part(
            REPEATS, REPEATED_KEYS, task={"vocab_size": 64, "num_facts": 4, "length": 32}, model={"embed_dim": 24},
            train={
                "learning_rate": 0.01, "warmup_steps": 100, "flat_steps": 900, "decay_steps": 1000, "eval_size": 1000,
                "eval_every": 500,
            },
            axes={"num_layers": [1, 2], "key_repeats": [1, 2, 3], "seed": [0]},
            derived={"state_dim": "12 / num_layers"}, cut="tiny task",
        )  # fmt: skip
    if scale == "small":
        yield part(
            REPEATS, REPEATED_KEYS, model={"embed_dim": 64}, train={"eval_size": 1000}, axes={"seed": [0]},
            zipped={"num_layers": [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2], "key_repeats": [1, 1, 1, 2, 2, 2, 3, 3, 3, 5, 5]},
            derived={"state_dim": "36 / num_layers"}, cut="D = 64, Lambda N = 36, test sets of 1000",
        )  # fmt: skip
    if scale == "paper":
        axes = {"num_layers": range(1, 6), "key_repeats": range(1, 6), "seed": range(3)}
        yield part(REPEATS, REPEATED_KEYS, axes=axes, derived={"state_dim": "60 / num_layers"})


@repeated_keys.findings
def one_layer(runs: PaperRuns) -> Iterator[Finding]:
    """One layer against 1/N_k."""
    check = Check("fig-18", "One layer guesses among the N_k values", "about 1/N_k", "fig-18")
    single = {N_k: seeds.mean() for (layers, N_k), seeds in seeds_by(runs.rows(REPEATS), *AXES).items() if layers == 1}
    excess = [accuracy - 1 / N_k for N_k, accuracy in single.items() if N_k > 1]
    if not excess:
        yield check.untested("no one-layer run with repeated keys yet")
        return
    text = ", ".join(f"{accuracy:.3f} at N_k = {N_k}" for N_k, accuracy in sorted(single.items()))
    yield check.answer(
        f"{text}; above 1/N_k by {np.mean(excess):+.3f} on average",
        by_distance("largest distance from 1/N_k", max(map(abs, excess)), 0.03, 0.1),
        f"{len(single)} settings, mean of seeds",
        runs.missing(REPEATS),
    )


@repeated_keys.findings
def deeper(runs: PaperRuns) -> Iterator[Finding]:
    """Two layers and more."""
    check = Check("fig-18", "Two layers or more recover the last value", "accuracy recovers with depth", "fig-18")
    deep = {cell: seeds.mean() for cell, seeds in seeds_by(runs.rows(REPEATS), *AXES).items() if min(cell) > 1}
    if not deep:
        yield check.untested("no deeper run with repeated keys yet")
        return
    gains = [accuracy - 1 / N_k for (_, N_k), accuracy in deep.items()]
    yield check.answer(
        ", ".join(f"{accuracy:.3f} at (Lambda, N_k) = {cell}" for cell, accuracy in sorted(deep.items())),
        by_conditions(
            min(deep.values()) >= 0.9,
            min(gains) > 0.2,
            "holds: accuracy of at least 0.9 everywhere; approximately: more than 0.2 above 1/N_k everywhere",
        ),
        f"{len(deep)} settings, mean of seeds",
        runs.missing(REPEATS),
    )


@repeated_keys.figure("fig-18", "repeated keys: depth and repeats")
def repeated_keys_figure(runs: PaperRuns) -> Figure:
    """Accuracy over depth and times a key is written.   Paper: Fig. 18 (`fig:mqar-keys`)."""
    from recallscope.figures.accuracy_panels import draw_bar, draw_grid
    from recallscope.figures.style import PAGE

    text = source_line(runs, repeated_keys.name, (REPEATS,))
    grid = planned_grid(runs.parts[REPEATS].grid, runs.rows(REPEATS), AXES)
    deep = [float(p) for p in grid.measured.query("num_layers > 1 and key_repeats > 1")["test_accuracy"]]
    caption = Caption(
        f"With one layer the model guesses among the key's values; with more, its accuracy is {span(deep)}"
        if deep
        else "",
        "every key is written $N_k$ times and the last value counts; dashed: a guess among its values",
        "one seed; white: not part of the plan",
        text,
    )
    with sheet(PAGE, 2.9, caption) as figure:
        left, right = figure.subplots(1, 2)
        draw_grid(grid, left)
        draw_bar(figure, [left])
        _draw_repeats(grid, right)
    return figure


def _draw_repeats(grid: AccuracyGrid, ax: Axes) -> None:
    """Accuracy against N_k, a line per depth (first axis), with guessing among the N_k values in grey."""
    from recallscope.figures.accuracy_panels import shades
    from recallscope.figures.style import GUESS

    depths, repeats = grid.axes.values()
    N_k = np.array([float(str(value)) for value in repeats])
    ax.plot(N_k, 1 / N_k, color=GUESS, ls="--", lw=1, zorder=3, label="$1/N_k$")
    for row, (depth, colour) in enumerate(zip(depths, shades(len(depths)), strict=True)):
        kept = ~np.isnan(grid.accuracy[row])
        marker = MARKERS[row % len(MARKERS)] + "-"
        ax.plot(N_k[kept], grid.accuracy[row, kept], marker, color=colour, label=rf"$\Lambda={depth}$")
    ax.set(xlabel="times a key is written, $N_k$", ylabel="accuracy", ylim=(-0.03, 1.03), xticks=N_k)
    ax.legend()
