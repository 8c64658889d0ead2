"""Large vocabularies: how fast recall falls with m_V, measured, printed and by our law.

Paper: App. A.2 (`app-subsec:large-vocab`), Fig. 11 (`app-fig:large-vocab`), Fig. 12 (`app-fig:large-vocab-curves`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import ndtri, stdtrit

from recallscope.analysis.accuracy_grid import planned_grid
from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.seed_noise import Ends, interval
from recallscope.analysis.table import accuracies, cells_of
from recallscope.presets import Preset
from recallscope.studies.claims import Check, Finding, by_conditions, by_distance, own_check, within
from recallscope.studies.dn_parts import VOCABULARIES
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import mae
from recallscope.studies.paper_runs import Caption, PaperRuns, sheet, source_line, span
from recallscope.theory.extremes import typical_max
from recallscope.theory.law import find_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGE_VOCAB = Preset(
    "long contexts, large vocabularies (Fig. 11)",
    {"kind": "mqar", "vocab_size": 10_000, "num_facts": 250},
    {"kind": "linear_mamba", "embed_dim": 150, "state_dim": 75},
    {
        "batch_size": 5, "accumulate": 4, "learning_rate": 0.003, "warmup_steps": 500, "flat_steps": 3500,
        "decay_steps": 8000, "clip_norm": 2.5, "stop_accuracy": 0.999, "eval_every": 1000,
    },
)  # fmt: skip
FEWEST = 2  # points of a line
PUBLISHED = 1.18, 1.56  # slopes in the caption of Fig. 12


@experiment(
    "large-vocab", "V-L grid, and slopes against m_V", claims=("fig-11", "fig-12"), presets={"large-vocab": LARGE_VOCAB}
)
def large_vocab(scale: Scale) -> Iterator[Part]:
    """One grid over V and N_f; L follows from N_f."""
    if scale == "quick":
        yield part(
            VOCABULARIES, LARGE_VOCAB, model={"embed_dim": 16, "state_dim": 8},
            train={
                "batch_size": 20, "accumulate": 1, "learning_rate": 0.01, "warmup_steps": 100, "flat_steps": 400,
                "decay_steps": 500, "eval_size": 1000, "eval_every": 500,
            },
            axes={"vocab_size": [128, 256, 512], "num_facts": [8, 16], "seed": [0]}, cut="tiny",
        )  # fmt: skip
    if scale == "small":
        yield part(
            VOCABULARIES, LARGE_VOCAB, model={"embed_dim": 32, "state_dim": 16},
            train={
                "batch_size": 20, "accumulate": 1, "warmup_steps": 100, "flat_steps": 1400, "decay_steps": 2500,
                "eval_size": 1000,
            },
            axes={"vocab_size": [512, 1024, 2048, 4096], "num_facts": [16, 32, 64], "seed": [0]},
            cut="scaled down to D = 32, N = 16, L = 64 .. 256, V = 512 .. 4096, 4000 steps",
        )  # fmt: skip
    if scale == "paper":
        V = [2 * round(500 * 50 ** (i / 9)) for i in range(10)]
        axes = {"vocab_size": V, "num_facts": [250, 500, 750, 1000], "seed": [0]}
        yield part(VOCABULARIES, LARGE_VOCAB, axes=axes, skip=["num_facts >= vocab_size / 2"])  # more facts than keys


@dataclass(frozen=True, eq=False)
class VocabularySlope:
    """One length: Phi^-1(p) = intercept - slope m_V by least squares; the law says slope 1.

    Cells with accuracy 0 or 1 have no normal inverse: they are in `accuracy`, and nan in `normal_inverse`.
    """

    length: int
    vocab_sizes: NDArray[np.int64]
    accuracy: NDArray[np.float64]
    typical_max: NDArray[np.float64]  # m_V
    normal_inverse: NDArray[np.float64]
    slope: float  # nan with fewer than two points
    slope_error: float  # standard error; nan with fewer than three
    intercept: float

    @property
    def interval(self) -> Ends:
        """95% interval of the slope by the scatter around its line; nan with fewer than three points."""
        half = float(stdtrit(max(int((~np.isnan(self.normal_inverse)).sum()) - 2, 1), 0.975)) * self.slope_error
        return self.slope - half, self.slope + half


def vocabulary_slopes(rows: DataFrame) -> list[VocabularySlope]:
    """The mean of seeds per V and L, and a line for each L.

    Paper: Rem 4.3 (`rem:practical-scaling-law`) with m_V of Eq. label `app-eq:m-V`.
    """
    found = []
    for L, cells in cells_of(rows, ("vocab_size", "length")).sort_values("vocab_size").groupby("length"):
        V, p = cells["vocab_size"].to_numpy(int), accuracies(cells)
        m = np.asarray(typical_max(V))
        z = np.where((p > 0) & (p < 1), ndtri(p), np.nan)
        found.append(VocabularySlope(int(L), V, p, m, z, *_line(m, z)))
    return found


def _line(m: NDArray[np.float64], z: NDArray[np.float64]) -> tuple[float, float, float]:
    """Slope (falling is positive), its standard error, and intercept."""
    m, z = m[~np.isnan(z)], z[~np.isnan(z)]
    if len(m) < FEWEST:
        return np.nan, np.nan, np.nan
    from scipy.stats import linregress  # a second of imports

    line = linregress(m, z)
    return -float(line.slope), float(line.stderr) if len(m) > FEWEST else np.nan, float(line.intercept)


def as_predicted(rows: DataFrame, law: str) -> DataFrame:
    """The same cells with a law's prediction in the place of the measurement."""
    return rows.assign(test_accuracy=law_on_cells(find_law(law), rows))


