"""Files that cannot be trusted are moved out of the way with a note, and never deleted: someone may want to look."""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from recallscope.atomic import flush_folder, write_atomically

DAMAGED = "damaged"


@dataclass(frozen=True)
class Fault:
    """One file that is not as it should be, and what became of it."""

    path: str  # inside the store
    reason: str
    moved_to: str | None = None  # inside the store; None if it was only looked at


def set_aside(root: Path, path: Path, reason: str) -> Fault | None:
    """Move a file of a store to `damaged/`, with a note beside it; None if another was quicker."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    home = root / DAMAGED / f"{stamp}-{uuid.uuid4().hex[:8]}"
    home.mkdir(parents=True)
    inside = str(path.relative_to(root))
    note = {"file": inside, "reason": reason, "set_aside": stamp}
    write_atomically(home / "note.json", (json.dumps(note, indent=1) + "\n").encode())
    try:
        os.rename(path, home / path.name)
    except FileNotFoundError:
        (home / "note.json").unlink()
        home.rmdir()
        return None
    flush_folder(path.parent)
    return Fault(inside, reason, str((home / path.name).relative_to(root)))


def all_set_aside(root: Path) -> list[Path]:
    """The folders of `damaged/`, oldest first."""
    home = root / DAMAGED
    return sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
