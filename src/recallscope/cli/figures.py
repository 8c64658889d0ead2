"""`recallscope draw`: the figures of the paper, from a store of runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalPath, print_json
from recallscope.studies.experiment import Scale

if TYPE_CHECKING:
    from recallscope.studies.paper_runs import PaperRuns

Answers = list[dict[str, Any]]
STORES = (Path("results/paper"), Path("runs/paper"))


@dataclass(kw_only=True)
class Draw:
    """recallscope draw fig-2 --out figures

    Draw figures of the paper from the runs of a store, as PNG and SVG. Which there are:

    recallscope draw --list
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = ()
    """A figure (fig-1), an experiment (dn-grid: all its figures), or all."""
    store: OptionalPath = None
    """Folder of the runs; results/paper if it is there, else runs/paper."""
    scale: Scale = "small"
    """At which scale the runs were made."""
    out: Path = Path("figures")
    """Folder for the pictures."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Say which figures there are, and draw none."""
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
        if not self.names:
            raise ValueError("which figure? Give a name, such as fig-1, or all; recallscope draw --list has them.")
        chosen = {figure.name: figure for name in self.names for figure in find_figures(name)}
        from recallscope.studies.drawing import draw_figures

        asked_for = paper_figures().keys() & set(self.names)
        runs = self._runs() if any(figure.experiment for figure in chosen.values()) else None
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

    def _runs(self) -> PaperRuns:
        from recallscope.runs.store import RunStore
        from recallscope.studies.paper_runs import PaperRuns

        folder = self.store or next((path for path in STORES if path.exists()), None)
        if folder is None:
            raise ValueError(
                f"no store of runs: neither {STORES[0]} nor {STORES[1]} is here. Give --store, or make one: "
                f"recallscope reproduce all --scale {self.scale} --store {STORES[1]}"
            )
        return PaperRuns(RunStore(folder), self.scale)

    def _print(self, drawn: Answers, skipped: Answers) -> None:
        if self.json:
            print_json({"scale": self.scale, "figures": drawn, "skipped": skipped})
            return
        for answer in drawn:
            print(f"{answer['name']:7} {answer['title']}: {', '.join(answer['files'])}")
        for answer in skipped:
            print(f"{answer['name']} is left out: {answer['why']}", file=sys.stderr)
