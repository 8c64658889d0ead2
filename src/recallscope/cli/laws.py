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
        from recallscope.specs import ARCHITECTURES
        from recallscope.theory.law import LAWS, RECOMMENDED

        own = {kind: ARCHITECTURES.find(kind).law for kind in ARCHITECTURES.names()}
        recommended = RECOMMENDED | {kind: law for kind, law in own.items() if law}
        if self.json:
            shown = ("name", "weights", "models", "summary", "reference", "holds", "support", "status", "needs")
            rows = [
                {field: getattr(law, field) for field in shown}
                | {"domain": None if law.domain is None else list(law.domain.conditions)}
                | {"compared": [{"task": one.task, "conditions": list(one.conditions)} for one in law.compared]}
                for law in LAWS
            ]
            print_json({"laws": rows, "recommended": recommended})
            return 0
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("law", "of", "source", "says", "holds for", "status", "compared for"):
            table.add_column(column, overflow="fold", no_wrap=column == "law")
        compared: dict[str, str] = {}  # what was compared, to its number
        for law in LAWS:
            name = f"[bold]{law.name}[/bold] *" if law.name in recommended.values() else law.name
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
