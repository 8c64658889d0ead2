"""All there is about one run of a store, as plain data."""

from __future__ import annotations

from typing import Any

from recallscope.health import examine
from recallscope.records import RecordError, row_of
from recallscope.runs.attempts import read_attempts
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_name, needs_of


def run_details(store: RunStore, wanted: str) -> dict[str, Any]:
    """Record, log of its tries, failure and files of the run whose name begins so."""
    name = find_name(store, wanted)
    folder = store.folder(name)
    try:
        record = store.facts(name)
    except RecordError as error:
        raise ValueError(
            f"{store.place(name)} of {store.root} is damaged: {error}. recallscope store verify {store.root} names "
            f"all damage."
        ) from error
    failure = store.failure(name)
    row = row_of(record) if record else {}
    return {
        "run": name,
        "record": record,
        "needs": needs_of({**row, "schema_version": record["schema_version"]}) if record else None,
        "warning": row.get("warning"),
        "explanation": examine(record).sentence if record else "",
        "failure": failure.model_dump(mode="json") if failure else None,
        "attempts": read_attempts(folder),
        "files": sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [],
    }
