"""What makes a folder a store: a small file that says so, and an identity by which another host knows it again."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from recallscope.atomic import write_atomically

FORMAT = "recallscope-store"
VERSION = 1


class StoreError(ValueError):
    """A folder that is no store, or a question it cannot answer; the message says which and what to do."""


def open_marker(root: Path, *, create: bool) -> dict[str, Any]:
    """The facts of the store at `root`; `create` makes one of a new or empty folder."""
    marker = root / "store.json"
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file, and a store is a folder. Name a folder, new or made by recallscope sweep.")
    if not marker.exists():
        if not create:
            raise StoreError(
                f"{root} is not a store: it has no store.json. Fill one with: recallscope sweep GRID --store {root}"
            )
        _make(root, marker)
    try:
        facts = json.loads(marker.read_bytes())
        fine = isinstance(facts, dict) and facts.get("format") == FORMAT and isinstance(facts.get("version"), int)
    except (ValueError, RecursionError):
        fine = False
    if not fine:
        raise StoreError(
            f"{marker} is damaged: it should say {FORMAT!r}. "
            f"Move it away, and the next sweep makes a new one; runs stay."
        )
    if facts["version"] > VERSION:
        raise StoreError(
            f"{root} is a store of version {facts['version']}, and this recallscope knows {VERSION}. "
            f"Upgrade recallscope to read it."
        )
    return dict(facts)


def _make(root: Path, marker: Path) -> None:
    others = sorted(path.name for path in root.iterdir()) if root.exists() else []
    if others and "runs" not in others:
        raise StoreError(
            f"{root} holds other files ({', '.join(others[:3])} ...) and is not a store. Name a new or an empty folder."
        )
    (root / "runs").mkdir(parents=True, exist_ok=True)
    facts = {"format": FORMAT, "version": VERSION, "id": uuid.uuid4().hex}
    write_atomically(marker, (json.dumps(facts) + "\n").encode())
