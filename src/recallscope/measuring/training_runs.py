"""Training runs for a measurement: one recipe for all, a search of the learning rate, and where runs are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.health import left_chance
from recallscope.records import RunRecord
from recallscope.runs.driver import Outcome, run_sweep
from recallscope.runs.grid import Cell
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.runs.views import View
from recallscope.specs import TRIALS_FROM, RunSpec, TrainSpec, flat_fields

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel

RECIPE = {  # of TrainSpec; all else as its defaults: AdamW, 2000 steps, cosine
    "batch_size": 32, "eval_size": 2000, "training_facts": "target", "stop_accuracy": 0.999,
}  # fmt: skip
RATES = (0.01, 0.003, 0.001, 0.0003)  # learning rates that are tried, the same for every architecture
GOAL = 0.99  # accuracy at which a trial of a learning rate ends
TRIAL_SIZE = 500  # sequences in its validation set


@dataclass(frozen=True)
class Training:
    """A finished run, and whether it was trained now or found in the store."""

    record: RunRecord
    new: bool
    weights: Callable[[], RecallModel]  # the trained model; of a store, if it keeps weights
    add_state: Callable[[int], None] = lambda entries: None  # keep the effective state size with the record


Trainer = Callable[[Sequence[RunSpec]], list[Training]]


class RunFailedError(ValueError):
    """Some of the runs left no record; the message is about the first, `done` has the others."""

    def __init__(self, message: str, done: list[Training | None]) -> None:
        super().__init__(message)
        self.done = done


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
        done = [_training(home, cell, cell.run not in found) for cell in cells]
        failed = [cell for cell, training in zip(cells, done, strict=True) if training is None]
        return _all_or_error(done, _failure(home, failed[0]) if failed else "")

    return train


def _training(store: RunStore, cell: Cell, new: bool) -> Training | None:
    record = store.get(cell.run)
    weights, add_state = partial(_weights_of, store, cell), partial(store.add_state, cell.run)
    return Training(record, new, weights, add_state) if record else None


def _weights_of(store: RunStore, cell: Cell) -> RecallModel:
    """The weights that the store keeps of a run, whose code has just been trained."""
    from recallscope.train.weights import read_weights

    return read_weights(store.folder(cell.run) / WEIGHTS, trust_code=cell.spec.model.kind)[0]


def direct_trainer(tell: Callable[[str], None] | None = None) -> Trainer:
    """Train in this process, one run after another, and keep nothing: for modules that only this process has."""

    def train(runs: Sequence[RunSpec]) -> list[Training]:
        from recallscope.architectures.user_module_model import UserModuleError
        from recallscope.train.loop import train_run

        done, why = list[Training | None](), ""
        for number, run in enumerate(runs, 1):
            try:
                trained = train_run(run, progress=False)
            except UserModuleError as error:  # such as NaN in evaluation
                done.append(None)
                why = why or str(error)
                continue
            record = trained.record
            if tell:
                reached = f"accuracy {record.test_accuracy:.4f} after {record.steps:,} steps, {record.seconds:.1f} s"
                tell(f"[{number}/{len(runs)}] learning rate {run.train.learning_rate:g}  {reached}")
            done.append(Training(record, True, partial(_same, trained.model)))
        return _all_or_error(done, why)

    return train


def _same(model: RecallModel) -> RecallModel:
    return model


def _cell(run: RunSpec) -> Cell:
    """A run, with the fields that tell the training runs of a measurement apart."""
    fields = flat_fields(run)
    names = tuple(name for name in ("num_facts", "embed_dim", "state_dim", "learning_rate") if name in fields)
    return replace(Cell.of(run), names=names, values=tuple(fields[name] for name in names))


def _all_or_error(done: list[Training | None], why: str) -> list[Training]:
    found = [training for training in done if training]
    if len(found) < len(done):
        raise RunFailedError(why, done)
    return found


def _failure(store: RunStore, cell: Cell) -> str:
    """Why a run left no record."""
    failure = store.failure(cell.run)
    reason = "left no record" if failure is None else failure.reason.rstrip(".")
    last = "" if failure is None else (failure.stderr.strip().splitlines() or [""])[-1].rstrip(".")
    more = f": {last}" if last.rpartition("Error: ")[2] not in reason else ""
    return f"the training of {cell.spec.model.kind} failed: its worker {reason}{more}."


def with_train(run: RunSpec, **fields: Any) -> RunSpec:
    """The run with some fields of its training changed."""
    return run.model_copy(update={"train": TrainSpec.model_validate(run.train.model_dump() | fields)})


@dataclass(frozen=True)
class Trial:
    """What a short run reached at one learning rate."""

    accuracy: float
    steps: int  # fewer than planned if it got where it was told to stop
    begun: bool  # it left chance
    loss: float | None  # at its end; None if it diverged


@dataclass(frozen=True)
class RateSearch:
    """The learning rate that was chosen, and what a short run reached at each."""

    chosen: float
    training_facts: str
    steps: int  # of a trial
    trials: dict[float, Trial]

    @property
    def begun(self) -> bool:
        """Whether any rate left chance."""
        return any(trial.begun for trial in self.trials.values())

    def sentence(self) -> str:
        """What was done, in one line."""
        tried = ", ".join(f"{rate:g} ({_reached(trial, self.steps)})" for rate, trial in self.trials.items())
        why = "the highest accuracy, or the first to get there," if self.begun else "the smallest loss, all at chance,"
        return f"learning rate {self.chosen:g}: of {tried} the one with {why} in {self.steps:,} steps on another seed"


def _reached(trial: Trial, steps: int) -> str:
    """A trial in brackets."""
    if trial.loss is None:
        return "diverged" if trial.steps else "failed"
    early = f" at step {trial.steps:,}" if trial.steps < steps else ""
    return f"{trial.accuracy:.3f}{early}{'' if trial.begun else ', at chance'}"


def search_rate(run: RunSpec, train: Trainer, *, curriculum: bool = False) -> RateSearch:
    """The rate of `RATES` that recalls most after half of the run's steps, on a seed that marks it as a trial.

    Accuracies are those on the task itself, at equal steps: a trial that reaches `GOAL` ends there, and of several that
    do, the one with the fewest steps is chosen. Loss would rank rates by how fast they learn which values to guess.
    If none leaves chance, and `curriculum` allows it, all are tried again by a curriculum over the number of facts.
    """
    short = lengthened(run, 0.5)
    every = max(1, short.train.total_steps // 10)
    if run.seed >= TRIALS_FROM:
        raise ValueError(
            f"seed={run.seed}: seeds from {TRIALS_FROM} on are those of learning-rate trials. Use a smaller one."
        )
    other = short.model_copy(update={"seed": run.seed + TRIALS_FROM})
    trial = {"eval_every": every, "eval_size": min(run.train.eval_size, TRIAL_SIZE), "stop_accuracy": GOAL}
    runs = [with_train(other, **trial, learning_rate=rate) for rate in RATES]
    try:
        done: Sequence[Training | None] = train(runs)
    except RunFailedError as error:  # such as NaN at one rate
        if not any(error.done):
            raise
        done = error.done
    trials = {rate: _trial(one.record if one else None) for rate, one in zip(RATES, done, strict=True)}

    def worth(rate: float) -> tuple[Any, ...]:
        one = trials[rate]
        loss = inf if one.loss is None else one.loss
        return one.begun, min(one.accuracy, GOAL) if one.begun else 0, -one.steps, -loss

    found = RateSearch(max(RATES, key=worth), run.train.training_facts, short.train.total_steps, trials)
    if curriculum and not found.begun and found.training_facts != "curriculum":
        return search_rate(with_train(run, training_facts="curriculum"), train)
    return found


def _trial(record: RunRecord | None) -> Trial:
    """What a record says of its rate; as a run that diverged if it failed."""
    if record is None:
        return Trial(0.0, 0, False, None)
    loss = record.history[-1].loss if record.history else None
    return Trial(record.val_accuracy, record.steps, left_chance(record.model_dump(mode="json")), loss)


def lengthened(run: RunSpec, factor: float) -> RunSpec:
    """The same run with this many times its steps, every part of the schedule in proportion."""
    parts = ("warmup_steps", "flat_steps", "decay_steps")
    return with_train(run, **{name: int(getattr(run.train, name) * factor) for name in parts})
