"""Every figure of the paper from made-up runs: what its axes hold, and what it says where runs are missing."""

import re

import numpy as np
import pytest
from made_up import fill
from matplotlib.figure import Figure

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.runs.store import RunStore
from recallscope.studies.circuit_overview import STEPS
from recallscope.studies.claims import CLAIMS
from recallscope.studies.experiment import STUDIES, find_figures, paper_figures
from recallscope.studies.paper_runs import NoRunsError, PaperRuns

FIGURES = paper_figures()


@pytest.fixture(scope="module")
def small(once):
    return PaperRuns(RunStore(once("made-up-small", lambda folder: fill(folder, "small"))), "small")


@pytest.fixture(scope="module")
def quick(once):
    return PaperRuns(RunStore(once("made-up-quick", lambda folder: fill(folder, "quick"))), "quick")


def panels(figure):
    """Axes that are no colour bars."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def tiles(ax):
    return np.ma.filled(ax.images[0].get_array().astype(float), np.nan)


def texts(figure, caption=True):
    """Everything written on a figure, and under it."""
    found = [text.get_text() for ax in figure.axes for text in ax.texts]
    found += [text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()]
    found += [ax.get_title() for ax in figure.axes]
    return "\n".join(found + [text.get_text() for text in figure.texts if caption])


def test_every_figure_of_the_paper_has_a_function_and_an_experiment():
    assert {row.key for row in CLAIMS if row.kind == "figure"} == {
        name for name, figure in FIGURES.items() if name.startswith("fig-")
    }
    for name, figure in FIGURES.items():
        assert figure.experiment is None or figure.experiment in STUDIES
        if name.startswith("fig-") and figure.experiment:
            assert name in STUDIES.find(figure.experiment).claims


def source(figure):
    """The small print: which runs are behind a figure."""
    return " ".join(figure.texts[-1].get_text().split())


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_with_a_line_that_names_its_runs(name, quick):
    figure = FIGURES[name].draw(quick)
    assert isinstance(figure, Figure)
    if FIGURES[name].experiment:
        assert re.search(r"\d+ runs,(?: \d+ circuits,)? scale quick, from", source(figure))


def test_fig_1_has_hand_constructed_two_laws_linear_and_full_for_two_regimes(small):
    axes = panels(FIGURES["fig-1"].draw(small))
    assert len(axes) == 10
    assert [ax.get_title().split("\n")[0] for ax in axes[:5]] == [
        "(a) hand-constructed",
        "(b) paper's law, Thm 4.2",
        "our law, trained-sharing",
        "(c) trained, linear",
        "(d) trained, full",
    ]
    errors = [float(ax.get_title().split("MAE ")[1]) for row in (axes[1:3], axes[6:8]) for ax in row]
    assert min(errors) > 0  # the made-up runs follow neither of the two laws
    assert "V=1024" in axes[0].get_ylabel()
    assert "V=512" in axes[5].get_ylabel()
    best = AccuracyGrid.from_runs(small.rows("linear MQAR (i)"))
    assert np.array_equal(tiles(axes[3]), best.accuracy.T, equal_nan=True)
    assert np.isnan(tiles(axes[1])[4, 0])  # N = 32, D = 8: the law is not drawn where nothing is trained
    assert len(panels(FIGURES["fig-7"].draw(small))) == 15


def test_fig_4_prints_both_levels_and_the_free_fit(small):
    figure = FIGURES["fig-4"].draw(small)
    axes = panels(figure)
    assert [ax.get_xlabel().split("with ")[1] for ax in axes] == ["$a=1$", "$a=5/4$", "$a=5/8$"]
    for ax in axes:
        written = [text.get_text() for text in ax.texts]
        assert written[0] == "printed $b=3.72$"
        fitted = float(re.search(r"fitted .b=([\d.]+)", written[1])[1])  # the made-up runs follow m_V = 3.12
        assert fitted == pytest.approx(3.12, abs=0.05 if ax is axes[2] else 0)  # of two seeds the mean is no rule's
        assert "both free" in written[2]
        assert [line.get_label() for line in ax.lines] == ["printed", "fitted"]
    assert "resampled" in " ".join(texts(figure).split())


def test_fig_8_stands_below_its_grids_and_fig_9_has_three_regimes(small):
    grids = panels(FIGURES["fig-8"].draw(small))
    assert [bool(ax.images) for ax in grids] == [True] * 3 + [False] * 3
    assert len(panels(FIGURES["fig-9"].draw(small))) == 9


def test_fig_10_counts_the_state_of_all_layers(small):
    figure = FIGURES["fig-10"].draw(small)
    ar, ar_curve, mqar, mqar_curve = panels(figure)
    assert (mqar.get_xlabel(), mqar.get_ylabel()) == ("$N$", r"$\Lambda$")
    points = np.concatenate([dots.get_offsets() for dots in mqar_curve.collections if dots.get_zorder() == 3])
    rows = small.rows("layers MQAR").sort_values("num_layers", kind="stable")
    assert len(points) == len(rows)
    same = (rows["num_layers"] * rows["state_dim"] == 12).to_numpy()
    assert same.sum() > 1
    assert np.ptp(points[same, 0]) < 1e-9  # (12, 1), (6, 2), (4, 3), (3, 4) lie on one x
    assert ar.get_title() == "AR, linear"
    assert "a=1" in ar_curve.get_xlabel()


def test_fig_6_has_a_panel_per_pattern(small):
    assert [ax.get_title() for ax in panels(FIGURES["fig-6"].draw(small))] == [
        "(a) MQA", "(b) MKA", "(c) MVA", "(d) MHA",
    ]  # fmt: skip


def test_fig_12_says_the_slopes(small):
    figure = FIGURES["fig-12"].draw(small)
    left, right = panels(figure)
    lengths = sorted(set(small.rows("large vocabularies")["length"]))
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == [f"$L={L}$: slope 1.00 ± 0.00" for L in lengths]  # made up by the very law that says 1
    assert len(left.lines) == len(lengths)


def test_fig_17_bars_are_mean_errors_and_dots_are_seeds(small):
    figure = FIGURES["fig-17"].draw(small)
    (ax,) = panels(figure)
    assert [label.get_text()[:2] for label in ax.get_yticklabels()] == ["Ba", "A:", "B:", "C:", "D:", "E:"]
    dots = [line.get_xdata() for line in ax.lines[:6]]
    assert [len(seeds) for seeds in dots] == [5] * 6
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([np.mean(seeds) for seeds in dots])
    assert ax.lines[6].get_xdata() == pytest.approx([15 / 16] * 2)
    assert "no convolution" in ax.get_yticklabels()[5].get_text()


def test_fig_18_shows_guessing_beside_every_depth(small):
    grid, curves = panels(FIGURES["fig-18"].draw(small))
    assert (grid.get_xlabel(), grid.get_ylabel()) == (r"$\Lambda$", "$N_k$")
    guess, one, *_ = curves.lines
    assert guess.get_ydata() == pytest.approx(1 / np.asarray(guess.get_xdata()))
    assert one.get_label() == r"$\Lambda=1$"


def test_fig_19_has_a_grid_per_seed_and_the_best(small):
    axes = panels(FIGURES["fig-19"].draw(small))
    assert [ax.get_title() for ax in axes] == ["seed 0", "seed 1", "best of seeds"]
    assert np.nanmax(np.abs(tiles(axes[2]) - np.fmax(tiles(axes[0]), tiles(axes[1])))) == 0


def test_fig_20_counts_seeds(small):
    *grids, bars = panels(FIGURES["fig-20"].draw(small))
    labels = [grid.get_title() for grid in grids]
    assert labels == ["full MQAR (i)", "full MQAR (ii)", "full MQAR (iii)"]
    assert sum(int(text.get_text()) for text in bars.texts) == len(small.rows(*labels))


def test_laws_carries_the_mean_error_of_each(small):
    """The made-up linear runs follow unified-mv, so its error is nothing."""
    titles = [ax.get_title() for ax in panels(FIGURES["laws"].draw(small))[:3]]
    assert "mean error 0.000" in titles[1]
    assert "mean error 0.000" not in titles[0]


def test_fig_2_names_every_step_in_order():
    (ax,) = panels(FIGURES["fig-2"].draw(None))
    written = [text.get_text() for text in ax.texts]
    names = [step.name for step in STEPS]
    assert [text for text in written if text in names] == names
    assert [name.split()[1] for name in names] == ["embed", "copy", "hash", "store", "match", "select", "decode"]


def test_fig_13_has_a_row_per_model(small):
    figure = FIGURES["fig-13"].draw(small)
    assert len(figure.subfigs) == 3
    assert [row.get_suptitle()[:8] for row in figure.subfigs] == ["$D=64$, ", "$D=64$, ", "$D=48$, "]
    assert len(FIGURES["fig-3"].draw(small).subfigs) == 1


def test_a_panel_without_runs_says_so(tmp_path):
    runs = fill(tmp_path / "part", "small", labels=["linear MQAR (i)"], designed=False)
    figure = FIGURES["fig-1"].draw(runs)
    assert texts(figure).count("no runs yet") == 1, "a regime without any linear run is left out"
    assert texts(figure).count("not measured yet") == 1
    wanted = [f"{model} MQAR (i)" for model in ("linear", "full")]
    counts = [len(runs.parts[label].cells) for label in wanted]
    assert source(figure).startswith(f"{counts[0]} of {sum(counts)} runs, scale small")
    assert texts(FIGURES["fig-9"].draw(runs)).count("no runs yet") == 8


@pytest.mark.parametrize("name", [name for name, one in FIGURES.items() if one.experiment])
def test_a_finished_quick_scale_has_no_empty_panel(name, quick):
    """Panels of what this scale does not train are left out."""
    figure = FIGURES[name].draw(quick)
    assert not re.search("no runs?|not (at|measured)", texts(figure, caption=False))
    assert all(ax.axison or ax.get_legend() for ax in panels(figure))


def test_columns_of_what_the_scale_does_not_train_are_left_out(quick):
    """The tiny grid of the full model at this scale is another task, and is not passed off as regime (iii)."""
    assert [ax.get_title()[:3] for ax in panels(FIGURES["fig-7"].draw(quick))] == ["(a)", "(b)", "our", "(c)"]
    assert [ax.get_title() for ax in panels(FIGURES["fig-4"].draw(quick))] == ["(b) MQAR, linear"]


@pytest.mark.parametrize("name", [name for name, figure in FIGURES.items() if figure.experiment])
def test_a_figure_without_any_runs_says_which_command_makes_them(name, tmp_path):
    runs = fill(tmp_path / "empty", "small", labels=[], designed=False)
    with pytest.raises(NoRunsError, match=f"recallscope reproduce {FIGURES[name].experiment} --scale small --store"):
        FIGURES[name].draw(runs)


def test_models_that_nobody_looked_into_are_not_drawn(tmp_path):
    runs = fill(tmp_path / "blind", "quick", labels=["mechanism"], inside=False)
    with pytest.raises(NoRunsError, match="no look inside"):
        FIGURES["fig-14"].draw(runs)


def test_names_are_figures_experiments_or_all():
    assert [figure.name for figure in find_figures("curves")] == ["fig-4", "fig-8", "fig-9"]
    assert len(find_figures("all")) == len(FIGURES)
    with pytest.raises(ValueError, match="fig-1"):
        find_figures("figure-1")
