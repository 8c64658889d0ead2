"""`recallscope probe`: how many facts does a language model on disk hold in its context, and in which layer?"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from recallscope.atomic import write_atomically
from recallscope.cli.flags import OptionalInt, OptionalPath, OptionalText, Quiet, StateFlags, Unset, names_from
from recallscope.cli.output import console, print_json, show, table
from recallscope.measuring.checkpoints.page import (
    compared,
    compared_warning,
    layer_rows,
    point_rows,
    probe_page,
    summary,
)
from recallscope.measuring.checkpoints.record import ProbeRecord, find_probes, keep_probe, probe_path, read_probe

if TYPE_CHECKING:
    from recallscope.measuring.checkpoints.probe import Probe


def _templates() -> list[str]:
    from recallscope.measuring.checkpoints.words import TEMPLATES

    return list(TEMPLATES)


@dataclass(kw_only=True)
class ProbeCheckpoint(StateFlags):
    """Find how many facts a language model on disk holds in its context.

    recallscope probe CHECKPOINT

    Puts key-value facts in the context, one per line, queries each one, and finds n_50, the number of facts beyond
    which accuracy is below one half. CHECKPOINT is a local folder in Hugging Face format (config.json, safetensors,
    tokenizer) or a .gguf file; recurrent, hybrid or transformer. Nothing is downloaded, and no code from the checkpoint
    is run. Facts are read once; every query uses a copy of the cache.

    The record is kept in --store with its figure and page, so that checkpoints can be compared:

    recallscope probe --compare-with NAME NAME ...

    With --state-format recurrent states are stored in few bits: after every token, or with --round-every once between
    reading and the query, as a cached prefix is.
    """

    checkpoint: Annotated[Path | None, tyro.conf.Positional, Unset] = None
    """Folder or .gguf file."""
    name: OptionalText = None
    """Name in tables and figures (default: from the checkpoint's configuration or folder)."""
    template: Annotated[str, names_from(_templates)] = "bare"
    """How a fact is written: a name, or your own line, such as '{key} is {value}.\\n'."""
    chat: bool = False
    """Put the facts in a user message, with the checkpoint's chat template."""
    shots: OptionalInt = None
    """Number of example facts before the others, each written twice (default: 4, with --chat 0). They use memory."""
    candidates: int = 256
    """Number of values in the forced choice, as far as the tokenizer has words; also the largest number of facts."""
    num_facts: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...", help_behavior_hint="")] = None
    """Use these numbers of facts instead of a search."""
    max_facts: OptionalInt = None
    """Largest number of facts in the search (default: the number of candidates)."""
    num_sequences: int = 4
    """Initial contexts of 32 queries at each number of facts; more where contexts are shorter."""
    width: float = 1.4
    """Queries are added near n_50 until the ends of its interval differ by at most this factor."""
    max_queries: int = 2048
    """Largest number of queries; the time estimate on stderr is for all of them."""
    min_recall: float = 0.3
    """Accuracy below which the search ends."""
    layers: bool = False
    """Also find the layers that hold the facts."""
    from_scratch: bool = False
    """Read the facts again for every query: for models whose cache cannot be copied."""
    seed: int = 0
    """Random seed of contexts, with their words, and of intervals."""
    device: str = "auto"
    """auto, cpu, cuda ..."""
    dtype: OptionalText = None
    """Precision of the weights: float32, bfloat16 or float16."""
    store: Path = Path("runs/probes")
    """Folder of the records; created if missing."""
    compare_with: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")] = None
    """Show stored probes side by side: names of checkpoints, prefixes of ids, or files."""
    figure: OptionalPath = None
    """File for the figure, PNG or SVG (default: beside the record)."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """Load, probe, keep, draw, print; or compare."""
        if (self.checkpoint is None) == (self.compare_with is None):
            raise ValueError(
                "give either a checkpoint (recallscope probe PATH) or --compare-with NAME NAME ..., not both."
            )
        if self.figure is not None and importlib.util.find_spec("matplotlib"):
            from recallscope.figures.style import check_picture

            check_picture(self.figure)
        if self.compare_with is not None:
            return self._compare(find_probes(self.compare_with, self.store))
        record, path, new = self._probe()
        figure = self._draw([record], self.figure or path.with_suffix(".png"))
        page = path.with_suffix(".html")
        write_atomically(page, probe_page([record], Path(figure) if figure else None).encode())
        if self.json:
            print_json(record.model_dump(mode="json") | {"record": str(path), "figure": figure, "page": str(page)})
            return 0
        out = console(soft_wrap=True)
        show([f"{record.name}  {record.verdict}"], bold=1, to=out)
        out.print(_table(*point_rows(record)))
        show((f"{name:8}{text}" for name, text in summary(record).items()), to=out)
        if record.inside:
            out.print(_table(*layer_rows(record.inside)))
        known = "" if new else "probed before, answered from the record"
        shown = {"record": f"{path}  {known}".rstrip(), "figure": figure or "none: pip install recallscope[figures]"}
        show((f"{name:8}{text}" for name, text in (shown | {"page": str(page)}).items()), to=out)
        return 0

    def _probe(self) -> tuple[ProbeRecord, Path, bool]:
        """The record, its file, and whether it was measured now."""
        from recallscope.cli.training import pick_device
        from recallscope.measuring.checkpoints.checkpoint import find_checkpoint, load_checkpoint
        from recallscope.measuring.checkpoints.probe import Probe

        assert self.checkpoint is not None
        found = find_checkpoint(self.checkpoint, self.dtype or "float32")
        if not self.quiet and found.formats:
            print(f"{found}.", file=sys.stderr)
        model, tokenizer = load_checkpoint(self.checkpoint, pick_device(self.device), self.dtype or "float32")
        probe = Probe(
            model, tokenizer, name=self.name or found.name, template=self.template, chat=self.chat, shots=self.shots,
            candidates=self.candidates, num_facts=self.num_facts, max_facts=self.max_facts,
            num_sequences=self.num_sequences, width=self.width, max_queries=self.max_queries,
            min_recall=self.min_recall, seed=self.seed, layers=self.layers, copies=not self.from_scratch,
            state_precision=self.precision(),
        )  # fmt: skip
        path = probe_path(probe.name, probe.id, self.store)
        if path.exists():
            with contextlib.suppress(ValueError):  # a damaged one is set aside when the new one is kept
                return read_probe(path), path, False
        with _bar(self.quiet, probe) as note:
            record = probe.run(note)
        return record, keep_probe(record, self.store), True

    def _draw(self, records: Sequence[ProbeRecord], path: Path) -> str | None:
        if importlib.util.find_spec("matplotlib") is None:
            return None
        from recallscope.figures.probe import probe_figure
        from recallscope.figures.style import figure_style, write_figure

        with figure_style():
            write_figure(probe_figure(records), path)
        return str(path)

    def _compare(self, records: list[ProbeRecord]) -> int:
        figure = self._draw(records, self.figure) if self.figure else None
        warning = compared_warning(records)
        if self.json:
            probes = [record.model_dump(mode="json") for record in records]
            print_json({"probes": probes, "warning": warning, "figure": figure})
            return 0
        console(soft_wrap=True).print(_table(*compared(records)))
        if warning:
            print(warning)
        if figure:
            print(f"figure {figure}")
        return 0


WRAPPED = ("checkpoint", "asked")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Numbers are never cut off: in a narrow terminal names wrap."""
    return table(columns, rows, left=columns[:1], whole=[name for name in columns if name not in WRAPPED])


@contextlib.contextmanager
def _bar(quiet: bool, probe: Probe) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr for all queries that there may be, after an estimate of their time, if somebody watches."""
    from recallscope.train.progress import is_interactive

    if quiet or not is_interactive():
        yield None
        return
    print(f"at most about {_duration(probe.estimated_seconds())}", file=sys.stderr)
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TextColumn("queries"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(file=sys.stderr)) as bar:
        row = bar.add_task("reading", total=probe.max_queries)

        def note(num_facts: int, more: int) -> None:
            bar.update(row, description=f"{num_facts} facts", advance=more)

        yield note


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
