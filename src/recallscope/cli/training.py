"""What the training verbs share: choosing a device, the progress bar, and keeping a finished run."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recallscope.specs import RunSpec
from recallscope.train.loop import Tick, Trained, train_run
from recallscope.train.weights import write_record, write_weights


def use_threads(count: int) -> None:
    """Threads of this process. One is the fastest for models this small, and the only number with bit-equal results."""
    if not 1 <= count <= 1024:
        raise ValueError(f"threads={count} is outside 1..1024. Use --threads 1 unless the model is large.")
    torch.set_num_threads(count)


def keep_freed_memory() -> None:
    """Tell glibc not to hand large temporaries back after every operation: page faults would nearly double a step.

    A request, not a need: where there is no glibc, nothing happens.
    """
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 2_000_000_000)
        libc.mallopt(mmap_threshold, 1_000_000_000)


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA if there is one; anything else is taken by its word and checked."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={name!r} cannot be used here ({str(error).splitlines()[0]}). Use --device auto or cpu."
        ) from error
    return device


def train_with_bar(run: RunSpec, *, device: torch.device, checkpoint: Path | None = None) -> Trained:
    """Train with a bar on stderr: steps, steps per second, loss, accuracy, time left."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>7} loss {task.fields[loss]:>6} accuracy {task.fields[accuracy]:>6}"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
    )
    with bar:
        row = bar.add_task("training", total=run.train.total_steps, rate="", loss="", accuracy="")

        def show(tick: Tick) -> None:
            bar.update(
                row,
                completed=tick.step,
                rate=f"{tick.step / max(tick.seconds, 1e-9):.0f}/s",
                loss=f"{tick.loss:.3f}",
                accuracy="" if tick.accuracy is None else f"{tick.accuracy:.4f}",
            )

        return train_run(run, device=device, checkpoint=checkpoint, on_progress=show)


def keep(trained: Trained, folder: Path) -> None:
    """record.json and weights.safetensors; the checkpoint has done its duty and goes."""
    write_weights(folder / "weights.safetensors", trained.model, trained.record.spec.task)
    write_record(folder / "record.json", trained.record)
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
