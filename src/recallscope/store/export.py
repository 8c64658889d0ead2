"""Runs as a table for other programs: CSV always, Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import importlib.util
import io
from pathlib import Path
from typing import Any

from recallscope.atomic import write_atomically
from recallscope.store.columns import COLUMNS

FORMATS = (".csv", ".parquet")


def check_export(path: Path) -> None:
    """Say before any work is done whether a table can be written under this name."""
    if path.suffix not in FORMATS:
        raise ValueError(
            f"{path.name!r}: the ending says the format, and it is neither .csv nor .parquet. Try {path.stem}.csv."
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"Parquet needs pyarrow, which is not installed. Run: pip install pyarrow, or export to {path.stem}.csv."
        )


def export_rows(rows: list[dict[str, Any]], path: Path, columns: tuple[str, ...] = COLUMNS) -> None:
    """Write rows by the ending of the name; an existing file is replaced whole."""
    check_export(path)
    write_atomically(path, _csv(rows, columns) if path.suffix == ".csv" else _parquet(rows, columns))


def _csv(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: [row[name] for row in rows] for name in columns})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
