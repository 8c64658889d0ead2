"""`recallscope laws`: the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from recallscope.cli.output import console, print_json


@dataclass(kw_only=True)
class Laws:
    """List every law of the catalogue.

    recallscope laws

    Shows each law's name and source, what it predicts, where it holds, and what it was compared with.
    """

    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the catalogue."""
        from recallscope.theory.law import LAWS, catalogue, recommended

        if self.json:
            print_json(catalogue())
            return 0
        from rich.padding import Padding

        out, best = console(), set(recommended().values())
        compared: dict[str, str] = {}  # what was compared, to its number
        for law in LAWS:
            text = "; or ".join(domain.sentence for domain in law.compared)
            number = compared.setdefault(text, f"({len(compared) + 1})") if text else "nothing"
            name = f"[bold]{law.name}[/bold]" + (" *" if law.name in best else "")
            out.print(f"{name}  [dim]{law.about} · {law.reference} · {law.status} · compared for {number}[/dim]")
            out.print(Padding(law.summary + (f". Holds for: {law.holds}" if law.holds else ""), (0, 0, 0, 4)))
        out.print("\n* recommended, for an architecture or designed weights. Compared for, and extrapolated elsewhere:")
        for text, number in compared.items():
            out.print(f"{number} {text}")
        return 0
