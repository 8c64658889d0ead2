"""`recallscope sweep`: every run of a grid that a store lacks, on this machine or on a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from recallscope.cli.flags import print_json

if TYPE_CHECKING:
    from recallscope.store import RunStore
    from recallscope.sweeps import Cell, Engine, Grid, Outcome, Plan


@dataclass(kw_only=True)
class Sweep:
    """recallscope sweep examples/tiny_grid.toml --store runs/tiny

    Run every cell of a grid that the store does not hold yet. Stop it at any time, kill it, start it twice at once: the
    same command goes on where it was, and no run is done twice. A wider grid runs only its new cells.
    Look before you leap:

    recallscope sweep examples/tiny_grid.toml --store runs/tiny --dry-run
    """

    grid: Annotated[Path, tyro.conf.Positional]
    """A TOML file: base run, axes, derived fields, skip rules; examples/tiny_grid.toml explains them all."""
    store: Path | None = None
    """Folder of the runs, made if it does not exist; runs/NAME for a grid NAME.toml unless given."""
    engine: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: an existing Ray cluster."""
    workers: int | None = None
    """Runs at once; one per core (local) or as many as the cluster has CPUs (ray) unless given."""
    slots_per_gpu: int | None = None
    """Runs at once on each GPU; fractions of a GPU with ray."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPUs if there are any (local)."""
    address: str = "auto"
    """Where the Ray cluster is."""
    weights: bool = False
    """Keep each run's weights beside its record."""
    retry_failed: bool = False
    """Try runs again that failed three times in an earlier sweep."""
    lease_seconds: float = 60.0
    """A run whose worker gave no sign of life for so long is taken over."""
    tracker: Literal["tensorboard", "wandb"] | None = None
    """Also write each finished run's curve for this tracker, in a folder of the store."""
    dry_run: Annotated[bool, tyro.conf.arg(aliases=["--plan"])] = False
    """Only say what is missing."""
    json: bool = False
    """Print one JSON object on stdout at the end; progress goes to stderr."""

    def run(self) -> int:
        """Read the grid, plan, drive, report. Exit code 1 if runs failed, 130 if stopped before the end."""
        if not 1 <= self.lease_seconds <= 1e6:
            raise ValueError(f"lease_seconds={self.lease_seconds:g} is outside 1..1000000.")
        from recallscope.store import RunStore
        from recallscope.sweeps import Driver, make_plan, read_grid
        from recallscope.sweeps.trackers import tracked

        grid = read_grid(self.grid)
        cells = grid.cells()
        if not cells:
            raise ValueError(f"{self.grid}: the skip rules leave none of the {grid.size} cells.")
        if self.dry_run:
            there = RunStore(self.folder) if self.folder.exists() else None
            return self._say_plan(
                grid, make_plan(cells, there, weights=self.weights, retry_failed=self.retry_failed, look_only=True)
            )
        store = RunStore(self.folder, create=True)
        plan = make_plan(cells, store, weights=self.weights, retry_failed=self.retry_failed)
        view = tracked(self._view(grid, cells), self.tracker, store.root)
        outcome = Driver(
            store=store,
            engine=self._engine(store, bool(plan.missing)),
            plan=plan,
            view=view,
            weights=self.weights,
            retry_failed=self.retry_failed,
            lease_seconds=self.lease_seconds,
        ).run()
        return self._report(outcome, store, cells)

    @property
    def folder(self) -> Path:
        """The store's folder, given or by default."""
        return self.store or Path("runs") / self.grid.stem

    def _engine(self, store: RunStore, needed: bool) -> Engine:
        from recallscope.sweeps.local import LocalEngine
        from recallscope.sweeps.slots import local_slots

        if self.engine == "local" or not needed:
            import importlib.util

            if needed and importlib.util.find_spec("torch") is None:
                raise ModuleNotFoundError("torch", name="torch")
            return LocalEngine(store, local_slots(self.workers, self.slots_per_gpu, self.device))
        from recallscope.sweeps.ray_cluster import RayEngine

        for name in ("workers", "slots_per_gpu"):
            if getattr(self, name) is not None and not 1 <= getattr(self, name) <= 10**6:
                raise ValueError(f"{name}={getattr(self, name)} is outside 1..1000000.")
        return RayEngine(store, self.address, self.workers, self.slots_per_gpu)

    def _view(self, grid: Grid, cells: list[Cell]) -> Any:
        from recallscope.sweeps.view import PlainView

        if self.json or not sys.stdout.isatty():
            return PlainView(sys.stderr if self.json else sys.stdout)
        from rich.console import Console

        from recallscope.sweeps.live import LiveView

        return LiveView(cells, Console(), f"{grid.name}: {len(cells)} runs in {self.folder}")

    def _say_plan(self, grid: Grid, plan: Plan) -> int:
        facts = {"runs": plan.total, "missing": len(plan.missing), "done": len(plan.done), "failed": len(plan.failed)}
        if self.json:
            missing = [{"run": cell.run, **cell.words} for cell in plan.missing]
            print_json({**facts, "left_out": grid.size - plan.total, "cells": missing})
            return 0
        counts = f"{len(plan.done)} done, {len(plan.missing)} missing, {len(plan.failed)} failed before"
        print(f"{grid.name}: {plan.total} runs, {counts}")
        for cell in plan.missing:
            print(f"  {cell.run[:8]}  " + " ".join(f"{name}={value}" for name, value in cell.words.items()))
        return 0

    def _report(self, outcome: Outcome, store: RunStore, cells: list[Cell]) -> int:
        failures = [found for cell in cells if outcome.failed and (found := store.failure(cell.run)) is not None]
        for failure in failures[:10]:
            last = failure.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
            print(
                f"recallscope: run {failure.run} failed {failure.tries} times; its worker {failure.reason}: {last[0]}",
                file=sys.stderr,
            )
        if failures:
            print(
                f"recallscope: what it said: recallscope store show {self.folder} {failures[0].run[:8]}; "
                f"--retry-failed tries again",
                file=sys.stderr,
            )
        if outcome.interrupted:
            print(f"recallscope: stopped, nothing is lost. Go on with: {self.command()}", file=sys.stderr)
        facts = {
            "done": outcome.done,
            "skipped": outcome.skipped,
            "failed": outcome.failed,
            "seconds": round(outcome.seconds, 3),
        }
        if self.json:
            print_json(facts)
        else:
            print(f"{outcome.done} done, {outcome.skipped} skipped, {outcome.failed} failed in {outcome.seconds:.1f} s")
        return 130 if outcome.interrupted else 1 if outcome.failed else 0

    def command(self) -> str:
        """The command that goes on with this sweep."""
        words = ["recallscope", "sweep", str(self.grid), "--store", str(self.folder)]
        for name in ("engine", "workers", "slots_per_gpu", "device", "address", "lease_seconds", "tracker"):
            if getattr(self, name) != getattr(type(self), name):
                words += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        for name in ("weights", "retry_failed", "json"):
            words += [f"--{name.replace('_', '-')}"] if getattr(self, name) else []
        return shlex.join(words)
