"""One run, from spec to record, wherever it happens: in a worker of this machine or on a node of a cluster."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from recallscope.records import RunRecord
from recallscope.specs import RunSpec
from recallscope.store.damaged import set_aside
from recallscope.store.run_store import CHECKPOINT
from recallscope.train.checkpoint import read_checkpoint
from recallscope.train.loop import Tick, train_run
from recallscope.train.weights import write_weights


def do_run(
    spec: RunSpec,
    *,
    store: Path | None,
    device: str,
    weights: bool,
    on_progress: Callable[[Tick], None] | None = None,
) -> tuple[RunRecord, bytes | None]:
    """Train on one thread; returns the record and, if asked for, the weights as a safetensors file's bytes.

    With a store in reach the run is checkpointed there and goes on from what a predecessor saved; without one it starts
    afresh. Nothing but the checkpoint is written: the caller keeps the result.
    """
    torch.set_num_threads(1)
    checkpoint = store / "runs" / spec.content_hash() / CHECKPOINT if store else None
    if store and checkpoint and checkpoint.exists() and read_checkpoint(checkpoint, spec.content_hash()) is None:
        set_aside(store, checkpoint, "not a checkpoint of this run")
    trained = train_run(spec, device=device, checkpoint=checkpoint, on_progress=on_progress)
    if not weights:
        return trained.record, None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        write_weights(path, trained.model, spec.task)
        return trained.record, path.read_bytes()
