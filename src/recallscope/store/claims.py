"""Claims: which process works on a run, with a lease that ends by itself. Nothing but exclusive creation is relied
upon.

The claims of a run are numbered files, `claim.1`, `claim.2` ... in its folder, none of which is removed before the run
has a record. Only the creation of a file that must not exist decides (O_EXCL, which is atomic on local and network file
systems alike): who sees that the last claim has ended and is first to create the next number holds the run. A lease is
kept alive by touching the file. Ages are differences between two times of the same file system, so the clocks of hosts
do not matter; and a holder of this machine whose process is gone is known to be dead at once.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from recallscope.atomic import write_atomically
from recallscope.store.holder import Holder, surely_dead, this_process

LEASE_SECONDS = 60.0  # after so long without a sign of life a claim has ended
CLOCK = ".clock"  # touched to learn the time of the file system
_NAME = re.compile(r"claim\.([1-9][0-9]{0,8})")


class _Text(BaseModel):
    """What a claim file says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    holder: Holder
    lease_seconds: float
    released: bool = False


@dataclass(frozen=True)
class Claim:
    """A run that is ours until we release it or fall silent for longer than the lease."""

    path: Path
    lease_seconds: float

    def renew(self) -> bool:
        """Show that we live; False if another has taken the run over while we were silent (a lid was closed).

        First the sign, then the look, as a rival does: one of the two is bound to see the other.
        """
        try:
            os.utime(self.path)  # no times given: the file system's own clock
        except FileNotFoundError:
            return False
        if any(is_live(path) for path in claim_files(self.path.parent) if path != self.path):
            self.release()
            return False
        return True

    def release(self) -> None:
        """Let the next one have it. The file stays, marked: were it removed, a slow rival could take its number
        again."""
        with contextlib.suppress(OSError):
            if self.path.exists():
                text = _Text(holder=this_process(), lease_seconds=self.lease_seconds, released=True)
                write_atomically(self.path, text.model_dump_json().encode())


def try_claim(folder: Path, lease_seconds: float = LEASE_SECONDS) -> Claim | None:
    """Claim the run of this folder, or None if another holds it. Of any number of rivals at most one succeeds."""
    folder.mkdir(parents=True, exist_ok=True)
    before = claim_files(folder)
    if any(is_live(path) for path in before):
        return None
    number = _number(before[-1]) + 1 if before else 1
    claim = Claim(folder / f"claim.{number}", lease_seconds)
    text = _Text(holder=this_process(), lease_seconds=lease_seconds).model_dump_json().encode()
    try:
        descriptor = os.open(claim.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except (FileExistsError, FileNotFoundError):  # another was quicker, to claim it or to clear an empty folder away
        return None
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
    # Claims vanish when a run is finished. A rival that looked before that and one that looked after may both have
    # created a number; each sees the other here, and whoever sees another steps back.
    if any(is_live(path) for path in claim_files(folder) if path != claim.path):
        claim.release()
        return None
    return claim


def is_live(path: Path) -> bool:
    """Whether a claim file still holds: not released, its process not seen dead, its lease not run out."""
    try:
        data, touched = path.read_bytes(), path.stat().st_mtime
    except FileNotFoundError:
        return False
    try:
        text = _Text.model_validate_json(data)
    except ValidationError:  # just created and not yet written, or cut off while it was
        return _now(path.parent) - touched <= LEASE_SECONDS
    if text.released or surely_dead(text.holder):
        return False
    return _now(path.parent) - touched <= text.lease_seconds


def claim_files(folder: Path) -> list[Path]:
    """A folder's claims, in the order of their numbers."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((folder / name for name in names if _NAME.fullmatch(name)), key=_number)


def drop_claims(folder: Path) -> None:
    """Remove all claims of a run; only for one that has its record, as whoever claims looks for that next."""
    for path in (*claim_files(folder), folder / CLOCK):
        path.unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _now(folder: Path) -> float:
    """The time by the clock of the file system that holds the folder, read off a file touched now."""
    clock = folder / CLOCK
    clock.touch()
    return clock.stat().st_mtime
