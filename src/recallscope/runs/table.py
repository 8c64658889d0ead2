"""Runs as a table: conditions as one types them, rows that satisfy them, and files for other programs.

Columns are whatever fields the store's runs have, so runs of any architecture and version can be listed and exported.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import re
import shlex
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.atomic import write_atomically
from recallscope.health import examine
from recallscope.records import SCHEMA_VERSION, RecordError, row_of
from recallscope.registry import suggestion
from recallscope.runs.index import Table, open_index, set_index_aside
from recallscope.runs.leases import read_attempts
from recallscope.runs.store import RunStore
from recallscope.specs import RESULTS, TASKS, TRIALS_FROM, Value, find_architecture, path_of, refuse_stored_kind

FIRST, LAST = ("run", "status"), (*RESULTS, "needs")  # columns of every store
USUAL_ORDER = ("task", "model", "vocab_size", "num_facts", "embed_dim", "state_dim", "seed")
FORMATS = (".csv", ".parquet")
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_LOGICAL = {"true": 1, "yes": 1, "false": 0, "no": 0}


@dataclass(frozen=True)
class Condition:
    """A column, a comparison, and a value as it was typed."""

    column: str
    sign: str
    value: str

    @property
    def number(self) -> float | int | None:
        """The value as a number; None if it is none."""
        if self.value.lower() in _LOGICAL:
            return _LOGICAL[self.value.lower()]
        try:
            number = float(self.value)
        except ValueError:
            return None
        if not math.isfinite(number):
            return None
        return int(number) if number.is_integer() and abs(number) < 2**63 else number  # what SQLite takes


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """Conditions that must all hold; commas separate them as well as spaces do."""
    return [_parse(part) for text in texts for part in text.split(",") if part.strip()]


def _parse(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ValueError(
            f"{text!r} is not a condition. Write a field, a comparison and a value: state_dim<=16 or model=mamba."
        )
    column, sign, value = match.groups()
    value = value.strip("'\"")
    if column == "model":
        refuse_stored_kind(value)
    return Condition(column, "=" if sign == "==" else sign, value)


def find_runs(
    store: RunStore,
    conditions: Iterable[Condition] = (),
    *,
    columns: Sequence[str] | None = None,
    order_by: Sequence[str] | None = ("run",),
    limit: int | None = None,
    trials: bool = False,
) -> list[dict[str, Any]]:
    """Rows that satisfy all conditions, as dictionaries by column; None where a run has no such field.

    Learning-rate trials of measurements (seeds from `TRIALS_FROM`) are left out, unless `trials` asks for them, or a
    condition about the seed.

    Columns are the fields of the store's runs, their results, and `needs`: what this installation lacks to make a spec
    of the run. Without `columns` all of them are given. A leading - in `order_by` reverses the order; None sorts by
    task, model and sizes.
    """
    conditions = list(conditions)
    trials = trials or any(condition.column == "seed" for condition in conditions)
    for how in ({}, {"anew": True}):
        try:
            with open_index(store, **how) as table:
                return _select(table, conditions, columns, order_by, limit, trials)
        except sqlite3.DatabaseError as error:  # damage beyond the first page of the file
            set_index_aside(store, error)
    with open_index(store, in_memory=True) as table:  # somebody damages it while we read
        return _select(table, conditions, columns, order_by, limit, trials)


def find_name(store: RunStore, wanted: str) -> str:
    """The run whose name begins so; ValueError if there is none or more than one."""
    text = wanted.lower()
    found = {name for name in store.names() if text and name.startswith(text)}
    if len(found) == 1:
        return found.pop()
    if not found:
        raise ValueError(f"run {wanted!r} is not in {store.root}. recallscope store list {store.root} shows what is.")
    some = ", ".join(sorted(found)[:4])
    raise ValueError(f"run {wanted!r} could be any of {len(found)}: {some}. Give more digits.")


def _select(
    table: Table,
    conditions: list[Condition],
    columns: Sequence[str] | None,
    order_by: Sequence[str] | None,
    limit: int | None,
    trials: bool,
) -> list[dict[str, Any]]:
    if table.connection.execute("SELECT 1 FROM now LIMIT 1").fetchone() is None:
        return []
    fields = [column for column in table.fields if column not in (*FIRST, *LAST, "schema_version")]
    every = (*FIRST, *fields, *LAST)
    order_by = [name for name in USUAL_ORDER if name in fields] if order_by is None else order_by
    places = {column: f"json_extract(row, '$[{place}]')" for place, column in enumerate(table.fields)}
    places = {name: places.get(name, "NULL") for name in (*FIRST, *fields, "seed", *RESULTS)} | {"run": "run"}
    asked = [condition.column for condition in conditions] + [name.removeprefix("-") for name in order_by]
    for names, known in ((columns or (), every), (asked, tuple(places))):
        for name in names:
            if name not in known:
                raise ValueError(f"{name!r} is not a column of this store. {suggestion(name, known)}")
    clause, values = _where(conditions, places)
    if not trials:
        clause += f" AND ({places['seed']} IS NULL OR {places['seed']} < {TRIALS_FROM})"
    order = ", ".join(places[name.removeprefix("-")] + " DESC" * name.startswith("-") for name in order_by) or "run"
    query = f"SELECT row FROM now WHERE {clause} ORDER BY {order} LIMIT ?"  # noqa: S608 (places are numbers)
    found = table.connection.execute(query, [*values, -1 if limit is None else min(limit, 2**63 - 1)]).fetchall()
    if not found:
        _explain_nothing(table, conditions, places)
    wanted, needs = columns or every, dict[tuple[Any, ...], str | None]()
    rows = []
    for (text,) in found:
        row = table.decode(text)
        if (
            "needs" in wanted and row.get("status") != "damaged"
        ):  # it follows from the kinds and the names of the fields
            key = (row.get("schema_version"), row.get("task"), row.get("model"), *row)
            if key not in needs:
                needs[key] = needs_of(row)
            row["needs"] = needs[key]
        rows.append({name: row.get(name) for name in wanted})
    return rows


def _where(conditions: list[Condition], places: Mapping[str, str]) -> tuple[str, list[float | int | str]]:
    """SQL after WHERE, and the values for its question marks: numbers are compared as numbers, texts as texts.

    To SQLite every number is less than every text, and '' is the least of those.
    """
    clauses, values = ["1"], list[float | int | str]()
    for condition in conditions:
        x, sign, number = places[condition.column], condition.sign, condition.number
        if sign in ("=", "!="):
            clauses.append(f"{x} {'NOT ' * (sign == '!=')}IN (?, ?)")
            values += [condition.value, condition.value if number is None else number]
        elif number is None:
            clauses.append(f"{x} {sign} ? AND {x} >= ''")
            values.append(condition.value)
        else:
            clauses.append(f"{x} {sign} ?" + (f" AND {x} < ''" if ">" in sign else ""))
            values.append(number)
    return " AND ".join(clauses), values


def _explain_nothing(table: Table, conditions: list[Condition], places: Mapping[str, str]) -> None:
    """ValueError if nothing was found because a column of numbers was compared with a text."""
    for condition in conditions:
        place = places[condition.column]
        if condition.number is None and place != "NULL":
            query = f"SELECT 1 FROM now WHERE typeof({place}) = 'text' LIMIT 1"  # noqa: S608
            if table.connection.execute(query).fetchone() is None:
                raise ValueError(f"{condition.column} is a number, and {condition.value!r} is not a finite one.")


def needs_of(row: Mapping[str, Any]) -> str | None:
    """What this installation lacks to make a spec of a run: a newer schema, a task, an architecture, a field."""
    if row.get("schema_version", 0) > SCHEMA_VERSION:
        return f"a recallscope that reads schema {row['schema_version']}"
    try:
        owners = TASKS.find(str(row.get("task"))), find_architecture(str(row.get("model")))
    except ValueError as error:  # an unknown name
        return str(error).split(" is not registered")[0]
    fields = set(row) - {*FIRST, *LAST, "schema_version"}
    unknown = sorted(column for column in fields if path_of(column, *owners) is None)
    return f"field {unknown[0]}" if unknown else None


def check_export(path: Path) -> None:
    """Check before any work is done that a table can be written under this name."""
    if path.suffix not in FORMATS:
        raise ValueError(
            f"{path.name!r}: the ending says the format, and it is neither .csv nor .parquet. Try {path.stem}.csv."
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"Parquet needs pyarrow, which is not installed. Run: pip install pyarrow, or export to {path.stem}.csv."
        )


def export_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows of `find_runs` by the ending of the name; an existing file is replaced whole."""
    check_export(path)
    write_atomically(path, csv_bytes(rows) if path.suffix == ".csv" else _parquet(rows, _columns(rows)))


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(rows[0]) if rows else [*FIRST, *LAST]


def csv_bytes(rows: list[dict[str, Any]]) -> bytes:
    """Rows of `find_runs` as CSV, one column per field."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode(errors="replace")


def _parquet(rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def values(name: str) -> list[Value]:
        found = [row[name] for row in rows]
        kinds = {type(value) for value in found if value is not None}
        mixed = len(kinds) > 1 and kinds != {int, float}
        return (
            [value if value is None or isinstance(value, str) else json.dumps(value) for value in found]
            if mixed
            else found
        )

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: values(name) for name in columns}), sink)
    return bytes(sink.getvalue().to_pybytes())


def damage(store: RunStore) -> str:
    """Which records count for nothing, as they were edited, cut off or lost; "" if there are none."""
    runs = [row["run"] for row in find_runs(store, parse_conditions(["status=damaged"]), columns=["run"])]
    if not runs:
        return ""
    sentence = f"left out {len(runs)} damaged record{'s' * (len(runs) > 1)}, {runs[0][:8]} first"
    return f"{sentence}; recallscope store verify {shlex.quote(str(store.root))} --dry-run shows why."


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
