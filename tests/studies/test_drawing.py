"""Figures of the paper: drawn when asked for; processes give what one process gives."""

import pytest
from made_up import fill

from recallscope.studies.drawing import do_jobs, draw_figures, figure_job
from recallscope.studies.experiment import find_figures, paper_figures


@pytest.fixture
def runs(tmp_path):
    return fill(tmp_path / "store", "quick", labels=["large vocabularies"], designed=False)


def test_figures_are_drawn_whenever_they_are_asked_for(runs, tmp_path, capsys):
    figures, out = find_figures("fig-11"), tmp_path / "out"
    first = draw_figures(runs, figures, out)
    assert first == {"fig-11": [out / "fig-11.png", out / "fig-11.svg"]}
    assert capsys.readouterr().err == "[1/1] fig-11\n"
    data = (out / "fig-11.png").read_bytes()
    (out / "fig-11.png").write_bytes(data[:100])
    assert draw_figures(runs, figures, out) == first
    assert (out / "fig-11.png").read_bytes() == data


def test_a_figure_without_runs_says_why_and_is_not_written(runs, tmp_path):
    (why,) = draw_figures(runs, find_figures("fig-6"), tmp_path / "out").values()
    assert "recallscope reproduce heads" in why
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes(runs, tmp_path):
    names = ("fig-2", "fig-11", "fig-12", "fig-6")
    jobs = {name: figure_job(paper_figures()[name], "files") for name in names}
    one, two = (do_jobs(runs, jobs, workers) for workers in (1, 2))
    assert list(two) == list(names)
    assert one == two
