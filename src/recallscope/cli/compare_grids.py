"""`recallscope compare-grids`: the accuracy grids published by the paper's authors against every law."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recallscope.cli.output import console, number, print_json, show, table, warn
from recallscope.studies.other_groups import Over, Split


@dataclass(kw_only=True)
class CompareGrids:
    """recallscope compare-grids mamba-recall-scaling-laws/saved_runs_data

    Read the accuracy grids (.npy) in a folder of the paper's authors and print how far each law is from each grid: mean
    absolute error, largest error and bias (measured minus predicted). Nothing is trained, and no file is unpickled.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder with FAMILY/RUN/accuracy_grid__SPLIT.npy, such as saved_runs_data of the authors' repository."""
    split: Split = "val"
    """Which of their test sets; their figures use val."""
    seeds: Over = "best"
    """The best of the seeds, as in their figures, or their mean."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Compare and print."""
        from recallscope.studies.other_groups import compare_files, find_files

        left_out = find_files(self.folder, self.split)[1]
        found = list(compare_files(self.folder, self.split, self.seeds))
        if self.json:
            files = [
                {
                    "family": one.file.family, "file": str(one.file.path), "seeds": len(one.file.accuracy),
                    "settings": one.settings,
                    "laws": [
                        {"law": c.law, "mean_error": c.mean_error, "max_error": c.max_error, "bias": c.bias,
                         "left_out": c.left_out}
                        for c in one.laws
                    ],
                }
                for one in found
            ]  # fmt: skip
            print_json(
                {"split": self.split, "over_seeds": self.seeds, "files": files, "left_out": list(map(str, left_out))}
            )
            return 0
        for one in found:
            show(
                [f"{one.file.family}  {one.settings} settings, {self.seeds} of {len(one.file.accuracy)} seeds"], bold=1
            )
            rows = [
                [c.law, number(c.mean_error), number(c.max_error), number(c.bias), str(c.left_out or "")]
                for c in one.laws
                if c.cells
            ]
            console().print(table(["law", "mean error", "max error", "bias", "not covered"], rows, left=("law",)))
        if left_out:
            first = left_out[0].parent.parent.name
            warn(f"{len(left_out)} files left out, as no law applies to their family, {first} first.")
        return 0
