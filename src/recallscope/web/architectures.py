"""The architecture comparison from the runs of a store: what docs/ARCHITECTURE_COMPARISON.md and its figures show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recallscope.runs.store import RunStore
from recallscope.studies.architecture_forms import (
    FORMS,
    QUESTIONS,
    RULES,
    Cell,
    Form,
    Measured,
    age_gap,
    ages,
    flagged,
    label_of,
    measured,
    ranking,
    size_curves,
)
from recallscope.studies.experiment import Scale
from recallscope.studies.paper_runs import PaperRuns
from recallscope.web.runs import StoreQuery
from recallscope.web.store_set import StoreSet

SCALE: Scale = "small"  # at which the committed records were made


def paper_runs(store_set: StoreSet, store: RunStore) -> PaperRuns:
    """A store read as the experiments of the paper; read again when it changes."""
    return store_set.kept(store, ("paper runs",), lambda: PaperRuns(RunStore(store.root), SCALE))


def architectures(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """Every form: recall by cell with intervals, keys written twice, recall by age."""
    store = store_set.store(StoreQuery.of(fields).store)
    return store_set.kept(store, ("architectures",), lambda: _architectures(paper_runs(store_set, store)))


def architecture_curves(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """What the forms of each cell are compared with, which takes longer: the linear Mamba by its law, and the bound."""
    store = store_set.store(StoreQuery.of(fields).store)
    return store_set.kept(store, ("architecture curves",), lambda: _curves(paper_runs(store_set, store)))


def _architectures(runs: PaperRuns) -> dict[str, Any]:
    old, forms, cells = ages(runs, FORMS), [], dict[str, None]()
    for form in FORMS:
        recall, repeated = measured(runs, "recall", form), measured(runs, "repeated", form)
        if not recall and not repeated:
            continue
        cells |= dict.fromkeys(map(_name, recall))
        places = old.get(form.label)
        forms.append(
            {"label": form.label, "rule": form.rule, "update": form.update, "published": form.published}
            | {"rate": form.rate, "ages": places, "age_gap": age_gap(places) if places else None}
            | {"recall": {_name(cell): _numbers(one) for cell, one in recall.items()}}
            | {"repeated": next(map(_numbers, repeated.values()), None), "runs": _runs(runs, form)}
        )
    return {"forms": forms, "rules": RULES, "cells": list(cells), "flagged": list(flagged(runs).values())}


def _curves(runs: PaperRuns) -> dict[str, Any]:
    cells: dict[Cell, list[Measured]] = {}
    for form in FORMS:
        for cell, one in measured(runs, "recall", form).items():
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


def _runs(runs: PaperRuns, form: Form) -> list[str]:
    """The records behind a form's numbers."""
    return list(dict.fromkeys(record.run for what in QUESTIONS for record in runs.records(label_of(what, form))))