@large_vocab.findings
def vocabulary_findings(runs: PaperRuns) -> Iterator[Finding]:
    """Slopes per length, measured and by our law; then the accuracies themselves."""
    text = f"{PUBLISHED[0]} to {PUBLISHED[1]}, where the approximate law predicts 1"
    slope_check = Check("fig-12", "Slope of Phi^-1(accuracy) against m_V, per length", text, "fig-12")
    grid_check = Check(
        "fig-11", "Accuracy over V and L against Rem 4.3", "aligned with the scaling law in m_V", "fig-11"
    )
    own = own_check("Does trained-sharing explain the slopes against m_V?", "fig-12")
    rows, missing = runs.rows(VOCABULARIES), runs.missing(VOCABULARIES)
    slopes = [line for line in vocabulary_slopes(rows) if line.slope == line.slope]
    if not slopes:
        yield from (check.untested("no length has two vocabularies done") for check in (slope_check, grid_check, own))
        return
    evidence = (
        f"{len(rows)} runs, one seed; {runs.parts[VOCABULARIES].cut or 'as published'}; 95% intervals of the lines"
    )
    by_law = {line.length: line.slope for line in vocabulary_slopes(as_predicted(rows, "trained-sharing"))}
    meets = [line.interval[0] <= PUBLISHED[1] and line.interval[1] >= PUBLISHED[0] for line in slopes]
    steep = [line.interval[0] > 1.05 for line in slopes]
    yield slope_check.answer(
        ", ".join(f"{one.slope:.2f} {interval(*one.interval)} at L = {one.length}" for one in slopes),
        by_conditions(
            all(meets),
            any(meets) or all(steep),
            f"holds: every interval meets the published range {PUBLISHED[0]} to {PUBLISHED[1]}; approximately: some, "
            "or all lie above 1.05",
        ),
        evidence,
        missing,
    )
    inside = [within(by_law[line.length], line.interval) for line in slopes]
    yield own.answer(
        ", ".join(f"{by_law[one.length]:.2f} where {one.slope:.2f} is measured, at L = {one.length}" for one in slopes),
        by_conditions(all(inside), False, "holds: within the interval of every measured slope"),
        evidence,
        missing,
    )
    cells = cells_of(rows)
    laws = {"Rem 4.3 with m_V": "unified-mv", "as printed": "unified", "ours": "trained-sharing"}
    off = {name: accuracies(cells) - law_on_cells(find_law(law), cells) for name, law in laws.items()}
    yield grid_check.answer(
        "mean absolute error: " + "; ".join(f"{name} {mae(errors)}" for name, errors in off.items()),
        by_distance("mean absolute error with m_V", float(np.abs(off["Rem 4.3 with m_V"]).mean()), 0.02, 0.06),
        f"{evidence}; {len(cells)} settings. The paper's own sizes need a GPU",
        missing,
    )


@large_vocab.law_cells
def all_cells(runs: PaperRuns) -> dict[str, DataFrame]:
    """All runs as one group."""
    return {"large V": runs.rows(VOCABULARIES)}


