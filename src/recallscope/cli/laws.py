"""`recallscope laws`: the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from recallscope.cli.flags import print_json


@dataclass(kw_only=True)
class Laws:
    """recallscope laws

    List every law: its name, where it comes from, what it says, where it holds.
    """

    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the catalogue."""
        from recallscope.theory.law import LAWS, RECOMMENDED

        if self.json:
            shown = ("name", "weights", "summary", "reference", "holds", "status", "needs")
            rows = [
                {field: getattr(law, field) for field in shown}
                | {"domain": None if law.domain is None else list(law.domain.conditions)}
                for law in LAWS
            ]
            print_json({"laws": rows, "recommended": {kind: name for kind, (name, _) in RECOMMENDED.items()}})
            return 0
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("law", "weights", "source", "says", "holds for", "status"):
            table.add_column(column, overflow="fold")
        best = {name for name, _ in RECOMMENDED.values()}
        for law in LAWS:
            name = f"[bold]{law.name}[/bold] *" if law.name in best else law.name
            table.add_row(name, law.weights, law.reference, law.summary, law.holds, law.status)
        console = Console(highlight=False)
        console.print(table)
        console.print("\n* recommended for its kind of weights")
        return 0
