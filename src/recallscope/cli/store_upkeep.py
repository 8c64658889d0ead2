"""`recallscope store verify`, `pack` and `unpack`: look after a store."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recallscope.cli.flags import print_json

if TYPE_CHECKING:
    from recallscope.runs import Copied, RunStore

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
    never deleted, with a note that says where it was and why; a sweep then runs those cells again. Exit code 1 if
    anything was. Records that need another version, or code that is not installed, are counted apart and left as they
    are, as are links, which are not followed.
    """

    store: Folder
    """Folder of the runs, or a packed file, in which nothing is moved."""
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
                f"{health.set_aside_before} files set aside earlier are in {self.store / 'damaged'}, each with a note"
            )
        return 0 if health.clean else 1


@dataclass(kw_only=True)
class Pack:
    """recallscope store pack STORE runs.jsonl

    Write all records into one file, one per line. Every command that reads a store also reads this file; none writes
    to it. Weights, checkpoints and failures are not packed. Placed inside a store's folder as runs.jsonl, the file is
    the read-only part of that store, and new runs are added beside it.
    """

    store: Folder
    """Folder of the runs."""
    out: Annotated[Path, tyro.conf.Positional]
    """File to write; an earlier packed store of this name is replaced."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Pack, report."""
        from recallscope.runs import RunStore, pack_store

        return _report(pack_store(RunStore(self.store), self.out), self.store, self.out, self.json)


@dataclass(kw_only=True)
class Unpack:
    """recallscope store unpack runs.jsonl STORE

    The inverse of pack: a folder with one record.json per run, byte for byte as recallscope wrote them.
    """

    store: Folder
    """Packed file."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to make; it must be new or empty."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Unpack, report."""
        from recallscope.runs import RunStore, unpack_store

        return _report(unpack_store(RunStore(self.store), self.out), self.store, self.out, self.json)


def _report(copied: Copied, store: Path, out: Path, as_json: bool) -> int:
    """Print what was copied and what was left out; exit code 1 if damaged records were."""
    if as_json:
        print_json({"file": str(out), **asdict(copied)})
    else:
        left = {"weights files": copied.weights, "unfinished runs": copied.unfinished, "damaged": copied.damaged}
        print(f"{copied.runs} runs in {out}")
        if any(left.values()):
            print("left out: " + ", ".join(f"{count} {what}" for what, count in left.items() if count))
        if copied.damaged:
            print(f"what is damaged: recallscope store verify {shlex.quote(str(store))} --dry-run")
    return 1 if copied.damaged else 0
