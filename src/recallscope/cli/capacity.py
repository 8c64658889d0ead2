"""`recallscope capacity`: how much does a trained model really hold? Few trainings instead of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.cli.flags import OptionalInt, OptionalText, Quiet, print_json
from recallscope.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from recallscope.measuring.capacity import Capacity
    from recallscope.measuring.capacity_question import CapacityQuestion


@dataclass(kw_only=True)
class FindCapacity(RunFlags):
    """recallscope capacity --model linear --vocab-size 512 --embed-dim 32 --state-dim 16 --target 0.9

    Train until it is known how many facts a model holds at a target recall: the law proposes a number, training
    corrects it. Leave out --num-facts to find the most facts, or --state-dim or --embed-dim to find the least. A
    torch.nn.Module of your own needs no law; any whole number among its arguments can be looked for:

    recallscope capacity --model examples/my_memory.py:Model --vocab-size 64 --num-facts 4 --target .8 --solve-for width

    Every training is kept in --store and used again.
    """

    target: float
    """Wanted recall, between 0 and 1."""
    solve_for: OptionalText = None
    """The field to find; unless given, the one that is left out."""
    most: int = 6
    """Trainings at most."""
    store: Path = Path("runs/capacity")
    """Folder of the trainings, made if it does not exist."""
    workers: OptionalInt = None
    """Training runs in parallel (default: one per core), used by the learning-rate search; 0: in this process."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """Build the question, search, print."""
        from recallscope.measuring.capacity import find_capacity
        from recallscope.measuring.trainings import store_trainer
        from recallscope.runs.store import RunStore

        question = self._question()
        search = question.law is None and not self.starts and "learning_rate" not in self.given("train")
        store = RunStore(self.store, create=True)
        trainer = store_trainer(store, workers=self.workers, view=None if self.quiet else progress_lines())
        found = find_capacity(question, trainer, most=self.most, search_rates=search)
        if self.json:
            print_json(asdict(found) | {"seconds": found.seconds, "store": str(self.store)})
        else:
            self._print(found)
        return 0

    def _question(self) -> CapacityQuestion:
        from recallscope.measuring.capacity_question import CapacityQuestion
        from recallscope.measuring.trainings import RECIPE
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
        question = CapacityQuestion(fields, unknown, self.target) if unknown else None
        more = [name for name in missing if name != unknown]
        if question is None or more:
            flags = ", ".join("--" + name.replace("_", "-") for name in more)
            raise ValueError(
                f"too much is left to find: {flags}{' as well' * bool(unknown)}. Leave out one field only."
            )
        return question

    def _print(self, found: Capacity) -> None:
        from rich.console import Console
        from rich.table import Table

        from recallscope.runs.views import clock

        console = Console(highlight=False)
        answer = "no answer" if found.value is None else f"{found.unknown} = {found.value}"
        console.print(f"[bold]{answer}[/bold]   {found.reason}")
        if found.crossing is not None and found.interval is not None:
            low, high = found.interval
            console.print(
                f"recall {found.target:g} at {found.unknown} = {found.crossing:.2f}  (95 %: {low:.2f} to {high:.2f}, "
                f"probit fit against {f'the variable of {found.law}' if found.law else 'log n'})"
            )
        if found.law:
            console.print(f"{found.law} alone says {found.predicted}")
        if found.rate:
            console.print(found.rate.sentence())
        if found.trainings:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for name in (found.unknown, "accuracy", "seconds", "run"):
                table.add_column(name, justify="right")
            for tried in sorted(found.trainings, key=lambda tried: tried.value):
                seconds = f"{tried.seconds:.1f}" if tried.new else "found"
                table.add_row(str(tried.value), f"{tried.accuracy:.4f}", seconds, tried.run[:8])
            console.print(table)
            count = len(found.trainings)
            short = f" and {len(found.rate.losses)} short ones" if found.rate else ""
            console.print(
                f"{count} training{'s' * (count > 1)}{short}, {clock(found.seconds)} of a core; every value up to "
                f"{found.grid_trainings} would take {found.grid_trainings} trainings, {clock(found.grid_seconds)}"
            )


def progress_lines() -> Any:
    """Plain lines on stderr, one per training."""
    import sys

    from recallscope.runs.views import PlainView

    return PlainView(sys.stderr)


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with flags for the task and the model that are asked for."""
    return with_run_flags(FindCapacity, arguments)