@large_vocab.figure("fig-11", "large vocabularies: V-L grid")
def large_vocab_figure(runs: PaperRuns) -> Figure:
    """Accuracy over V and L.   Paper: Fig. 11 (`app-fig:large-vocab`)."""
    from recallscope.figures.accuracy_panels import draw_bar, draw_grid
    from recallscope.figures.style import PAGE

    text = source_line(runs, large_vocab.name, (VOCABULARIES,))
    rows = runs.rows(VOCABULARIES)
    grid = planned_grid(runs.parts[VOCABULARIES].grid, rows, ("vocab_size", "length"))
    slopes = vocabulary_slopes(rows)
    lost = [float(slope.accuracy[0] - slope.accuracy[-1]) for slope in slopes if len(slope.accuracy) > 1]
    caption = Caption(
        f"From the smallest to the largest vocabulary, accuracy falls by {span(lost)}" if lost else "",
        "accuracy over vocabulary size and length",
        "one seed",
        text,
    )
    with sheet(0.75 * PAGE, 2.8, caption) as figure:
        ax = figure.subplots()
        title = f"linear, $D={grid.shared['embed_dim']}$, $N={grid.shared['state_dim']}$, $N_f=L/4$"
        draw_grid(grid, ax, title=title, box_aspect=None)
        draw_bar(figure, [ax])
    return figure


@large_vocab.figure("fig-12", "large vocabularies: curves and slopes")
def vocab_curves_figure(runs: PaperRuns) -> Figure:
    """Accuracy against V, and its normal inverse against m_V.   Paper: Fig. 12 (`app-fig:large-vocab-curves`)."""
    from recallscope.figures.style import PAGE

    text = source_line(runs, large_vocab.name, (VOCABULARIES,))
    slopes = vocabulary_slopes(runs.rows(VOCABULARIES))
    found = [slope.slope for slope in slopes if slope.slope == slope.slope]
    caption = Caption(
        f"Accuracy falls faster with V than Rem 4.3 predicts: the slope against $m_V$ is {span(found)}, not 1"
        if found and min(found) > 1.05
        else f"The slope against $m_V$ is {span(found)}; Rem 4.3 predicts 1"
        if found
        else "",
        "left: accuracy; right: its normal inverse, with a fitted line for each length",
        "one seed; ± is the standard error of the slope",
        text,
    )
    with sheet(PAGE, 2.9, caption) as figure:
        left, right = figure.subplots(1, 2)
        _draw_vocabularies(slopes, left)
        _draw_slopes(slopes, right)
    return figure


def _draw_vocabularies(slopes: Sequence[VocabularySlope], ax: Axes) -> None:
    """Accuracy against V, a line per length."""
    from recallscope.figures.accuracy_panels import MARKERS, shades

    for place, (slope, colour) in enumerate(zip(slopes, shades(len(slopes)), strict=True)):
        marker = f"{MARKERS[place % len(MARKERS)]}-"
        ax.plot(slope.vocab_sizes, slope.accuracy, marker, color=colour, label=f"$L={slope.length}$")
    ax.set_xscale("log")
    sizes = sorted({int(V) for slope in slopes for V in slope.vocab_sizes})
    step = -(-len(sizes) // 6)
    ax.set_xticks(sizes[::step], [str(V) for V in sizes[::step]])
    ax.set_xticks([], minor=True)
    ax.set(title="Accuracy", xlabel="vocabulary $V$", ylabel="accuracy", ylim=(-0.03, 1.03))
    ax.legend()


def _draw_slopes(slopes: Sequence[VocabularySlope], ax: Axes) -> None:
    """Phi^-1 of accuracy against m_V, with a line per length whose slope is in the legend."""
    from recallscope.figures.accuracy_panels import MARKERS, shades
    from recallscope.figures.style import GUESS

    for place, (slope, colour) in enumerate(zip(slopes, shades(len(slopes)), strict=True)):
        error = f" ± {slope.slope_error:.2f}" if slope.slope_error == slope.slope_error else ""
        fitted = f": slope {slope.slope:.2f}{error}" if slope.slope == slope.slope else ": no line"
        marker, label = MARKERS[place % len(MARKERS)], f"$L={slope.length}${fitted}"
        ax.plot(slope.typical_max, slope.normal_inverse, marker, color=colour, label=label)
        ends = np.array([slope.typical_max.min(), slope.typical_max.max()])
        ax.plot(ends, slope.intercept - slope.slope * ends, color=GUESS, lw=1, zorder=0)
    ax.set(title="Its normal inverse", xlabel="$m_V$", ylabel=r"$\Phi^{-1}$(accuracy)")
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.1 * (len(slopes) + 1) * (high - low), high)  # room for the legend below the points
    ax.legend(title="predicted slope: 1", title_fontsize=7, loc="lower left", labelspacing=0.3)
