"""`recallscope store verify | restore | rebuild | gc`: look after a store."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recallscope.cli.flags import print_json

if TYPE_CHECKING:
    from recallscope.runs import RunStore

Folder = Annotated[Path, tyro.conf.Positional]


def warn_of_damage(store: RunStore) -> None:
    """Say on stderr which records count for nothing, as they were edited, cut off or lost."""
    from recallscope.runs import find_runs, parse_conditions

    damaged = find_runs(store, parse_conditions(["status=damaged"]), columns=["run"])
    if damaged:
        print(
            f"recallscope: left out {len(damaged)} damaged record{'s' * (len(damaged) > 1)}, {damaged[0]['run'][:8]} "
            f"first; recallscope store verify {shlex.quote(str(store.root))} --dry-run says why.",
            file=sys.stderr,
        )


@dataclass(kw_only=True)
class Verify:
    """recallscope store verify STORE

    Read every file. What is damaged, half written or edited since it was written is named and moved to STORE/damaged,
    never deleted; a sweep then runs those cells again, and recallscope store restore brings it back. Exit code 1 if
    anything was. Records that need another version, or code that is not installed, are counted apart and left as they
    are, as are links, which are not followed.
    """

    store: Folder
    """Folder of the runs."""
    dry_run: bool = False
    """Only name it: nothing is written, so a store that may only be read will do."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Read everything, report."""
        from recallscope.runs import RunStore, verify

        health = verify(RunStore(self.store), move=not self.dry_run)
        if self.json:
            print_json({"clean": health.clean, **asdict(health)})
            return 0 if health.clean else 1
        for fault in health.faults:
            print(
                f"damaged: {fault.path}: {fault.reason}"
                + (f"; set aside as {fault.moved_to}" if fault.moved_to else "")
            )
        for reason in health.newer:
            print(f"not read: {reason}")
        for name in health.links:
            print(f"not followed: {name} is a link")
        if health.index_was_wrong:
            print("the index did not agree with the files" + (" and was made anew" if not self.dry_run else ""))
        counts = f"{health.done} done, {health.failed} failed, {health.running} running, {health.begun} begun"
        counts += f", {len(health.newer)} that need another version" if health.newer else ""
        print(f"{counts}: " + ("clean" if health.clean else f"{len(health.faults)} damaged"))
        if health.without_digest:
            print(f"{health.without_digest} of an earlier version have no digest: whether they were edited is unknown")
        if health.set_aside_before:
            print(
                f"{health.set_aside_before} files set aside earlier lie in {self.store / 'damaged'}; "
                f"recallscope store restore {self.store} lists them"
            )
        return 0 if health.clean else 1


@dataclass(kw_only=True)
class Restore:
    """recallscope store restore STORE

    List what was set aside in STORE/damaged, and why. With names, or --all, move it back to where it was. A file that
    is there is never replaced. Exit code 1 if something could not be moved back.
    """

    store: Folder
    """Folder of the runs."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """What to bring back: names as listed, or how they begin; a run's name for all of its files."""
    all: bool = False
    """Bring back everything."""
    dry_run: bool = False
    """Only say what would be moved."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """List, or move back and report."""
        from recallscope.runs import RunStore, list_set_aside, restore

        store, asked = RunStore(self.store), bool(self.names or self.all)
        if self.names and self.all:
            raise ValueError("--all brings everything back, and names only some of it. Give one or the other.")
        names = None if self.all else list(self.names)
        items = restore(store, names, dry_run=self.dry_run) if asked else list_set_aside(store)
        refused = [item for item in items if item.why_not]
        if self.json:
            print_json({"files": [asdict(item) for item in items], "moved": sum(item.restored for item in items)})
            return 1 if refused else 0
        for item in items:
            told = f"left there: {item.why_not}" if item.why_not else "restored" if item.restored else item.reason
            print(f"{item.name}  {item.file}: {told}")
        if not asked:
            print(f"{len(items)} set aside" + ("; name what to bring back, or --all" if items else ""))
        else:
            done = "would be restored" if self.dry_run else "restored"
            print(f"{len(items) - len(refused)} {done}, {len(refused)} left")
        return 1 if refused else 0


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

        from recallscope.runs import RunStore, rebuild_index

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

    Remove what finished runs left over: checkpoints, leases, old failure notes. Records, weights and the checkpoints of
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
        from recallscope.runs import RunStore, collect_garbage

        found = collect_garbage(RunStore(self.store), damaged=self.damaged, dry_run=self.dry_run)
        size = sum(bytes_ for _, bytes_ in found)
        if self.json:
            print_json({"files": [name for name, _ in found], "bytes": size, "removed": not self.dry_run})
            return 0
        for name, _ in found:
            print(name)
        print(f"{len(found)} files, {size / 1e6:.1f} MB {'would be removed' if self.dry_run else 'removed'}")
        return 0
