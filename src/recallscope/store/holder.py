"""Who holds a claim: a process on a machine, named so that another can tell whether it still lives."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Holder(BaseModel):
    """One process. `machine` tells hosts, boots and containers apart; `born` tells a process from a later one of its
    number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    machine: str
    pid: int
    born: str


def this_process() -> Holder:
    """The holder that we are."""
    return Holder(machine=this_machine(), pid=os.getpid(), born=_born(os.getpid()) or "")


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


def surely_dead(holder: Holder) -> bool:
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
