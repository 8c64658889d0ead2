"""What the commands that train share: choosing a device, and a run that can be stopped and resumed."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from pathlib import Path

import torch

from recallscope.cli.output import warn
from recallscope.cli.run_folder import set_checkpoint_aside
from recallscope.runs.driver import stop_on_signals
from recallscope.specs import RunSpec
from recallscope.train.checkpoint import CheckpointError, OtherRunError, read_checkpoint
from recallscope.train.loop import Trained, train_run
from recallscope.train.progress import Tick, is_interactive, progress_bar


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


def train_resumable(
    run: RunSpec, *, device: torch.device, checkpoint: Path | None = None, overwrite: bool = False, quiet: bool = False
) -> Trained:
    """Train with a bar on stderr unless `quiet`.

    Ctrl-C and SIGTERM stop the run between two steps, and KeyboardInterrupt says how to resume. A checkpoint that
    cannot be resumed is renamed, and the run begins anew; that of another run only with `overwrite`.
    """
    try:
        return _train_until_stopped(run, device, checkpoint, quiet)
    except CheckpointError as error:
        assert checkpoint is not None
        if isinstance(error, OtherRunError) and not overwrite:
            raise
        warn(f"{error} Set aside as {set_checkpoint_aside(checkpoint).name}; begins anew.")
        return _train_until_stopped(run, device, checkpoint, quiet)


def _train_until_stopped(run: RunSpec, device: torch.device, checkpoint: Path | None, quiet: bool) -> Trained:
    stop, reached = threading.Event(), 0
    watched = is_interactive() and not quiet
    with stop_on_signals(stop), progress_bar(run.train.total_steps) if watched else contextlib.nullcontext() as show:

        def on_progress(tick: Tick) -> None:
            nonlocal reached
            reached = tick.step
            if stop.is_set():
                raise KeyboardInterrupt
            if show:
                show(tick)

        try:
            return train_run(run, device=device, checkpoint=checkpoint, on_progress=on_progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped at step {reached}. {_what_is_kept(run, checkpoint)}") from None


def _what_is_kept(run: RunSpec, checkpoint: Path | None) -> str:
    """What a run that was stopped can be resumed from, and how."""
    if checkpoint is None:
        return "Nothing was kept: with --out DIR a run is checkpointed, and the same command resumes it."
    kept = None
    with contextlib.suppress(CheckpointError):  # stopped before it was looked at
        kept = read_checkpoint(checkpoint, run)
    if kept is None:
        return f"The first checkpoint is written at step {run.train.eval_every}: the same command begins anew."
    return f"{checkpoint} is of step {kept.step}: the same command resumes there."
