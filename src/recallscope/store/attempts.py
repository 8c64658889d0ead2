"""What became of the tries at a run: a line for each beginning and end, and a note if the last one failed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recallscope.specs import RunSpec
from recallscope.store.holder import this_process

ATTEMPTS = "attempts.jsonl"
STDERR_KEPT = 8_000  # characters of a failed run's stderr that are worth keeping: the end


class Failure(BaseModel):
    """A run that died as often as it may: what it was, how it ended, and its last words."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run: str
    spec: RunSpec
    tries: int = Field(ge=1)
    reason: str = Field(description="how the last try ended, such as: killed by SIGKILL (out of memory?)")
    stderr: str = Field(description="the end of what the last try wrote there")
    at: float = Field(description="seconds since 1970")


def read_failure(path: Path) -> Failure:
    """The note of a file, or a ValueError that says why it is none."""
    try:
        return Failure.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"not a failure note: {error.errors(include_url=False)[0]['msg']}") from error


def note_attempt(folder: Path, event: str, **facts: Any) -> None:
    """Add a line to the run's log; only the holder of the run's claim writes, a line at a time."""
    line = {"at": round(time.time(), 3), "event": event, "pid": this_process().pid, "host": this_process().machine}
    with open(folder / ATTEMPTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(line | facts) + "\n")


def read_attempts(folder: Path) -> list[dict[str, Any]]:
    """The log of a run; a last line that was cut off is left out."""
    try:
        lines = (folder / ATTEMPTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
