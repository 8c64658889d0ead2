"""`recallscope store verify | rebuild | gc`: keep a store sound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recallscope.cli.flags import print_json

Folder = Annotated[Path, tyro.conf.Positional]


@dataclass(kw_only=True)
class Verify:
    """recallscope store verify STORE

    Read every file. What is damaged or half written is named and moved to STORE/damaged, never deleted; a sweep then
    runs those cells again. Exit code 1 if anything was found.
    """

    store: Folder
    """Folder of the runs."""
    dry_run: bool = False
    """Only name it."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Look at everything, report."""
        from recallscope.store import RunStore, verify

        health = verify(RunStore(self.store), move=not self.dry_run)
        if self.json:
            print_json({"clean": health.clean, **asdict(health)})
            return 0 if health.clean else 1
        for fault in health.faults:
            print(
                f"damaged: {fault.path}: {fault.reason}"
                + (f"; set aside as {fault.moved_to}" if fault.moved_to else "")
            )
        for refused in health.newer:
            print(f"refused: {refused}")
        if health.index_was_wrong:
            print("the index did not agree with the files" + (" and was made anew" if not self.dry_run else ""))
        counts = f"{health.done} done, {health.failed} failed, {health.running} running, {health.begun} begun"
        print(
            f"{counts}: "
            + ("clean" if health.clean else f"{len(health.faults)} damaged, {len(health.newer)} of a newer version")
        )
        if health.set_aside_before:
            print(f"{health.set_aside_before} files set aside earlier lie in {self.store / 'damaged'}")
        return 0 if health.clean else 1


@dataclass(kw_only=True)
class Rebuild:
    """recallscope store rebuild STORE

    Make the index anew from the files. Never needed, always allowed.
    """

    store: Folder
    """Folder of the runs."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Read every record, write the index."""
        import time

        from recallscope.store import RunStore, rebuild_index

        began = time.monotonic()
        count = rebuild_index(RunStore(self.store))
        seconds = time.monotonic() - began
        print_json({"runs": count, "seconds": seconds}) if self.json else print(
            f"{count} runs indexed in {seconds:.1f} s"
        )
        return 0


@dataclass(kw_only=True)
class Gc:
    """recallscope store gc STORE --dry-run

    Remove what finished runs left over: checkpoints, claims, old failure notes. Records, weights and the checkpoints of
    unfinished runs stay. With --damaged also what was set aside.
    """

    store: Folder
    """Folder of the runs."""
    damaged: bool = False
    """Remove STORE/damaged as well."""
    dry_run: bool = False
    """Only name it."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find and remove."""
        from recallscope.store import RunStore, collect_garbage

        found = collect_garbage(RunStore(self.store), damaged=self.damaged, dry_run=self.dry_run)
        size = sum(bytes_ for _, bytes_ in found)
        if self.json:
            print_json({"files": [name for name, _ in found], "bytes": size, "removed": not self.dry_run})
            return 0
        for name, _ in found:
            print(name)
        print(f"{len(found)} files, {size / 1e6:.1f} MB {'would be removed' if self.dry_run else 'removed'}")
        return 0
