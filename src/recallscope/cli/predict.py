"""`recallscope predict`: how likely is recall with these dimensions?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from recallscope.cli.flags import OptionalInt, Unset, print_json
from recallscope.specs import HeadPattern

if TYPE_CHECKING:
    from rich.console import Console

    from recallscope.specs import RunSpec
    from recallscope.theory.law import Law


@dataclass(kw_only=True)
class Predict:
    """recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16

    Predict the recall probability of a model from its dimensions: by the recommended law, or with --all by every law
    that applies. An answer beyond what a law was compared with is marked as extrapolated. Give lists to get a table:

    recallscope predict --vocab-size 512 --num-facts 16 --embed-dim 32 64 --state-dim 4 8 16
    """

    vocab_size: int
    """V, even: half keys, half values."""
    num_facts: int
    """N_f, key-value pairs in the context."""
    task: Literal["ar", "mqar"] = "mqar"
    """ar: one query; mqar: every fact is asked once."""
    length: OptionalInt = None
    """L, tokens in a sequence; 4 N_f for mqar, 2 N_f + 1 for ar."""
    embed_dim: tuple[int, ...]
    """D; one or several."""
    state_dim: tuple[int, ...]
    """N; one or several."""
    num_layers: int = 1
    """Lambda; the layers' states add up to N_eff (Thm 4.6)."""
    num_heads: int = 1
    """M, heads of Mamba-2 (with --head-pattern)."""
    head_pattern: Annotated[HeadPattern | None, Unset] = None
    """What the heads share; laws for one head answer MHA by a lower and an upper bound (Thm 4.7)."""
    model: str = "trained"
    """Whose laws come first: an architecture (linear, full, delta_net ...), trained (that is linear), or designed."""
    law: tuple[str, ...] = ()
    """Only these laws (see: recallscope laws)."""
    all: bool = False
    """Show every law that applies, not only the recommended one."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Check the words, evaluate the laws, print a table or JSON."""
        from recallscope.answers import prediction, question
        from recallscope.theory.law import find_law

        answer = prediction(vars(self), others=self.json or self.all)
        if self.json:
            print_json(answer)
            return 0
        rows = answer["rows"]
        shown = [find_law(name) for name in rows[0]["laws"]]
        if len(rows) == 1:
            others = 0 if self.all or self.law else len(question(vars(self))[2]) - 1
            self._print_cell(answer["task"]["length"], rows[0], shown, others)
        else:
            self._print_grid(rows, shown)
        return 0

    def _print_cell(self, length: int, row: dict[str, Any], shown: list[Law], others: int) -> None:
        from rich.console import Console

        console = Console(highlight=False)
        V, N_f, D, N = self.vocab_size, self.num_facts, row["embed_dim"], row["state_dim"]
        title = f"{self.task.upper()}  V={V}  N_f={N_f}  L={length}  D={D}  N={N}"
        title += f"  layers={self.num_layers}" if self.num_layers > 1 else ""
        title += f"  {self.head_pattern} x {self.num_heads}" if self.head_pattern else ""
        console.print(f"[bold]{title}[/bold]")
        first, headline = shown[0], row["headline"]
        console.print(f"p_recall [bold]{_interval(row, first.name)}[/bold]   {first.name}: {first.summary}")
        outside, inside = headline["extrapolated"], f"compared for {headline['compared']}"
        lines = [inside, first.support] if not outside else [first.support, f"[bold]{outside}[/bold]"]
        console.print("\n".join(lines))
        if others:
            console.print(f"{others} other laws: --all", style="dim")
        if len(shown) > 1:
            console.print()
            self._print_laws(row, shown, console)
        if self.num_layers * N > D and (self.all or self.law):
            console.print(
                "\nN > D: the designed hash takes N orthonormal rows from R^D (App. E.1); designed laws show -."
            )

    def _print_laws(self, row: dict[str, Any], laws: list[Law], console: Console) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("p_recall", "law", "of", "source", "says"):
            table.add_column(column, overflow="fold", no_wrap=column in ("p_recall", "law"))
        for law in laws:
            table.add_row(_marked(row, law.name), law.name, law.about, law.reference, law.summary)
        console.print(table)
        console.print(
            "\n* extrapolated: outside of what the law was compared with (recallscope laws); - no meaning here"
        )

    def _print_grid(self, rows: list[dict[str, Any]], laws: list[Law]) -> None:
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False)
        values = {(row["embed_dim"], row["state_dim"]): row for row in rows}
        for law in laws:
            console.print(f"[bold]{law.name}[/bold]: {law.summary}")
            table = Table(box=None, pad_edge=False, header_style="dim")
            table.add_column("D \\ N", style="dim")
            for N in self.state_dim:
                table.add_column(str(N), justify="right")
            for D in self.embed_dim:
                table.add_row(str(D), *(_marked(values[D, N], law.name) for N in self.state_dim))
            console.print(table)
            for sentence in dict.fromkeys(filter(None, (row["extrapolated"][law.name] for row in rows))):
                console.print(f"{'-' if sentence.startswith('no answer') else '*'} {sentence}")


def predictions(run: RunSpec) -> list[tuple[str, float]]:
    """What the law of the run's architecture, and the paper's own, say about it; none where they do not apply."""
    from recallscope.answers import law_or_nan
    from recallscope.specs import in_words
    from recallscope.theory.law import find_law
    from recallscope.theory.problem import Problem

    own = run.model.own_law
    names = dict.fromkeys(filter(None, (own, "unified" if own and not find_law(own).heads else None)))
    try:
        problem = Problem.from_words(in_words(run.model_dump(mode="json")))
    except ValueError:  # a task that the laws do not speak about
        return []
    found = [(name, float(law_or_nan(find_law(name), problem)[0])) for name in names]
    return [(name, p) for name, p in found if p == p]


def _marked(row: dict[str, Any], name: str) -> str:
    """The number, or the bounds, with a star where they are extrapolated."""
    text = _interval(row, name)
    return f"{text}*" if row["extrapolated"][name] and text != "-" else text


def _interval(row: dict[str, Any], name: str) -> str:
    lower = _number(row["laws"][name])
    upper = row.get("laws_upper", {}).get(name)
    return lower if upper is None else f"{lower}..{_number(upper)}"


def _number(p: float) -> str:
    if p != p:
        return "-"
    return f"{p:.3f}" if p <= 0.9995 else f"{p:.6g}"
