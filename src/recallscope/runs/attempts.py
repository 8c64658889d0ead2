"""The tries at a run: a log of beginnings and ends, and a note if the run failed for good."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from recallscope.atomic import open_regular
from recallscope.runs.leases import this_process
from recallscope.specs import RunSpec, flat_fields

ATTEMPTS = "attempts.jsonl"


def _as_data(spec: Any) -> Any:
    return spec.model_dump(mode="json") if isinstance(spec, RunSpec) else spec


class Failure(BaseModel):
    """A run that ended without a record as often as it may: what it was, and how the last try ended."""

    model_config = ConfigDict(frozen=True, strict=True)

    run: str
    spec: Annotated[dict[str, Any], BeforeValidator(_as_data)] = Field(description="of the run, as plain data")
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
