"""`recallscope figures`: the figures of the paper, from a store of runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import Unset
from recallscope.cli.output import print_json
from recallscope.studies.experiment import Scale

if TYPE_CHECKING:
    from recallscope.studies.paper_runs import PaperRuns

Answers = list[dict[str, Any]]


@dataclass(kw_only=True)
class Figures:
    """Draw figures of the paper from the runs of a store, as PNG and SVG.

    recallscope figures results/paper fig-2 --out figures

    To list the figures:

    recallscope figures --list
    """

    store: Annotated[Path | None, tyro.conf.Positional, Unset] = None
    """Folder of the runs."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = ()
    """A figure (fig-1), an experiment (dn-grid: all its figures), or all."""
    scale: Scale = "small"
    """Scale of the runs."""
    out: Path = Path("figures")
    """Folder for the pictures."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only list the figures."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """List, or draw what can be drawn and say what cannot."""
        from recallscope.studies.experiment import find_figures, paper_figures
        from recallscope.studies.paper_runs import NoRunsError

        if self.show:
            figures = find_figures("all")
            if self.json:
                rows = [{"name": one.name, "title": one.title, "experiment": one.experiment} for one in figures]
                print_json({"figures": rows})
                return 0
            for one in figures:
                print(f"{one.name:7} {one.experiment or '-':14} {one.title}")
            return 0
        if self.store is None or not self.names:
            raise ValueError(
                "which figure of which runs? Name a store, then figures, an experiment, or all, such as recallscope "
                "figures results/paper fig-1. recallscope figures --list has their names."
            )
        chosen = {figure.name: figure for name in self.names for figure in find_figures(name)}
        from recallscope.studies.drawing import draw_figures

        asked_for = paper_figures().keys() & set(self.names)
        runs = self._runs(self.store) if any(figure.experiment for figure in chosen.values()) else None
        answers = draw_figures(runs, list(chosen.values()), self.out, os.cpu_count() or 1)
        skipped: Answers = [{"name": name, "why": why} for name, why in answers.items() if isinstance(why, str)]
        for answer in skipped:
            if answer["name"] in asked_for or len(skipped) == len(chosen):
                raise NoRunsError(answer["why"])
        drawn: Answers = [
            {"name": name, "title": chosen[name].title, "files": [str(path) for path in paths]}
            for name, paths in answers.items()
            if not isinstance(paths, str)
        ]
        self._print(drawn, skipped)
        return 0

    def _runs(self, store: Path) -> PaperRuns:
        from recallscope.runs.store import RunStore
        from recallscope.studies.paper_runs import PaperRuns

        return PaperRuns(RunStore(store), self.scale)

    def _print(self, drawn: Answers, skipped: Answers) -> None:
        if self.json:
            print_json({"scale": self.scale, "figures": drawn, "skipped": skipped})
            return
        for answer in drawn:
            print(f"{answer['name']:7} {answer['title']}: {', '.join(answer['files'])}")
        for answer in skipped:
            print(f"{answer['name']} is left out: {answer['why']}", file=sys.stderr)
