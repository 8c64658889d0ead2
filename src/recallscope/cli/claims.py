"""`recallscope claims`: the paper's statements, and how far each is held up here."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Literal

from recallscope.cli.output import console, print_json, show, table


@dataclass(kw_only=True)
class Claims:
    """List every claim of the paper, with its test and status.

    recallscope claims

    Covers every theorem, lemma, remark, algorithm, figure and table: where it is implemented and tested, and whether it
    is exact, approximate, measured, departed from, or still to do.
    """

    status: Literal["all", "exact", "approximate", "measured", "departs", "todo"] = "all"
    """Only claims with this status."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the checklist."""
        from recallscope.studies.claims import CLAIMS

        chosen = [claim for claim in CLAIMS if self.status in ("all", claim.status)]
        if self.json:
            print_json({"claims": [asdict(claim) for claim in chosen]})
            return 0
        columns = ("claim", "status", "says", "function", "test")
        rows = [
            (claim.number, claim.status, claim.sentence,
             "\n".join(name.removeprefix("recallscope.") for name in claim.functions),
             "\n".join(path.removeprefix("tests/") for path in claim.tests))
            for claim in chosen
        ]  # fmt: skip
        console().print(table(columns, rows, left=columns))
        counts = Counter(claim.status for claim in CLAIMS)
        show(["", ", ".join(f"{count} {status}" for status, count in counts.most_common())])
        return 0
