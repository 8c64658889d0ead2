"""What a grid still lacks: the difference between what is asked for and what the store holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recallscope.runs.grid import Cell
from recallscope.runs.leases import Failure
from recallscope.runs.store import WEIGHTS, Fault, RunStore
from recallscope.specs import RunSpec

STEP_OVERHEAD = 2e7  # multiplications' worth of fixed work per step: some tens of small tensor operations


@dataclass
class Plan:
    """A grid's cells, sorted by what has to be done with them."""

    missing: list[Cell] = field(default_factory=list)  # long ones first
    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)  # failed for good before; left alone unless asked for
    retried: dict[str, Failure] = field(default_factory=dict)  # why missing runs failed before, if they are tried again
    faults: list[Fault] = field(default_factory=list)  # damaged records, now moved aside and missing
    accuracy: dict[str, float] = field(default_factory=dict)  # of those done

    @property
    def total(self) -> int:
        """All cells."""
        return len(self.missing) + len(self.done) + len(self.failed)


def make_plan(
    cells: Iterable[Cell],
    store: RunStore | None,
    *,
    weights: bool = False,
    retry_failed: bool = False,
    look_only: bool = False,
) -> Plan:
    """Look every cell up in the store's files; without a store everything is missing.

    Damaged records are moved aside (not with `look_only`) and count as missing. One of a newer schema stops the sweep
    with a NewerRecordError: we cannot know what it holds, and do not run over it.
    """
    plan, costs = Plan(), dict[tuple[int, ...], float]()
    there = set(store.names()) if store else set()
    for cell in cells:
        if cell.run not in there:  # no file is looked for; whoever takes its lease looks again
            plan.missing.append(cell)
            continue
        record, fault = store.get_sound(cell.run, move=not look_only) if store else (None, None)
        failure = None
        if fault:
            plan.faults.append(fault)
        if record is not None:
            plan.accuracy[cell.run] = record.test_accuracy
        if store and record and (not weights or (store.folder(cell.run) / WEIGHTS).exists()):
            plan.done.append(cell)
        elif store and not record and (failure := store.failure(cell.run, move=not look_only)) and not retry_failed:
            plan.failed.append(cell)
        else:
            plan.missing.append(cell)
            if failure:
                plan.retried[cell.run] = failure

    def cost(cell: Cell) -> float:
        """Cells share their parts: their costs are few."""
        key = tuple(map(id, cell.parts))
        if key not in costs:
            costs[key] = estimated_cost(cell.spec)
        return costs[key]

    plan.missing.sort(key=cost, reverse=True)
    return plan


def estimated_cost(run: RunSpec) -> float:
    """Work of a run in multiplications, roughly: to start long cells first and to guess the time left.

    The mixer at every token, scores of V tokens at every query, and the evaluations at their share.
    """
    task, model, train = run.task, run.model, run.train
    head = task.num_queries * task.vocab_size * model.size_of("embed_dim")
    per_sequence = task.sequence_length * model.work_per_token() + head
    trained = 3 * train.total_steps * (train.batch_size * train.accumulate * per_sequence + STEP_OVERHEAD)
    evaluations = 1 + -(-train.total_steps // train.eval_every)
    return float(trained + evaluations * train.eval_size * per_sequence)
