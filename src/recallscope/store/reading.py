"""Records as they are on disk: older schemas are brought up to date, newer ones refused, damage told from both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recallscope.records import SCHEMA_VERSION, RecordError, RunRecord, parse_record

# From schema n to n + 1. A change of the schema adds its step here, and every store of before stays readable.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


MOST = 10**15  # steps or queries of a run; what is beyond is damage


class NewerRecordError(RecordError):
    """Written by a later version of this package: neither damaged nor ours to touch."""


def read_record(path: Path) -> RunRecord:
    """The record of a file; RecordError if it is damaged, NewerRecordError if only a later version can read it."""
    data = path.read_bytes()
    try:
        record = RunRecord.model_validate_json(data)
    except ValidationError:  # the rare case: find out what it is instead
        record = _otherwise(path, data)
    if path.parent.name != record.run:
        raise RecordError(f"it is the record of run {record.run}, in the folder of another")
    if max(record.steps, record.best_step, record.test_queries) > MOST:
        raise RecordError(f"it counts beyond {MOST:.0e} steps or queries, which no run reaches")
    return record


def _otherwise(path: Path, data: bytes) -> RunRecord:
    """The record of a text that is not one of today's: older, newer or damaged."""
    version = _version(data)
    if version is not None and version > SCHEMA_VERSION:
        raise NewerRecordError(
            f"{path}: schema_version={version}, and this recallscope reads up to {SCHEMA_VERSION}. The record was "
            f"written by a newer version and is left as it is. Upgrade recallscope, or use another store."
        )
    if version is not None and version < SCHEMA_VERSION:
        data = migrated(data, version)
    return parse_record(data)


def migrated(data: bytes, version: int) -> bytes:
    """The same record in today's schema, one step at a time."""
    fields: dict[str, Any] = json.loads(data)
    for step in range(version, SCHEMA_VERSION):
        if step not in MIGRATIONS:
            raise RecordError(f"schema_version={version} is none that ever was: the first is 1")
        fields = MIGRATIONS[step](fields) | {"schema_version": step + 1}
    return json.dumps(fields).encode()


def _version(data: bytes) -> int | None:
    """The schema version a text claims, None if it is no such text; `parse_record` then says what is wrong with it."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    version = fields.get("schema_version") if isinstance(fields, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None
