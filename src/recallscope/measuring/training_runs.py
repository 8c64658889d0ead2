"""Training runs for a measurement: one recipe for all, a small search of the learning rate, and their store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from recallscope.records import RunRecord
from recallscope.runs.driver import Outcome
from recallscope.runs.grid import Cell
from recallscope.runs.store import RunStore
from recallscope.runs.sweep import run_sweep
from recallscope.runs.views import View
from recallscope.specs import RunSpec, TrainSpec, flat_fields

RECIPE = {"batch_size": 32, "eval_size": 2000}  # of TrainSpec; all else as its defaults: AdamW, 2000 steps, cosine
RATES = (0.01, 0.003, 0.001)  # learning rates that are tried, the same for every architecture
SEARCH_SHARE = 4  # the search takes this part of the steps
SEARCH_SEED = 2**30  # added to the seed: the search and the measurement share no random numbers


@dataclass(frozen=True)
class Training:
    """A finished run, and whether it was trained now or found in the store."""

    record: RunRecord
    new: bool


Trainer = Callable[[Sequence[RunSpec]], list[Training]]


def store_trainer(
    store: RunStore | Path | str, *, workers: int | None = None, weights: bool = False, view: View | None = None
) -> Trainer:
    """Train what the store lacks, in processes of their own, and keep it there."""
    home = store if isinstance(store, RunStore) else RunStore(store, create=True)

    def train(runs: Sequence[RunSpec]) -> list[Training]:
        cells = [_cell(run) for run in runs]
        found = {cell.run for cell in cells if home.finished(cell.run, weights=weights)}
        outcome: Outcome = run_sweep(cells, home, workers=workers, weights=weights, view=view, retry_failed=True)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return [Training(_record(home, cell), cell.run not in found) for cell in cells]

    return train


def _cell(run: RunSpec) -> Cell:
    """A run, with the fields that tell the training runs of a measurement apart."""
    fields = flat_fields(run)
    names = tuple(name for name in ("num_facts", "embed_dim", "state_dim", "learning_rate") if name in fields)
    return replace(Cell.of(run), names=names, values=tuple(fields[name] for name in names))


def _record(store: RunStore, cell: Cell) -> RunRecord:
    record = store.get(cell.run)
    if record is not None:
        return record
    failure = store.failure(cell.run)
    reason = "left no record" if failure is None else failure.reason
    last = "" if failure is None else "".join(f": {line}" for line in failure.stderr.strip().splitlines()[-1:])
    raise ValueError(f"the training of {cell.spec.model.kind} failed: its worker {reason}{last}.")


def with_train(run: RunSpec, **fields: Any) -> RunSpec:
    """The run with some fields of its training changed."""
    return run.model_copy(update={"train": TrainSpec.model_validate(run.train.model_dump() | fields)})


@dataclass(frozen=True)
class RateSearch:
    """The learning rate that was chosen, and the loss at the end of a short training with each."""

    chosen: float
    losses: dict[float, float | None]

    def sentence(self) -> str:
        """What was done, in one line."""
        tried = ", ".join(
            f"{rate:g} ({'diverged' if loss is None else f'{loss:.3f}'})" for rate, loss in self.losses.items()
        )
        return (
            f"learning rate {self.chosen:g}: of {tried} the one with the least loss after 1/{SEARCH_SHARE} of the steps"
        )


def search_rate(run: RunSpec, train: Trainer) -> tuple[RateSearch, list[Training]]:
    """The rate of `RATES` with the least loss over the second half of a short training, on a seed of its own."""
    whole = run.train
    part = {name: getattr(whole, name) // SEARCH_SHARE for name in ("warmup_steps", "flat_steps", "decay_steps")}
    every = max(1, sum(part.values()) // 2)
    other = run.model_copy(update={"seed": (run.seed + SEARCH_SEED) % 2**31})
    runs = [with_train(other, **part, eval_every=every, eval_size=200, learning_rate=rate) for rate in RATES]
    done = train(runs)
    losses = {
        rate: training.record.history[-1].loss if training.record.history else None
        for rate, training in zip(RATES, done, strict=True)
    }
    chosen = min(RATES, key=lambda rate: inf if losses[rate] is None else float(losses[rate] or 0.0))
    return RateSearch(chosen, losses), done
