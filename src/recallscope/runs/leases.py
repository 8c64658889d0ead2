"""Leases: which process works on a run; and the log of its tries, with a note if it failed for good.

Leases end by themselves, and rely on nothing but exclusive creation of files.

The leases of a run are numbered files, `lease.1`, `lease.2` ... in its folder, none of which is removed before the run
has a record. Only the creation of a file that must not exist decides (O_EXCL, which is atomic on local and network file
systems alike): who sees that the last lease has ended and is first to create the next number holds the run. A lease is
kept alive by touching the file. Ages are differences between two times of the same file system, so the clocks of hosts
do not matter; and a holder on this machine whose process is gone is known to be dead at once. A lease dated in the
future, because that clock was set back, is dated anew when it is seen, and then ends like any other.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from recallscope.atomic import link_error, open_regular, write_atomically
from recallscope.specs import RunSpec, flat_fields

LEASE_SECONDS = 60.0  # a lease that was not renewed for so long has ended
NO_LEASE = (errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.ENXIO)  # gone, or not a file of ours
CLOCK = ".clock"  # touched to learn the time of the file system
MOST_SECONDS = 1e6  # that a lease may ask for; without a bound a stranger's would never end
_NAME = re.compile(r"(?:lease|claim)\.([1-9][0-9]*)")


class Holder(BaseModel):
    """One process. `machine` tells hosts, boots and containers apart; `born` tells reused process ids apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    machine: str
    pid: int
    born: str


class _Text(BaseModel):
    """The content of a lease file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    holder: Holder
    lease_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)]
    released: bool = False


@dataclass(frozen=True)
class Lease:
    """A run that is ours until we release it or do not renew it in time."""

    path: Path
    lease_seconds: float

    def renew(self) -> bool:
        """Extend the lease; False if another process has taken the run over meanwhile (a lid was closed).

        We touch our file first and then look for rivals, as a rival does: one of the two is bound to see the other.
        """
        try:
            os.utime(self.path, follow_symlinks=False)  # no times given: the file system's own clock
        except FileNotFoundError:
            return False
        if any(is_live(path) for path in lease_files(self.path.parent) if path != self.path):
            self.release()
            return False
        return True

    def release(self) -> None:
        """End the lease. The file stays, marked: were it removed, a slow rival could take its number again."""
        with contextlib.suppress(OSError):
            if self.path.exists():
                text = _Text(holder=this_process(), lease_seconds=self.lease_seconds, released=True)
                write_atomically(self.path, text.model_dump_json().encode())


def try_lease(folder: Path, lease_seconds: float = LEASE_SECONDS) -> Lease | None:
    """Lease the run of this folder, or None if another holds it. Of any number of rivals at most one succeeds."""
    if folder.is_symlink():
        raise link_error(folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = lease_files(folder)
    if any(is_live(path) for path in before):
        return None
    number = _number(before[-1]) + 1 if before else 1
    lease = Lease(folder / f"lease.{number}", lease_seconds)
    text = _Text(holder=this_process(), lease_seconds=lease_seconds).model_dump_json().encode()
    try:
        descriptor = os.open(lease.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except (FileExistsError, FileNotFoundError):  # another was quicker, to lease it or to clear an empty folder away
        return None
    try:
        os.write(descriptor, text)
    except OSError:  # a full disk: an empty file would count as a lease for a while
        lease.path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    # Leases vanish when a run is finished. A rival that looked before that and one that looked after may both have
    # created a number; each sees the other here, and whoever sees another steps back.
    if any(is_live(path) for path in lease_files(folder) if path != lease.path):
        lease.release()
        return None
    return lease


def is_live(path: Path, *, look_only: bool = False) -> bool:
    """Whether a lease file still holds: not released, its process not known to be dead, its time not run out.

    With `look_only` nothing is written, and the clock of this host has to do.
    """
    try:
        with open(open_regular(path), "rb") as file:
            data, touched = file.read(), os.fstat(file.fileno()).st_mtime
    except OSError as error:
        if error.errno in NO_LEASE:
            return False
        raise
    try:
        text = _Text.model_validate_json(data)
        lease_seconds = text.lease_seconds
        if text.released or known_dead(text.holder):
            return False
    except ValidationError:  # just created and not yet written, or cut off while it was
        lease_seconds = LEASE_SECONDS
    try:
        age = (time.time() if look_only else _now(path.parent)) - touched
    except FileNotFoundError:  # the folder was cleared away meanwhile, and the lease with it
        return False
    if age < 0 and not look_only:
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)
    return age <= lease_seconds


def is_leased(folder: Path, *, look_only: bool = False) -> bool:
    """Whether a process works on the run of this folder."""
    return any(is_live(path, look_only=look_only) for path in lease_files(folder))


def lease_files(folder: Path) -> list[Path]:
    """A folder's leases, in the order of their numbers."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((folder / name for name in names if _NAME.fullmatch(name)), key=_number)


