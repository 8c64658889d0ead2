"""`recallscope sweep`: every run of a grid that a store lacks, on this machine or on a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from recallscope.cli.flags import OptionalInt, OptionalPath, Quiet
from recallscope.cli.output import print_json, warn

if TYPE_CHECKING:
    from recallscope.runs.driver import Outcome
    from recallscope.runs.grid import Cell, Grid
    from recallscope.runs.plan import Plan
    from recallscope.runs.store import RunStore

# flags that are handed to run_sweep as they are
VALUES = ("engine", "workers", "slots_per_gpu", "device", "address", "lease_seconds")
SWITCHES = ("save_weights", "retry_failed")


@dataclass(kw_only=True)
class Sweep:
    """recallscope sweep examples/tiny_grid.toml --store runs/tiny

    Run every cell of a grid that the store does not hold yet. Stop it at any time, kill it, start it twice at once: the
    same command resumes where it was, and no run is done twice. A wider grid runs only its new cells.
    Look before you leap:

    recallscope sweep examples/tiny_grid.toml --store runs/tiny --dry-run
    """

    grid: Annotated[Path, tyro.conf.Positional]
    """A TOML file: base run, axes, derived fields, skip rules; examples/tiny_grid.toml explains them all."""
    store: OptionalPath = None
    """Folder of the runs, made if it does not exist; runs/NAME for a grid NAME.toml unless given."""
    engine: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: an existing Ray cluster."""
    workers: OptionalInt = None
    """Runs in parallel (default: one per core, with Ray one per CPU of the cluster); 0 runs them in this process."""
    slots_per_gpu: OptionalInt = None
    """Runs at once on each GPU; fractions of a GPU with ray."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPUs if there are any (local)."""
    address: str = "auto"
    """Where the Ray cluster is, such as 127.0.0.1:6379 after ray start --head --node-ip-address=127.0.0.1. Ray asks for
    no password and listens on all interfaces even then: use trusted networks only, or a firewall."""
    save_weights: bool = False
    """Keep each run's weights beside its record."""
    retry_failed: bool = False
    """Try runs again that failed three times in an earlier sweep."""
    lease_seconds: float = 60.0
    """A run whose lease was not renewed for so long is taken over."""
    dry_run: bool = False
    """Only print what is missing."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout at the end; progress goes to stderr."""

    def run(self) -> int:
        """Read the grid, plan, drive, report. Exit code 1 if runs failed, 130 if stopped before the end."""
        from recallscope.runs.driver import run_sweep
        from recallscope.runs.grid import read_grid
        from recallscope.runs.plan import make_plan
        from recallscope.runs.store import RunStore
        from recallscope.runs.views import progress_view

        grid = read_grid(self.grid)
        cells = grid.cells()
        if not cells:
            raise ValueError(f"{self.grid}: the skip rules leave none of the {grid.size} cells.")
        if self.dry_run:
            there = RunStore(self.folder) if self.folder.exists() else None
            return self._print_plan(
                grid, make_plan(cells, there, weights=self.save_weights, retry_failed=self.retry_failed, look_only=True)
            )
        store = RunStore(self.folder, create=True)
        title = f"{grid.name}: {len(cells)} runs in {self.folder}"
        stream = sys.stderr if self.json else sys.stdout
        outcome = run_sweep(
            cells,
            store,
            view=None if self.quiet else progress_view(cells, title, stream=stream, live=not self.json),
            weights=self.save_weights,
            retry_failed=self.retry_failed,
            **{name: getattr(self, name) for name in VALUES},
        )
        return self._report(outcome, store, cells)

    @property
    def folder(self) -> Path:
        """The store's folder, given or by default."""
        return self.store or Path("runs") / self.grid.stem

    def _print_plan(self, grid: Grid, plan: Plan) -> int:
        facts = {"runs": plan.total, "missing": len(plan.missing), "done": len(plan.done), "failed": len(plan.failed)}
        if self.json:
            missing = [{"run": cell.run, **cell.fields} for cell in plan.missing]
            print_json({**facts, "left_out": grid.size - plan.total, "cells": missing})
            return 0
        counts = f"{len(plan.done)} done, {len(plan.missing)} missing, {len(plan.failed)} failed before"
        print(f"{grid.name}: {plan.total} runs, {counts}")
        for cell in plan.missing:
            print(f"  {cell.run[:8]}  " + " ".join(f"{name}={value}" for name, value in cell.fields.items()))
        return 0

    def _report(self, outcome: Outcome, store: RunStore, cells: list[Cell]) -> int:
        failures = [found for cell in cells if outcome.failed and (found := store.failure(cell.run)) is not None]
        for failure in failures[:10]:
            last = "".join(f": {line}" for line in failure.stderr.strip().splitlines()[-1:])
            warn(f"run {failure.run} failed {failure.tries} times; its worker {failure.reason}{last}")
        if failures:
            run = failures[0].run[:8]
            warn(f"details: recallscope store show {self.folder} {run}; --retry-failed tries again")
        diverged = _diverged(store, cells)
        if diverged:
            some = ", ".join(run[:8] for run in diverged[:4]) + " ..." * (len(diverged) > 4)
            without = f"recallscope fit {self.folder} --exclude diverged fits without them"
            warn(f"{len(diverged)} of the finished runs diverged: {some}. {without}")
        if outcome.interrupted:
            warn(f"stopped, nothing is lost. Resume with: {self.command()}")
        facts = {
            "done": outcome.done,
            "skipped": outcome.skipped,
            "failed": outcome.failed,
            "diverged": len(diverged),
            "seconds": round(outcome.seconds, 3),
        }
        if self.json:
            print_json(facts)
        else:
            print(f"{outcome.done} done, {outcome.skipped} skipped, {outcome.failed} failed in {outcome.seconds:.1f} s")
        return 130 if outcome.interrupted else 1 if outcome.failed else 0

    def command(self) -> str:
        """The command that resumes this sweep."""
        arguments = ["recallscope", "sweep", str(self.grid), "--store", str(self.folder)]
        for name in VALUES:
            if getattr(self, name) != getattr(type(self), name):
                arguments += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        for name in (*SWITCHES, "quiet", "json"):
            arguments += [f"--{name.replace('_', '-')}"] if getattr(self, name) else []
        return shlex.join(arguments)


def _diverged(store: RunStore, cells: list[Cell]) -> list[str]:
    """Names of the cells' runs that are flagged so."""
    from recallscope.runs.table import find_runs, parse_conditions

    ours = {cell.run for cell in cells}
    rows = find_runs(store, parse_conditions(["warning=diverged"]), columns=["run"])
    return [row["run"] for row in rows if row["run"] in ours]
