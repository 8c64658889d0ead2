"""`recallscope store`: list, show, export and look after the runs of a folder."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalInt, Unset
from recallscope.cli.output import console, number, print_json, say, table

if TYPE_CHECKING:
    from recallscope.runs.upkeep import Copied

Folder = Annotated[Path, tyro.conf.Positional]
Trials = Annotated[
    bool, tyro.conf.arg(help="Also the learning-rate trials of measurements: runs with seeds from 2^30 on.")
]
SHOWN = ("run", "task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim", "num_layers", "seed")
MOST_VARYING = 12  # columns that are shown because the runs differ in them
MOST_PRINTED = 50  # rows of a table for people


@dataclass(kw_only=True)
class List:
    """recallscope store list STORE --where "state_dim<=16" --sort embed_dim

    Runs that satisfy every condition. Fields are spelled as in the spec; task and model are their kinds.
    """

    store: Folder
    """Folder of the runs, or a packed file."""
    where: Annotated[tuple[str, ...], Unset] = ()
    """Conditions, such as state_dim<=16 or status=failed; quote them, as < means something to a shell."""
    sort: Annotated[tuple[str, ...], Unset] = ()
    """Columns to sort by; a leading - reverses the order: --sort=-test_accuracy."""
    columns: Annotated[tuple[str, ...], Unset] = ()
    """Columns to print; unless given, those in which the runs differ."""
    trials: Trials = False
    limit: OptionalInt = None
    """Maximum number of runs, 0 for all. Default: 50 in the table, all with --json."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Query the index, print."""
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import find_runs, parse_conditions

        limit = (0 if self.json else MOST_PRINTED) if self.limit is None else self.limit
        if limit < 0:
            raise ValueError(f"limit={limit} must be a number of runs, or 0 for all.")
        store = RunStore(self.store)
        rows = find_runs(
            store,
            parse_conditions(self.where),
            columns=self.columns or None,
            order_by=self.sort or None,
            limit=limit + 1 if limit else None,
            trials=self.trials,
        )
        more = bool(limit) and len(rows) > limit
        rows = rows[:limit] if limit else rows
        if self.json:
            print_json({"runs": rows, "more": more})
            return 0
        columns, alike = (self.columns, {}) if self.columns else _telling_columns(rows)
        cells = [[_text(name, row[name]) for name in columns] for row in rows]
        console(width=None if sys.stdout.isatty() else 220).print(table(columns, cells, whole=columns))
        if alike:
            say("all: " + " ".join(f"{name}={value}" for name, value in alike.items()))
        print(
            f"{len(rows)} runs"
            + (
                f", and more: --limit 0 shows all, recallscope store export {self.store} runs.csv keeps them"
                if more
                else ""
            )
        )
        all_runs, shown = (len(find_runs(store, columns=["run"], trials=trials)) for trials in (True, self.trials))
        if all_runs > shown:
            print(f"{all_runs - shown} learning-rate trials of measurements are left out: --trials shows them")
        damaged = sum(row.get("status") == "damaged" for row in rows)
        if damaged:
            print(f"{damaged} damaged: recallscope store verify {self.store} --dry-run shows what is wrong with them")
        return 0


