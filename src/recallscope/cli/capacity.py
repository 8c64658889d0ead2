"""`recallscope capacity`: how much does a trained model really hold? Few training runs instead of a grid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recallscope.cli.flags import OptionalInt, OptionalText, Quiet, RunFlags, StateFlags, with_run_flags
from recallscope.cli.output import console, number, print_json, show, table

if TYPE_CHECKING:
    from recallscope.measuring.capacity import Capacity, CapacityQuery


@dataclass(kw_only=True)
class FindCapacity(StateFlags, RunFlags):
    """Find how many facts a trained model can hold at a target accuracy.

    recallscope capacity --model linear_mamba --vocab-size 512 --embed-dim 32 --state-dim 16 --target 0.9

    The law proposes a number, and a few training runs correct it. Leave out --num-facts to find the largest number of
    facts, or --state-dim or --embed-dim to find the smallest size. Your own torch.nn.Module needs no law; --solve-for
    takes any integer argument of its constructor:

    recallscope capacity --model examples/my_memory.py:Model --vocab-size 64 --num-facts 4 --target 0.8 --solve-for width

    With --state-format, accuracies are those of models with the state stored in few bits. Every run is kept in --store
    and reused.
    """  # noqa: E501

    target: float
    """Target accuracy, between 0 and 1."""
    solve_for: OptionalText = None
    """The field to find (default: the one that is left out)."""
    max_runs: int = 6
    """Largest number of training runs."""
    store: Path = Path("runs/capacity")
    """Folder of the training runs; created if missing."""
    workers: OptionalInt = None
    """Training runs in parallel (default: one per core), used by the learning-rate search; 0: in this process."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """Build the question, search, print."""
        from recallscope.measuring.capacity import find_capacity
        from recallscope.measuring.training_runs import store_trainer
        from recallscope.runs.store import RunStore
        from recallscope.runs.views import PlainView

        question = self._question()
        search = question.law is None and not self.starts and "learning_rate" not in self.given("train")
        store = RunStore(self.store, create=True)
        precision, view = self.precision(), None if self.quiet else PlainView(sys.stderr)
        trainer = store_trainer(store, workers=self.workers, view=view, weights=precision is not None)
        stored = None
        if precision is not None:
            from recallscope.measuring.stored_states import stored_accuracy

            stored = stored_accuracy(store, precision)
        easier = not self.starts and "training_facts" not in self.given("train")
        found = find_capacity(
            question, trainer, max_runs=self.max_runs, search_rates=search, easier=easier, stored=stored
        )
        if self.json:
            how = {} if precision is None else {"precision": precision.model_dump(mode="json")}
            print_json(asdict(found) | {"seconds": found.seconds, "store": str(self.store)} | how)
        else:
            self._print(found)
            show([] if precision is None else [f"state: {precision.label}"])
        return 0

    def _question(self) -> CapacityQuery:
        from recallscope.measuring.capacity import CapacityQuery
        from recallscope.measuring.training_runs import RECIPE
        from recallscope.theory.problem import probability

        probability("target", self.target)
        fields = self.run_fields(RECIPE)
        missing = self.missing(fields)
        unknown = self.solve_for or (missing[0] if len(missing) == 1 else None)
        if unknown is None and not missing:
            raise ValueError(
                "nothing is left to find: leave out --num-facts, --state-dim or --embed-dim, or name a field with "
                "--solve-for. To measure one model, use recallscope measure."
            )
        for part in ("task", "model"):
            fields[part].pop(unknown, None)
        question = CapacityQuery(fields, unknown, self.target) if unknown else None
        more = [name for name in missing if name != unknown]
        if question is None or more:
            flags = ", ".join("--" + name.replace("_", "-") for name in more)
            raise ValueError(
                f"too much is left to find: {flags}{' as well' * bool(unknown)}. Leave out one field only."
            )
        return question

    def _print(self, found: Capacity) -> None:
        show(found.sentences, bold=1)
        if found.runs:
            rows = [
                (
                    str(tried.value),
                    number(tried.accuracy) + ("" if tried.learned else " at chance"),
                    number(tried.seconds, 1) if tried.new else "found",
                    tried.run[:8],
                )
                for tried in sorted(found.runs, key=lambda tried: tried.value)
            ]
            console().print(table((found.unknown, "accuracy", "seconds", "run"), rows))
            show([found.effort])


def command_for(arguments: Sequence[str]) -> type:
    """The command with flags for the task and the model that are asked for."""
    return with_run_flags(FindCapacity, arguments)
