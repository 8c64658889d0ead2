"""The paper: its claims, what an experiment's runs say about them, the figures, and the records behind each."""

from __future__ import annotations

from dataclasses import asdict
from threading import Lock
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from recallscope.studies.claims import CLAIMS
from recallscope.studies.drawing import figure_job
from recallscope.studies.experiment import experiments, find_experiment, paper_figures
from recallscope.studies.paper_runs import NoRunsError
from recallscope.studies.report import Picture, run_facts
from recallscope.web.architectures import SCALE, paper_runs
from recallscope.web.runs import StoreQuery
from recallscope.web.store_set import StoreSet

_DRAWING = Lock()  # matplotlib draws one figure at a time


class ExperimentQuery(StoreQuery):
    """An experiment of the paper."""

    experiment: Annotated[str, Field(max_length=80)]


class FigureQuery(StoreQuery):
    """A figure of `recallscope figures`."""

    name: Annotated[str, Field(max_length=80)]


def claims(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """The paper's statements, and which experiments ask about them."""
    StoreQuery.of(fields)
    asked = [
        {"name": one.name, "title": one.title, "claims": one.claims}
        | {"figures": {name: drawn.title for name, drawn in one.figures.items()}}
        for one in experiments()
    ]
    return {"claims": [asdict(row) for row in CLAIMS], "experiments": asked, "scale": SCALE}


def findings(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """What the runs of a store say about one experiment, its parts, and every record behind them."""
    question = ExperimentQuery.of(fields)
    store, experiment = store_set.store(question.store), find_experiment(question.experiment)

    def make() -> dict[str, Any]:
        runs = paper_runs(store_set, store)
        found = [asdict(one) | {"number": one.number} for one in experiment.find(runs)]
        parts = [asdict(part) for part in run_facts(runs).parts[experiment.name]]
        for part in parts:
            part["runs"] = [[record.run, record.test_accuracy] for record in runs.records(part["label"])]
        return {"findings": found, "parts": parts}

    return store_set.kept(store, ("findings", experiment.name), make)


def figure(store_set: StoreSet, fields: dict[str, Any]) -> Response:
    """A figure as `recallscope figures` makes it, PNG or SVG, whichever is smaller."""
    question = FigureQuery.of(fields)
    figures = paper_figures()
    if question.name not in figures:
        raise ValueError(f"{question.name!r} is no figure. There are: {', '.join(figures)}.")
    store = store_set.store(question.store)

    def make() -> Picture:
        with _DRAWING:
            drawn = figure_job(figures[question.name], "small")(paper_runs(store_set, store))
        if isinstance(drawn, str):
            raise NoRunsError(drawn)
        return Picture(question.name, figures[question.name].title, data=drawn[".small"])

    picture = store_set.kept(store, ("figure", question.name), make)
    kind = {".png": "image/png", ".svg": "image/svg+xml"}[picture.suffix]
    return Response(picture.data, media_type=kind, headers={"cache-control": "no-cache"})
