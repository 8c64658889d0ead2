"""A store into one file, and back. Records only: weights, checkpoints and failures are not packed."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.atomic import TEMPORARY, write_atomically
from recallscope.records import RecordError, file_text
from recallscope.runs.packed import packed_line
from recallscope.runs.store import RECORD, WEIGHTS, RunStore, StoreError


@dataclass
class Copied:
    """How many records were copied, and what was left out."""

    runs: int = 0
    weights: int = 0
    unfinished: int = 0  # runs without a record, failed ones included
    damaged: int = 0


def pack_store(store: RunStore, path: Path | str) -> Copied:
    """Write all records of a store into one file, in order of name; the same records always give the same bytes.

    A packed store of this name is replaced; any other file is not, with a StoreError.
    """
    path = Path(path)
    if path.exists():
        try:
            packed = RunStore(path).read_only
        except StoreError:
            packed = False
        if not packed:
            raise StoreError(f"{path} exists and is not a packed store. Name another file, or move it away.")
    copied = Copied()
    lines = [packed_line(facts) for facts in _records(store, copied)]
    header = store.marker | {"runs": copied.runs, "weights": copied.weights}
    write_atomically(path, b"".join([packed_line(header), *lines]))
    return copied


def unpack_store(store: RunStore, folder: Path | str) -> Copied:
    """Write all records of a store as a folder of files, each as it was before it was packed. All or nothing.

    StoreError if the folder has any files.
    """
    folder, copied = Path(folder), Copied()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} exists and is not an empty folder. Name a new one.")
    beside = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        (beside / "runs").mkdir(parents=True)
        for facts in _records(store, copied):
            (beside / "runs" / facts["run"]).mkdir()
            (beside / "runs" / facts["run"] / RECORD).write_bytes(file_text(facts))
        marker = {name: value for name, value in store.marker.items() if name not in ("runs", "weights")}
        (beside / "store.json").write_text(json.dumps(marker) + "\n", encoding="utf-8")
        os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return copied


def _records(store: RunStore, copied: Copied) -> Iterator[dict[str, Any]]:
    """All sound records as plain data, in order of name; counts them and the rest."""
    for run in store.names():
        copied.weights += (store.folder(run) / WEIGHTS).exists()
        try:
            facts = store.facts(run)
        except RecordError:
            copied.damaged += 1
            continue
        if facts is None:
            copied.unfinished += 1
        else:
            copied.runs += 1
            yield facts
