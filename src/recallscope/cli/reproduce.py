"""`recallscope reproduce`: run an experiment of the paper, draw its figures, say what came out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalInt, OptionalPath, Quiet
from recallscope.cli.output import console, print_json, show, table, warn
from recallscope.studies.experiment import SCALES, Scale

if TYPE_CHECKING:
    from recallscope.runs.grid import Cell
    from recallscope.runs.plan import Plan
    from recallscope.runs.store import RunStore
    from recallscope.studies.claims import Finding
    from recallscope.studies.experiment import Experiment
    from recallscope.studies.paper_runs import PaperRuns


@dataclass(kw_only=True)
class Reproduce:
    """recallscope reproduce dn-grid --scale quick

    Run what the store lacks of an experiment of the paper, draw its figures and compare with what the paper says.
    Stop it at any time: the same command resumes. All experiments, what they show and what they cost:

    recallscope reproduce --list
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Experiment, or all of them; without a name they are listed, and nothing is run."""
    scale: Scale = "small"
    """quick: seconds to two minutes each; small: an evening of two cores for all; paper: the paper's own axes."""
    store: Path = Path("runs/paper")
    """Folder of the runs; results/paper of the repository holds the small scale, done."""
    out: OptionalPath = None
    """Folder of the figures; STORE/figures unless given."""
    workers: OptionalInt = None
    """Runs in parallel (default: one per core); 0 runs them in this process."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only list the experiments: figures, runs and cost per scale, and what the store holds."""
    dry_run: bool = False
    """Only say how many runs are missing."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """List, or run experiment by experiment, then draw and compare."""
        from recallscope.studies.experiment import experiments, find_experiment

        chosen = experiments() if self.name in ("", "all") else [find_experiment(self.name)]
        if self.show or not (self.name or self.dry_run):
            return self._list(chosen)
        if self.dry_run:
            return self._say_plan(chosen)
        from recallscope.runs.store import RunStore

        store = RunStore(self.store, create=True)
        for experiment in chosen:
            code = self._run(experiment, store)
            if code:
                return code
        return self._report(chosen, store)

    def _run(self, experiment: Experiment, store: RunStore) -> int:
        """Everything an experiment lacks: trainings, circuits, and what comes after. Not 0 if stopped or failed."""
        from recallscope.studies.paper_runs import PaperRuns

        parts = experiment.parts(self.scale)
        for turn, keep_weights in sorted({(part.turn, part.keep_weights) for part in parts}):
            now = [part for part in parts if (part.turn, part.keep_weights) == (turn, keep_weights)]
            cells = {cell.run: cell for part in now for cell in part.cells}
            code = self._sweep(experiment, list(cells.values()), store, keep_weights)
            if code:
                return code
        for part in experiment.designed(self.scale):
            if not self.quiet:
                warn(f"{experiment.name}: measuring hand-constructed weights, {part.label}")
            part.measure(store.root, self.scale)
        experiment.call("after_runs", PaperRuns(store, self.scale, [experiment.name]))
        return 0

    def _sweep(self, experiment: Experiment, cells: list[Cell], store: RunStore, keep_weights: bool) -> int:
        from recallscope.runs.driver import run_sweep
        from recallscope.runs.plan import make_plan
        from recallscope.runs.views import progress_view

        plan = make_plan(cells, store, weights=keep_weights, look_only=True)
        if not plan.missing and not plan.failed:
            return 0
        view = None
        if not self.quiet:
            warn(f"{experiment.name}, {self.scale}: {self._work(plan)}")
            title = f"{experiment.name}: {len(cells)} runs in {self.store}"
            view = progress_view(cells, title, stream=sys.stderr, live=not self.json)
        outcome = run_sweep(cells, store, workers=self.workers, view=view, weights=keep_weights)
        if outcome.interrupted:
            warn(
                f"stopped, nothing is lost. Go on with: recallscope reproduce {self.name} --scale {self.scale} "
                f"--store {self.store}"
            )
            return 130
        if outcome.failed:
            warn(f"{outcome.failed} runs failed; recallscope store list {self.store} --where status=failed")
            return 1
        return 0

    def _work(self, plan: Plan) -> str:
        """How many runs are to be trained, and how long that may take."""
        from recallscope.studies.experiment import seconds_of

        workers = min(os.cpu_count() or 1 if self.workers is None else max(self.workers, 1), len(plan.missing) or 1)
        seconds = sum(seconds_of(cell.spec) for cell in plan.missing) / workers
        there = f", {len(plan.done)} are there" if plan.done else ""
        return f"{len(plan.missing)} runs to train{there}; estimated {_time(seconds)} with {workers} in parallel"

    def _report(self, chosen: list[Experiment], store: RunStore) -> int:
        from recallscope.studies.paper_runs import PaperRuns

        runs = PaperRuns(store, self.scale, [experiment.name for experiment in chosen])
        found = {experiment.name: experiment.find(runs) for experiment in chosen}
        summaries = {experiment.name: experiment.summaries(runs) for experiment in chosen}
        figures = self._draw(chosen, runs)
        if self.json:
            rows = {name: [asdict(finding) for finding in findings] for name, findings in found.items()}
            paths = [str(path) for path in figures]
            print_json({"scale": self.scale, "findings": rows, "summaries": summaries, "figures": paths})
            return 0
        out = console()
        for experiment in chosen:
            experiment.call("tables", runs, out)
            show(["", experiment.name], bold=2, to=out)
            for line in self._lines(found[experiment.name], out.width):
                print(line)
            for sentence in summaries[experiment.name]:
                print("\n" + fill(sentence, out.width))
        if figures:
            names = ", ".join(dict.fromkeys(path.stem for path in figures))
            print(f"\nFigures in {figures[0].parent}, as PNG and SVG: {names}")
        return 0

    def _lines(self, findings: list[Finding], width: int) -> Iterator[str]:
        """Findings that were tested, wrapped to the terminal; the others are only counted."""
        for one in findings:
            if one.tested:
                yield fill(one.question, width, initial_indent="  ", subsequent_indent="  ")
                for name, text in (("paper: ", one.paper), ("here:  ", one.ours)):
                    if text:
                        yield fill(text, width, initial_indent=f"    {name}", subsequent_indent=" " * 11)
                yield f"    -> {one.verdict}"
        if left := sum(not one.tested for one in findings):
            larger = SCALES[SCALES.index(self.scale) + 1 :]
            need = f"--scale {larger[0]}" if larger else "more runs"
            yield f"  {left} more finding{'s need' if left > 1 else ' needs'} {need}"

    def _draw(self, chosen: list[Experiment], runs: PaperRuns) -> list[Path]:
        """The experiments' figures that can be drawn; without matplotlib, none."""
        import importlib.util

        if importlib.util.find_spec("matplotlib") is None:
            warn("matplotlib is not installed, so nothing is drawn: pip install 'recallscope[figures]'")
            return []
        from recallscope.studies.drawing import draw_figures
        from recallscope.studies.experiment import find_figures

        figures = [figure for experiment in chosen for figure in find_figures(experiment.name)]
        answers = draw_figures(runs, figures, self.out or self.store / "figures", os.cpu_count() or 1)
        for why in answers.values():
            if isinstance(why, str):
                warn(why)
        return [path for paths in answers.values() if not isinstance(paths, str) for path in paths]

    def _say_plan(self, chosen: list[Experiment]) -> int:
        facts = [{"name": row["name"], **row["scales"][self.scale]} for row in self._rows(chosen, self.scale)]
        if self.json:
            print_json({"scale": self.scale, "experiments": facts})
            return 0
        for fact in facts:
            print(f"{fact['name']:14} {fact['done']:5} of {fact['runs']:5} runs done")
        return 0

    def _list(self, chosen: list[Experiment]) -> int:
        rows = self._rows(chosen, *SCALES)
        for row in rows:
            small = row["scales"]["small"]
            row["status"] = "done" if small["done"] == small["runs"] else "to do"
        if self.json:
            print_json({"store": str(self.store), "experiments": rows, "without_runs": _without_runs()})
            return 0
        cells = []
        for row in rows:
            costs = (f"{at['runs']}: {_time(at['core_seconds'])}" for at in row["scales"].values())
            small = row["scales"]["small"]
            cells.append([row["name"], ", ".join(row["shows"]), *costs, f"{small['done']} of {small['runs']}"])
        for row in _without_runs() if self.name in ("", "all") else ():
            cells.append([row["name"], ", ".join(row["shows"]), "-", "-", "-", row["command"]])
        columns = ("experiment", "shows", *SCALES, "small, done")
        console().print(table(columns, cells, left=columns, whole=("experiment",)))
        show(["", f"Runs: time of one core, estimated from the amount of work. Done: in {self.store}. results/paper of "
              "the repository holds the small scale."])  # fmt: skip
        return 0

    def _rows(self, chosen: list[Experiment], *wanted: Scale) -> list[dict[str, Any]]:
        from recallscope.records import RecordError
        from recallscope.runs.store import RunStore
        from recallscope.studies.claims import claim
        from recallscope.studies.experiment import core_seconds

        there: dict[str, Any] = {}
        if self.store.is_file() or (self.store / "store.json").exists():
            store = RunStore(self.store)
            for run in store.finished_names():
                with suppress(RecordError):  # a damaged record is not done
                    there[run] = (store.facts(run) or {}).get("spec", {})
        rows = []
        for experiment in chosen:
            scales: dict[str, Any] = {}
            for scale in wanted:
                runs, done = experiment.progress(scale, there)
                scales[scale] = {
                    "core_seconds": core_seconds(experiment.name, scale),
                    "runs": runs,
                    "done": done,
                    "cuts": [part.cut for part in experiment.parts(scale) if part.cut],
                }
            shows = [claim(key).number for key in experiment.claims]
            rows.append({"name": experiment.name, "says": experiment.title, "shows": shows, "scales": scales})
        return rows


def _without_runs() -> list[dict[str, Any]]:
    """Figures and tables of the paper that no run stands behind, and the command that shows them."""
    from recallscope.studies.claims import CLAIMS
    from recallscope.studies.experiment import experiments

    run = {key for experiment in experiments() for key in experiment.claims}
    rest = [row for row in CLAIMS if row.number.startswith(("Fig.", "Tab.")) and row.key not in run]
    return [
        {"name": name, "shows": [row.number for row in rest if row.number.startswith(kind)], "command": command}
        for name, kind, command in (
            ("circuit", "Fig.", "recallscope figures STORE fig-2"),
            ("tables", "Tab.", "recallscope claims"),
        )
    ]


def _time(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"~{seconds / size:.1f} {unit}"
    return f"~{seconds:.0f} s"
