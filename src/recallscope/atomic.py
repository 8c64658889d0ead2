"""Files that are whole or not there: written beside, flushed, renamed over. All records and checkpoints rest on it."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

TEMPORARY = ".tmp"  # how a file's name ends while it is being written; a leftover one is half a file

between_writes = threading.Lock()  # whoever holds it may end the process without leaving half a file


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush to the disk, rename over, flush the folder.

    After a crash at any moment the path holds the old bytes or the new, never a mixture. The name beside is drawn at
    random, as process ids repeat between the hosts of a network file system.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    with between_writes:
        try:
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)  # a full disk should not be filled further by what it refused
            raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names of a folder last: without it a rename may be undone by a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_half_written(name: str) -> bool:
    """Whether a file of this name is what a killed `write_atomically` leaves behind."""
    return name.startswith(".") and name.endswith(TEMPORARY)
