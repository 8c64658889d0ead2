"""`recallscope store`: look at the runs of a folder, take them elsewhere, keep them sound."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import print_json
from recallscope.cli.store_upkeep import Gc, Rebuild, Verify

if TYPE_CHECKING:
    from recallscope.store import RunStore

Folder = Annotated[Path, tyro.conf.Positional]


@dataclass(kw_only=True)
class List:
    """recallscope store list STORE --where "state_dim<=16" --sort embed_dim

    Runs that satisfy every condition. Fields are spelled as in the spec; task and model are their kinds.
    """

    store: Folder
    """Folder of the runs."""
    where: tuple[str, ...] = ()
    """Conditions, such as state_dim<=16 or status=failed; quote them, as < means something to a shell."""
    sort: tuple[str, ...] = ("task", "model", "vocab_size", "num_facts", "embed_dim", "state_dim", "seed")
    """Columns to sort by; a leading - turns the order round: --sort=-test_accuracy."""
    columns: tuple[str, ...] = ()
    """Columns to print."""
    limit: int = 50
    """Rows to print; 0 for all."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Ask the index, print."""
        from recallscope.store import RunStore, find_runs, parse_conditions
        from recallscope.store.columns import COLUMNS, SHOWN

        if self.limit < 0:
            raise ValueError(f"limit={self.limit}: a number of rows, or 0 for all.")
        store, conditions = RunStore(self.store), parse_conditions(self.where)
        columns = self.columns or (COLUMNS if self.json else SHOWN)
        rows = find_runs(
            store, conditions, columns=columns, order_by=self.sort, limit=self.limit + 1 if self.limit else None
        )
        more = bool(self.limit) and len(rows) > self.limit
        rows = rows[: self.limit] if self.limit else rows
        if self.json:
            print_json({"runs": rows, "more": more})
            return 0
        _print_table(rows, columns)
        print(
            f"{len(rows)} runs"
            + (
                f", and more: --limit 0 shows all, recallscope store export {self.store} runs.csv keeps them"
                if more
                else ""
            )
        )
        return 0


@dataclass(kw_only=True)
class Show:
    """recallscope store show STORE RUN

    All there is about one run: record, log of its tries, failure. The first few digits of its hash will do.
    """

    store: Folder
    """Folder of the runs."""
    wanted: Annotated[str, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """Content hash of the run, or how it begins."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find the one run, print what is known."""
        from recallscope.records import RecordError
        from recallscope.store import NewerRecordError, RunStore, read_attempts

        store = RunStore(self.store)
        name = _one(store, self.wanted)
        try:
            record = store.get(name)
        except NewerRecordError:
            raise
        except RecordError as error:
            place = store.folder(name) / "record.json"
            raise ValueError(
                f"{place} is damaged: {error}. recallscope store verify {store.root} sets it aside."
            ) from error
        failure, attempts = store.failure(name), read_attempts(store.folder(name))
        if self.json:
            print_json(
                {
                    "run": name,
                    "record": record.model_dump(mode="json") if record else None,
                    "failure": failure.model_dump(mode="json") if failure else None,
                    "attempts": attempts,
                    "files": sorted(path.name for path in store.folder(name).iterdir()),
                }
            )
            return 0
        print(f"run {name}  {'done' if record else 'failed' if failure else 'not finished'}")
        if record:
            from recallscope.store import in_words

            print(
                f"  test accuracy {record.test_accuracy:.4f} over {record.test_queries:,} queries, "
                f"{record.steps} steps, {record.seconds:.1f} s"
            )
            print("  " + " ".join(f"{word}={value}" for word, value in in_words(record.spec).items()))
            for seen in record.history:
                print(f"  step {seen.step:>7}  loss {seen.loss:.4f}  accuracy {seen.accuracy:.4f}")
        for entry in attempts:
            print(f"  {entry.get('event')} by process {entry.get('pid')} on {str(entry.get('host')).split('/')[0]}")
        if failure:
            print(f"  failed {failure.tries} times; its worker {failure.reason}. Its stderr ends:\n{failure.stderr}")
        return 0


@dataclass(kw_only=True)
class Export:
    """recallscope store export STORE runs.csv

    One row per run, one column per field, as CSV or (with pyarrow) Parquet, by the ending of the name.
    """

    store: Folder
    """Folder of the runs."""
    out: Annotated[Path, tyro.conf.Positional]
    """File to write, .csv or .parquet."""
    where: tuple[str, ...] = ()
    """Conditions, as for list."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Ask the index, write."""
        from recallscope.store import RunStore, find_runs, parse_conditions
        from recallscope.store.export import check_export, export_rows

        check_export(self.out)
        rows = find_runs(RunStore(self.store), parse_conditions(self.where))
        export_rows(rows, self.out)
        print_json({"runs": len(rows), "file": str(self.out)}) if self.json else print(
            f"{len(rows)} runs in {self.out}"
        )
        return 0


@dataclass
class Store:
    """recallscope store list STORE

    The runs of a folder: list, show, export, verify, rebuild, gc. Each has its own --help.
    """

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Rebuild, tyro.conf.subcommand("rebuild")]
        | Annotated[Gc, tyro.conf.subcommand("gc")]
    ]

    def run(self) -> int:
        """Do what was asked."""
        return self.action.run()


def _one(store: RunStore, wanted: str) -> str:
    """The run whose name begins so, if there is just one."""
    found = [name for name in store.names() if wanted and name.startswith(wanted.lower())]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"run {wanted!r} is not in {store.root}. recallscope store list {store.root} shows what is.")
    raise ValueError(f"run {wanted!r} could be any of {len(found)}: {', '.join(found[:4])}. Give more digits.")


def _print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(name, row[name]) for name in columns))
    Console(width=None if sys.stdout.isatty() else 220).print(table, highlight=False)


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "run":
        return str(value)[:8]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
