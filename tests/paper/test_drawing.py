"""Pictures are drawn again if they would differ, and only then; processes give what one process gives."""

import json

import pytest
from made_up import fill

from recallscope.paper import drawing
from recallscope.paper.drawing import KeptPictures, do_jobs, draw_figures, figure_job
from recallscope.paper.experiment import find_figures


@pytest.fixture
def runs(tmp_path):
    return fill(tmp_path / "store", "quick", labels=["large vocabularies"], designed=False)


@pytest.fixture
def drawn(monkeypatch):
    """The names of the figures that are drawn."""
    names = []
    plain = drawing._draw
    monkeypatch.setattr(drawing, "_draw", lambda name, kind, runs: names.append(name) or plain(name, kind, runs))
    return names


def test_an_unchanged_figure_is_not_drawn_again_and_a_touched_or_stale_one_is(runs, drawn, tmp_path, capsys):
    figures, out = find_figures("fig-11"), tmp_path / "out"
    first = draw_figures(runs, figures, out)
    assert first == {"fig-11": [out / "fig-11.png", out / "fig-11.svg"]}
    assert capsys.readouterr().err == "[1/1] fig-11\n"
    data = (out / "fig-11.png").read_bytes()
    assert draw_figures(runs, figures, out) == first
    assert drawn == ["fig-11"]
    assert capsys.readouterr().err == ""
    (out / "fig-11.png").write_bytes(data[:100])  # not what was drawn
    draw_figures(runs, figures, out)
    assert (out / "fig-11.png").read_bytes() == data
    (out / ".drawn.json").write_text("{")  # nobody knows any more what made it
    draw_figures(runs, figures, out)
    record = next(runs.store.runs.glob("*/record.json"))
    record.write_text(record.read_text().replace('"seconds"', ' "seconds"'))  # any change of any record
    draw_figures(runs, figures, out)
    assert drawn == ["fig-11"] * 4


def test_other_code_draws_again(runs, tmp_path, monkeypatch):
    (figure,) = find_figures("fig-11")
    before = KeptPictures(tmp_path, runs).digest(figure)
    assert KeptPictures(tmp_path, runs).digest(figure) == before
    monkeypatch.setattr(drawing, "version", lambda name: "another")
    assert KeptPictures(tmp_path, runs).digest(figure) != before


def test_a_figure_without_runs_says_why_and_is_not_kept(runs, tmp_path):
    (why,) = draw_figures(runs, find_figures("fig-6"), tmp_path / "out").values()
    assert "recallscope reproduce heads" in why
    assert not (tmp_path / "out" / ".drawn.json").exists()


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes(runs, tmp_path):
    names = ("fig-2", "fig-11", "fig-12", "fig-6")
    jobs = {name: figure_job(name, "files") for name in names}
    one, two = (do_jobs(runs, jobs, workers) for workers in (1, 2))
    assert list(two) == list(names)
    assert one == two


def test_the_kept_facts_are_plain(runs, tmp_path):
    draw_figures(runs, find_figures("fig-11"), tmp_path)
    facts = json.loads((tmp_path / ".drawn.json").read_text())
    assert set(facts) == {"fig-11.png", "fig-11.svg"}
    assert all(set(fact) == {"made_of", "bytes"} for fact in facts.values())
