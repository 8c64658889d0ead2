"""`recallscope fit`: what a store's runs say about the scaling law, and which law of the catalogue says it best."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from recallscope.cli.flags import OptionalInt, OptionalPath, Unset
from recallscope.cli.output import console, number, print_json, show, table, warn
from recallscope.health import Flag

if TYPE_CHECKING:
    from recallscope.analysis.group_fit import GroupFit


@dataclass(kw_only=True)
class FitStore:
    """recallscope fit STORE

    Fit a and b of Phi(x - b), x = sqrt(N D / (a N_f + N)), to the runs of a store, task by task and model by model,
    with 95 % intervals from resampling cells, seed noise included where cells have several seeds; also with the
    two-moment form. Then compare all laws.
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Folder of the runs."""
    where: Annotated[tuple[str, ...], Unset] = ()
    """Only runs that satisfy these, such as model=linear_mamba or batch_size=128."""
    exclude: Annotated[tuple[Flag, ...], Unset] = ()
    """Leave out runs with these flags: diverged, still-improving, at-chance."""
    reduce: Literal["mean", "best", "seed"] = "mean"
    """Of the seeds of a cell: their mean, the best, or the one of --seed."""
    seed: OptionalInt = None
    """Which seed (with --reduce seed)."""
    bootstrap: int = 200
    """Resamplings behind the intervals; 0 for none."""
    cells: bool = False
    """Print the comparison cell by cell, for the closest law and those of --law."""
    law: Annotated[tuple[str, ...], Unset] = ()
    """Only these laws (see: recallscope laws)."""
    figure: OptionalPath = None
    """Also draw the fit and the closest law, .png or .svg."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Read the store, split it, fit and compare."""
        if not 0 <= self.bootstrap <= 10**5:
            raise ValueError(f"bootstrap={self.bootstrap} is outside 0..100000.")
        if (self.seed is None) == (self.reduce == "seed"):
            raise ValueError("--seed and --reduce seed go together: which seed of each cell is to be taken?")
        from recallscope.analysis.group_fit import fit_group
        from recallscope.analysis.rows import group_runs
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import damage, find_runs, parse_conditions
        from recallscope.theory.law import LAWS, find_law

        if self.figure:
            from recallscope.figures.style import check_picture

            check_picture(self.figure)
        laws = [find_law(name) for name in self.law] or list(LAWS)
        conditions = parse_conditions(
            [*self.where, "status=done", *([f"seed={self.seed}"] if self.reduce == "seed" else [])]
        )
        store = RunStore(self.store)
        found = [row for row in find_runs(store, conditions) if row["test_accuracy"] is not None]
        warn(damage(store))
        rows = [row for row in found if row["flag"] not in self.exclude]
        flags = Counter(row["flag"] for row in rows if row["flag"])
        left_out = Counter(row["flag"] for row in found if row["flag"] in self.exclude)
        if not rows:
            raise ValueError(
                f"{self.store} has no finished run that satisfies this ({left_out.total()} left out by their flags). "
                f"recallscope store list {shlex.quote(str(self.store))} shows what it has."
            )
        options: dict[str, Any] = {"reduce": self.reduce, "seed": self.seed, "bootstrap": self.bootstrap}
        answers = [fit_group(group, laws, **options) for group in group_runs(rows)]
        if self.figure:
            from recallscope.cli.fit_figure import write_fit_figure

            drawn = [(answer.group, answer.fits, answer.laws) for answer in answers]
            rows_drawn = write_fit_figure(drawn, self.figure, reduce=self.reduce, bootstrap=self.bootstrap)
        if self.json:
            counts = {"flags": flags, "left_out": left_out}
            print_json(counts | {"experiments": [answer.data for answer in answers]})
        else:
            if left_out:
                print(f"left out {left_out.total()} of {len(found)} runs: {_counted(left_out)}")
            if flags:
                print(f"flagged {flags.total()} of {len(rows)} runs: {_counted(flags)} (--exclude fits without them)")
            for answer in answers:
                self._print(answer)
            if self.figure:
                print(f"{rows_drawn} of {len(answers)} groups drawn in {self.figure}")
        return 0

    def _print(self, answer: GroupFit) -> None:
        show(answer.sentences, bold=1)
        laws = answer.laws
        rows = [(c.law, *map(number, (c.mean_error, c.max_error, c.bias)), str(len(c.cells))) for c in laws]
        caption = "errors are |measured - predicted|; bias is the mean of measured minus predicted"
        columns = ("law", "mean error", "max", "bias", "cells")
        console().print(table(columns, rows, left=("law",), caption=caption, caption_justify="left"))
        for c in (laws if self.law else laws[:1]) if self.cells else ():
            names = [*(c.cells[0].words if c.cells else ()), "measured", "predicted", "difference"]
            cells = [
                [*map(str, cell.words.values()), number(cell.measured), number(cell.predicted), f"{cell.error:+.4f}"]
                for cell in c.cells
            ]
            console().print(table(names, cells, title=c.law, title_justify="left"))
        show([""])


def _counted(flags: Counter[str]) -> str:
    return ", ".join(f"{count} {flag}" for flag, count in flags.most_common())