def drop_leases(folder: Path) -> None:
    """Remove all leases of a run that has its record: whoever takes a lease looks for the record next."""
    for path in (*lease_files(folder), folder / CLOCK):
        with contextlib.suppress(IsADirectoryError):  # nobody's lease; `store verify` names it
            path.unlink(missing_ok=True)


def this_process() -> Holder:
    """This process, as a holder of leases."""
    return _holder(os.getpid())  # a forked child is another


@cache
def _holder(pid: int) -> Holder:
    return Holder(machine=this_machine(), pid=pid, born=_born(pid) or "")


@cache
def this_machine() -> str:
    """Host, boot and process space: only where all three agree does a process id mean anything to us."""
    parts = [socket.gethostname()]
    for read in (_boot, _process_space):
        try:
            parts.append(read())
        except OSError:  # not Linux: the host's name alone has to do
            parts.append("")
    return "/".join(parts)


def known_dead(holder: Holder) -> bool:
    """True only if we can see that the process is gone; a process of another machine is never surely dead."""
    if holder.machine != this_machine():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError, ValueError):
        return False
    born = _born(holder.pid)
    return bool(holder.born and born and born != holder.born)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _process_space() -> str:
    return os.readlink("/proc/self/ns/pid")


def _born(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, and None where it cannot be read; a zombie counts as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return "zombie" if fields[0] in ("Z", "X") else fields[19]


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _now(folder: Path) -> float:
    """The time by the clock of the file system that holds the folder, read off a file touched now.

    It is held open: whoever finishes the run may remove it at any moment.
    """
    clock = open_regular(folder / CLOCK, os.O_CREAT | os.O_WRONLY)
    try:
        os.utime(clock)
        return os.fstat(clock).st_mtime
    finally:
        os.close(clock)


# Tries

ATTEMPTS = "attempts.jsonl"
_AS_DATA = BeforeValidator(lambda spec: spec.model_dump(mode="json") if isinstance(spec, RunSpec) else spec)


class Failure(BaseModel):
    """A run that ended without a record as often as it may: what it was, and how the last try ended."""

    model_config = ConfigDict(frozen=True, strict=True)

    run: str
    spec: Annotated[dict[str, Any], _AS_DATA] = Field(description="of the run, as plain data")
    tries: int = Field(ge=1)
    reason: str = Field(description="how the last try ended, such as: killed by SIGKILL (out of memory?)")
    stderr: str = Field(description="the end of what the last try wrote there")
    at: float = Field(description="seconds since 1970")

    def row(self) -> dict[str, Any]:
        """The failed run as one flat row, as `records.row_of` makes of a finished one."""
        return {"run": self.run, "status": "failed", **flat_fields(self.spec)}


def read_failure(path: Path) -> Failure:
    """The note of a file; ValueError if it is none."""
    try:
        with open(open_regular(path), "rb") as file:
            return Failure.model_validate_json(file.read())
    except IsADirectoryError as error:
        raise ValueError("a folder, where a failure note should be a file") from error
    except ValidationError as error:
        raise ValueError(f"not a failure note: {error.errors(include_url=False)[0]['msg']}") from error


def note_attempt(folder: Path, event: str, **details: Any) -> None:
    """Add a line to the run's log; only the holder of the run's lease writes, a line at a time."""
    line = {"at": round(time.time(), 3), "event": event, "pid": this_process().pid, "host": this_process().machine}
    path = folder / ATTEMPTS
    with open(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as file:
        file.write(json.dumps(line | details) + "\n")


def read_attempts(folder: Path) -> list[dict[str, Any]]:
    """The log of a run; a last line that was cut off is left out."""
    try:
        with open(open_regular(folder / ATTEMPTS), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:  # none, or not a file of ours
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
