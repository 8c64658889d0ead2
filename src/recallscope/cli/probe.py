"""`recallscope probe`: how many facts does a language model on disk hold, and in which layer?"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from recallscope.atomic import write_atomically
from recallscope.cli.flags import OptionalPath, OptionalText, Quiet, Unset, names_from
from recallscope.cli.output import console, print_json, show, table
from recallscope.measuring.checkpoints.page import compared, layer_rows, point_rows, probe_page, summary
from recallscope.measuring.checkpoints.record import ProbeRecord, find_probes, keep_probe, probe_path, read_probe


def _templates() -> list[str]:
    from recallscope.measuring.checkpoints.words import TEMPLATES

    return list(TEMPLATES)


@dataclass(kw_only=True)
class ProbeCheckpoint:
    """recallscope probe CHECKPOINT_DIR

    Tell a language model facts in its own words, line by line, and ask for each of them: how many does it hold?
    CHECKPOINT_DIR is a local folder in Hugging Face format with config.json, safetensors and tokenizer; recurrent,
    hybrid or transformer. Nothing is downloaded, and no code from the folder is run. The facts are read once, every
    question is asked from a copy of the model's cache.

    The record is kept in --store with its figure and page, so that checkpoints can be compared:

    recallscope probe --compare NAME NAME ...
    """

    checkpoint: Annotated[Path | None, tyro.conf.Positional, Unset] = None
    """Folder of the checkpoint."""
    template: Annotated[str, names_from(_templates)] = "bare"
    """How a fact is written: a name, or a line of your own, such as '{key} is {value}.\\n'."""
    shots: int = 0
    """Example facts before the others, told and repeated."""
    num_facts: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...", help_behavior_hint="")] = None
    """Only these numbers of facts, instead of a search."""
    most_facts: int = 1024
    """The search doubles the number of facts up to here, or to what the tokenizer has words for."""
    questions: int = 256
    """Questions at every number of facts, at least."""
    floor: float = 0.2
    """Recall at which the search ends."""
    layers: bool = False
    """Also find the layers that hold the facts."""
    from_scratch: bool = False
    """Read the facts again for every question: for models whose cache cannot be copied."""
    seed: int = 0
    """Random seed of words, contexts and intervals."""
    device: str = "auto"
    """auto, cpu, cuda ..."""
    dtype: OptionalText = None
    """Precision of the weights: float32 unless given, bfloat16, float16."""
    store: Path = Path("runs/probes")
    """Folder of the records, a store, made if it does not exist."""
    compare: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")] = None
    """Show probes of the store side by side: names of checkpoints, beginnings of ids, or files."""
    figure: OptionalPath = None
    """The figure's file, PNG or SVG; beside the record unless given."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """Load, probe, keep, draw, print; or compare."""
        if (self.checkpoint is None) == (self.compare is None):
            raise ValueError(
                "name a checkpoint's folder, recallscope probe DIR, or records with --compare; one of both."
            )
        if self.figure is not None and importlib.util.find_spec("matplotlib"):
            from recallscope.figures.style import check_picture

            check_picture(self.figure)
        if self.compare is not None:
            return self._compare(find_probes(self.compare, self.store))
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
        from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
        from recallscope.measuring.checkpoints.probe import Probe

        assert self.checkpoint is not None
        model, tokenizer = load_checkpoint(self.checkpoint, pick_device(self.device), self.dtype or "float32")
        probe = Probe(
            model, tokenizer, name=self.checkpoint.resolve().name, template=self.template, shots=self.shots,
            num_facts=self.num_facts, most_facts=self.most_facts, questions=self.questions, floor=self.floor,
            seed=self.seed, layers=self.layers, copies=not self.from_scratch,
        )  # fmt: skip
        path = probe_path(probe.name, probe.id, self.store)
        if path.exists():
            with contextlib.suppress(ValueError):  # a damaged one is set aside when the new one is kept
                return read_probe(path), path, False
        with _bar(self.quiet) as show:
            record = probe.run(show)
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
        if self.json:
            print_json({"probes": [record.model_dump(mode="json") for record in records], "figure": figure})
            return 0
        console(soft_wrap=True).print(_table(*compared(records)))
        if figure:
            print(f"figure {figure}")
        return 0


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return table(columns, rows, left=columns[:1], whole=columns)


@contextlib.contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar on stderr for the questions at one number of facts, if somebody watches."""
    from recallscope.train.progress import is_interactive

    if quiet or not is_interactive():
        yield None
        return
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TextColumn("questions"))
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        row = bar.add_task("reading", total=None)

        def show(num_facts: int, done: int, total: int) -> None:
            bar.update(row, description=f"{num_facts} facts", completed=done, total=total)

        yield show