@dataclass(kw_only=True)
class Show:
    """recallscope store show STORE RUN

    All there is about one run: record, log of its tries, failure. The first few digits of its name will do.
    """

    store: Folder
    """Folder of the runs, or a packed file."""
    wanted: Annotated[str, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """Name of the run, or how it begins."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find the one run, print what is known."""
        from recallscope.records import row_of
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import run_details

        found = run_details(RunStore(self.store), self.wanted)
        if self.json:
            print_json(found)
            return 0
        name, record, failure = found["run"], found["record"], found["failure"]
        say(f"run {name}  {'done' if record else 'failed' if failure else 'not finished'}")
        if record:
            _print_record(record, row_of(record), found["needs"])
        for entry in found["attempts"]:
            say(f"  {entry.get('event')} by process {entry.get('pid')} on {str(entry.get('host')).split('/')[0]}")
        if failure:
            sentence = f"failed {failure['tries']} times; its worker {failure['reason']}"
            say(f"  {sentence}. Its stderr ends:\n{failure['stderr']}")
        return 0


@dataclass(kw_only=True)
class Export:
    """recallscope store export STORE runs.csv

    One row per run, one column per field, as CSV or (with pyarrow) Parquet, by the ending of the name.
    """

    store: Folder
    """Folder of the runs, or a packed file."""
    out: Annotated[Path, tyro.conf.Positional]
    """File to write, .csv or .parquet."""
    where: Annotated[tuple[str, ...], Unset] = ()
    """Conditions, as for list."""
    trials: Trials = False
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Query the index, write."""
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import check_export, export_rows, find_runs, parse_conditions

        check_export(self.out)
        rows = find_runs(RunStore(self.store), parse_conditions(self.where), trials=self.trials)
        export_rows(rows, self.out)
        print_json({"runs": len(rows), "file": str(self.out)}) if self.json else print(
            f"{len(rows)} runs in {self.out}"
        )
        return 0


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
        from recallscope.runs.store import RunStore
        from recallscope.runs.upkeep import verify

        health = verify(RunStore(self.store), move=not self.dry_run)
        if self.json:
            print_json({"clean": health.clean, **asdict(health)})
        else:
            say("\n".join(health.lines(self.store, moved=not self.dry_run)))
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
        from recallscope.runs.store import RunStore
        from recallscope.runs.upkeep import pack_store

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
        from recallscope.runs.store import RunStore
        from recallscope.runs.upkeep import unpack_store

        return _report(unpack_store(RunStore(self.store), self.out), self.store, self.out, self.json)


@dataclass
class Store:
    """recallscope store list STORE

    The runs of a folder or a packed file: list, show, export, verify, pack, unpack. Each has its own --help.
    """

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Pack, tyro.conf.subcommand("pack")]
        | Annotated[Unpack, tyro.conf.subcommand("unpack")]
    ]

    def run(self) -> int:
        """Do what was asked."""
        return self.action.run()


def _telling_columns(rows: list[dict[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """The columns in which these runs differ, and their results; and the usual ones that are alike in all.

    A single run differs from none: it gets the usual columns.
    """
    from recallscope.specs import RESULTS

    names = list(rows[0]) if rows else []
    fields = [name for name in names if name not in ("run", "status", "warning", "needs", *RESULTS)]
    fields.sort(key=lambda name: SHOWN.index(name) if name in SHOWN else len(SHOWN))  # the usual ones first
    varying = [name for name in fields if len({str(row[name]) for row in rows}) > 1][:MOST_VARYING]
    usual = [name for name in fields if name in SHOWN]
    alike = {name: rows[0][name] for name in usual if varying and name not in varying and rows[0][name] is not None}
    status = ["status"] if any(row["status"] != "done" for row in rows) else []
    present = [name for name in ("warning", "needs") if any(row[name] for row in rows)]
    ends = [name for name in ("test_accuracy", "seconds") if name in names]
    return ["run", *(varying or usual), *status, *ends, *present], alike


def _print_record(record: dict[str, Any], row: dict[str, Any], needs: str | None) -> None:
    """A record as plain data, of any version: numbers that are not there are shown as a dash."""
    from recallscope.health import examine
    from recallscope.specs import RESULTS

    facts = {name: "-" if value is None else value for name, value in row.items()}
    queries = f"{facts['test_queries']:,}" if isinstance(facts["test_queries"], int) else facts["test_queries"]
    seconds = f"{facts['seconds']:.1f}" if row["seconds"] is not None else "-"
    say(f"  test accuracy {number(row['test_accuracy'])} over {queries} queries, {facts['steps']} steps, {seconds} s")
    say(
        "  "
        + " ".join(f"{column}={value}" for column, value in row.items() if column not in ("run", "status", *RESULTS))
    )
    if sentence := examine(record).sentence:
        say(f"  {sentence}")
    if needs:
        say(f"  needs {needs}: listed as plain data")
    history = record.get("history")
    for seen in history if isinstance(history, list) else ():
        if isinstance(seen, dict):
            loss, reached = number(seen.get("loss")), number(seen.get("accuracy"))
            say(f"  step {seen.get('step')!s:>7}  loss {loss}  accuracy {reached}")


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name == "run":
        return str(value)[:8]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
