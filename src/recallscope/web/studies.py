"""What the explorer shows of studies: the paper claim by claim, and the comparison of architectures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import mean
from threading import Lock
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from recallscope.health import left_chance
from recallscope.measuring.measurement import Information, over_seeds, trained_best
from recallscope.runs.store import RunStore
from recallscope.studies.architecture_variants import (
    QUESTIONS,
    RULES,
    VARIANTS,
    Cell,
    Measured,
    Variant,
    age_gap,
    ages,
    flagged,
    label_of,
    measured,
    ranking,
    size_curves,
)
from recallscope.studies.claims import CLAIMS
from recallscope.studies.drawing import figure_job
from recallscope.studies.experiment import Scale, experiments, find_experiment, paper_figures
from recallscope.studies.paper_runs import NoRunsError, PaperRuns
from recallscope.studies.report import Picture, run_facts
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.web.runs import StoreQuery
from recallscope.web.store_set import StoreSet

YOURS = "yours"  # in the place of a rule
SCALE: Scale = "small"  # at which the committed records were made


def paper_runs(store_set: StoreSet, store: RunStore) -> PaperRuns:
    """A store read as the experiments of the paper; read again when it changes."""
    return store_set.kept(store, ("paper runs",), lambda: PaperRuns(RunStore(store.root), SCALE))


def architectures(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """Every variant: recall by cell with intervals, keys written twice, recall by age; and modules of the user's own.

    Those are of any open store, and stand beside the variants wherever they were measured on the same task.
    """
    store = store_set.store(StoreQuery.of(fields).store)
    found = store_set.kept(store, ("architectures",), lambda: _architectures(paper_runs(store_set, store)))
    cells = found["cells"]
    yours = [
        variant | {"store": str(number)}
        for number, other in enumerate(store_set.stores)
        for variant in store_set.kept(other, ("modules", *cells), partial(_users_modules, other, cells))
    ]
    rules = (*found["rules"], YOURS) if yours else found["rules"]
    return found | {"variants": [*found["variants"], *yours], "rules": rules}


def architecture_curves(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """What the variants of each cell are compared with, which takes longer: the linear Mamba by its law, the bound."""
    store = store_set.store(StoreQuery.of(fields).store)
    return store_set.kept(store, ("architecture curves",), lambda: _curves(paper_runs(store_set, store)))


def _architectures(runs: PaperRuns) -> dict[str, Any]:
    old, variants, cells = ages(runs, VARIANTS), [], dict[str, None]()
    for variant in VARIANTS:
        recall, repeated = measured(runs, "recall", variant), measured(runs, "repeated", variant)
        if not recall and not repeated:
            continue
        cells |= dict.fromkeys(map(_name, recall))
        places = old.get(variant.label)
        variants.append(
            {"label": variant.label, "rule": variant.rule, "update": variant.update, "published": variant.published}
            | {"rate": variant.rate, "ages": places, "age_gap": age_gap(places) if places else None}
            | {"recall": {_name(cell): _numbers(one) for cell, one in recall.items()}}
            | {"repeated": next(map(_numbers, repeated.values()), None), "runs": _runs(runs, variant)}
        )
    return {"variants": variants, "rules": RULES, "cells": list(cells), "flagged": list(flagged(runs).values())}


def _users_modules(store: RunStore, cells: Sequence[str]) -> list[dict[str, Any]]:
    """Modules of the user's own as variants, in all cells with their task: they have no D and N of ours."""
    variants: dict[str, dict[str, Any]] = {}
    for V, N_f in dict.fromkeys(tuple(map(int, re.findall(r"\d+", cell)[:2])) for cell in cells):
        for _, records in trained_best(MQARSpec.model_validate({"vocab_size": V, "num_facts": N_f}), [store.root]):
            model, seeds = records[0].spec.model, [record.test_accuracy for record in records]
            if (given := getattr(model, "arguments", None)) is None:  # one of ours
                continue
            learned = all(left_chance(record.model_dump(mode="json")) for record in records)
            arguments = "".join(f" {name}={value}" for name, value in given.items())
            label = f"{model.kind}{arguments}" + ("" if learned else " (did not learn)")
            held = Information.of(mean(seeds), records[0].spec.task, records[0].effective_entries)
            numbers = {
                "seeds": seeds, "interval": over_seeds(seeds) if len(seeds) > 1 else (None, None), "mean": mean(seeds),
                "state_entries": records[0].effective_entries, "parameters": records[0].parameters,
                "seconds": mean(record.seconds for record in records),
                "bits_per_entry": held.per_entry if held and learned else None,
            }  # fmt: skip
            same = [cell for cell in cells if cell.startswith(f"V {V}, N_f {N_f},")]
            variant = variants.setdefault(label, {
                "label": label, "rule": YOURS, "update": "a module of your own", "published": not learned, "recall": {},
                "rate": records[0].spec.train.learning_rate, "ages": None, "age_gap": None, "repeated": None,
                "runs": [record.run for record in records],
            })  # fmt: skip
            variant["recall"] |= dict.fromkeys(same, numbers)
    return list(variants.values())


def _curves(runs: PaperRuns) -> dict[str, Any]:
    cells: dict[Cell, list[Measured]] = {}
    for variant in VARIANTS:
        for cell, one in measured(runs, "recall", variant).items():
            if one.state_entries:
                cells.setdefault(cell, []).append(one)
    drawn = {_name(cell): size_curves(cell, members, "state_entries") for cell, members in cells.items()}
    lines = {name: {label: [x.tolist(), y.tolist()] for label, (x, y) in both.items()} for name, both in drawn.items()}
    return {"curves": lines, "ranking": ranking(runs, "state_entries")}


def _name(cell: Cell) -> str:
    return ", ".join(f"{letter} {size}" for letter, size in zip(("V", "N_f", "D", "N"), cell, strict=True))


def _numbers(one: Measured) -> dict[str, Any]:
    facts = asdict(one)
    shown = ("seeds", "interval", "state_entries", "parameters", "seconds")
    return {name: facts[name] for name in shown} | {"mean": one.mean, "bits_per_entry": one.bits_per_entry}


def _runs(runs: PaperRuns, variant: Variant) -> list[str]:
    """The records behind a variant's numbers."""
    return list(dict.fromkeys(record.run for what in QUESTIONS for record in runs.records(label_of(what, variant))))


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
