"""`recallscope laws`: the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from recallscope.cli.flags import print_json


@dataclass(kw_only=True)
class Laws:
    """recallscope laws

    List every law: its name, where it comes from, what it says, where it holds, what it was compared with.
    """

    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the catalogue."""
        from recallscope.theory.law import LAWS, catalogue, recommended

        if self.json:
            print_json(catalogue())
            return 0
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("law", "of", "source", "says", "holds for", "status", "compared for"):
            table.add_column(column, overflow="fold")
        compared: dict[str, str] = {}  # what was compared, to its number
        best = set(recommended().values())
        for law in LAWS:
            name = f"[bold]{law.name}[/bold] *" if law.name in best else law.name
            text = "; or ".join(domain.sentence for domain in law.compared)
            number = compared.setdefault(text, f"({len(compared) + 1})") if text else "nothing"
            table.add_row(name, law.about, law.reference, law.summary, law.holds, law.status, number)
        console = Console(highlight=False)
        console.print(table)
        console.print(
            "\n* recommended, for an architecture or designed weights. Compared for, and extrapolated elsewhere:"
        )
        for text, number in compared.items():
            console.print(f"{number} {text}")
        return 0
