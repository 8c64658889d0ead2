"""A bar while a run trains: on a terminal or in a notebook, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@dataclass(frozen=True)
class Tick:
    """What a progress bar wants to know."""

    step: int
    total_steps: int
    loss: float
    accuracy: float | None  # of the latest evaluation
    seconds: float


def is_interactive() -> bool:
    """Whether stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or Console().is_jupyter


@contextmanager
def progress_bar(total_steps: int) -> Iterator[Callable[[Tick], None]]:
    """A bar on stderr, and the function that moves it: steps, steps per second, loss, accuracy, time left."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>7} loss {task.fields[loss]:>6} accuracy {task.fields[accuracy]:>6}"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
    )
    with bar:
        row = bar.add_task("training", total=total_steps, rate="", loss="", accuracy="")

        def show(tick: Tick) -> None:
            bar.update(
                row,
                completed=tick.step,
                rate=f"{tick.step / max(tick.seconds, 1e-9):.0f}/s",
                loss=f"{tick.loss:.3f}",
                accuracy="" if tick.accuracy is None else f"{tick.accuracy:.4f}",
            )

        yield show
