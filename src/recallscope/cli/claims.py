"""`recallscope claims`: the paper's statements, and how far each is held up here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from recallscope.cli.flags import print_json


@dataclass(kw_only=True)
class Claims:
    """recallscope claims

    List every theorem, lemma, remark, algorithm, figure and table of the paper: where it is implemented and tested, and
    whether it is exact, approximate, measured, departed from, or still to do.
    """

    status: Literal["all", "exact", "approximate", "measured", "departs", "todo"] = "all"
    """Only claims of this status."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the checklist."""
        from recallscope.studies.claims import CLAIMS

        chosen = [claim for claim in CLAIMS if self.status in ("all", claim.status)]
        if self.json:
            print_json({"claims": [asdict(claim) for claim in chosen]})
            return 0
        from collections import Counter

        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("claim", "status", "says", "function", "test"):
            table.add_column(column, overflow="fold")
        for claim in chosen:
            functions = "\n".join(name.removeprefix("recallscope.") for name in claim.functions)
            tests = "\n".join(path.removeprefix("tests/") for path in claim.tests)
            table.add_row(claim.number, claim.status, claim.sentence, functions, tests)
        console = Console()
        console.print(table, highlight=False)
        counts = Counter(claim.status for claim in CLAIMS)
        console.print("\n" + ", ".join(f"{count} {status}" for status, count in counts.most_common()), highlight=False)
        return 0
