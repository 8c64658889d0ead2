"""The folder of `train --out`: what may be written there, what is there already, and what is set aside.

Everything is checked before a run begins. A finished run of another spec is never replaced unless that is asked for; a
checkpoint that cannot be resumed is renamed, never removed.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from recallscope.cli.output import warn
from recallscope.health import examine
from recallscope.records import NewerRecordError, RecordError, RunRecord, differences, read_facts, record_from
from recallscope.runs.store import CHECKPOINT, DAMAGED, RECORD, WEIGHTS
from recallscope.specs import RunSpec

if TYPE_CHECKING:
    from recallscope.train.loop import Trained

WAY_OUT = "Name another folder, or replace what is there with: recallscope train ... --overwrite."


def finished_run(folder: Path, run: RunSpec, *, overwrite: bool = False) -> RunRecord | None:
    """The record of this very run if it is there; ValueError if the folder cannot take the run, or has another.

    With `overwrite` whatever is finished there does not count.
    """
    _check_place(folder)
    if overwrite:
        return None
    path = folder / RECORD
    if not path.exists():
        if (folder / WEIGHTS).exists() and not (folder / CHECKPOINT).exists():
            raise ValueError(f"{folder / WEIGHTS} is there without a record that says what run it is of. {WAY_OUT}")
        return None
    try:
        facts = read_facts(path.read_bytes())
        record = record_from(facts)
    except NewerRecordError as error:
        raise ValueError(f"{path} is of a run that cannot be compared with this one: {error} {WAY_OUT}") from error
    except RecordError as error:
        raise ValueError(f"{path} is damaged: {error}. {WAY_OUT}") from error
    if record.run != run.content_hash():
        raise ValueError(
            f"{folder} holds a finished run, {record.run[:8]} (accuracy {record.test_accuracy:.4f}), and this is "
            f"another: it differs {differences(record.identity, run.identity())}. {WAY_OUT}"
        )
    return record


def checkpoint_in(folder: Path) -> Path:
    """Where the state of an unfinished run is."""
    return folder / CHECKPOINT


def keep(trained: Trained, folder: Path) -> None:
    """Write record.json and weights.safetensors; the checkpoint is not needed any more and goes."""
    from recallscope.train.weights import write_record, write_weights

    write_weights(folder / WEIGHTS, trained.model, trained.record.spec.task)
    write_record(folder / RECORD, trained.record)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def warn_of(record: RunRecord) -> str:
    """Say on stderr what is wrong with a run, if anything is; returns the sentence."""
    sentence = examine(record.model_dump(mode="json")).sentence
    warn(f"this run {sentence}" if sentence else "")
    return sentence


def set_checkpoint_aside(checkpoint: Path) -> Path:
    """Rename a checkpoint so that its run can begin anew; returns the new name, which nothing has yet."""
    stamp, number = time.strftime("%Y%m%d-%H%M%S", time.gmtime()), 0
    while (aside := checkpoint.with_name(f"{checkpoint.stem}-set-aside-{stamp}-{number}{checkpoint.suffix}")).exists():
        number += 1
    os.rename(checkpoint, aside)
    return aside


def _check_place(folder: Path) -> None:
    """Make the folder and write a file there, or say why that cannot be."""
    place = folder.resolve()
    for root in (place, *place.parents):
        if (root / "store.json").exists() and (
            place == root or {"runs", DAMAGED} & {*place.relative_to(root).parts[:1]}
        ):
            raise ValueError(
                f"{folder} belongs to the store {root}, which keeps its runs itself. Name a folder outside of it, or "
                f"run a grid there: recallscope sweep GRID --store {root}"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".try-"):
            pass
    except OSError as error:
        raise ValueError(
            f"a run cannot be kept in {folder}: {error.strerror} ({error.filename}). Nothing was trained. Name a "
            f"folder that can be made and written."
        ) from error
