"""`recallscope predict`: how likely is recall with these dimensions?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from recallscope.cli.flags import TaskFlags, Unset, print_json
from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.specs import HeadPattern

if TYPE_CHECKING:
    from recallscope.theory.catalogue import Law


@dataclass(kw_only=True)
class Predict(TaskFlags):
    """recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16

    Predict the recall probability of a model from its dimensions, by every law that applies; the recommended law comes
    first. Give lists to get a table:

    recallscope predict --vocab-size 512 --num-facts 16 --embed-dim 32 64 --state-dim 4 8 16
    """

    embed_dim: tuple[int, ...]
    """D; one or several."""
    state_dim: tuple[int, ...]
    """N; one or several."""
    num_layers: int = 1
    """Lambda; the layers' states add up to N_eff (Thm 4.6)."""
    num_heads: int = 1
    """M, heads of Mamba-2 (with --head-pattern)."""
    head_pattern: Annotated[HeadPattern | None, Unset] = None
    """What the heads share; MHA is answered by a lower and an upper bound (Thm 4.7)."""
    model: Literal["trained", "designed", "full"] = "trained"
    """Whose laws come first: trained linear Mamba, designed weights, trained full Mamba."""
    law: tuple[str, ...] = ()
    """Only these laws (see: recallscope laws)."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Check the words, evaluate the laws, print a table or JSON."""
        from recallscope.theory.catalogue import LAWS, find_law, laws_for

        task = self.spec()
        if not self.embed_dim or not self.state_dim:
            raise ValueError(
                "--embed-dim and --state-dim need a number each, or several. Try --embed-dim 64 --state-dim 16."
            )
        for D in self.embed_dim:
            for N in self.state_dim:
                LinearSpec(embed_dim=D, state_dim=N, num_layers=self.num_layers)  # type: ignore[call-arg]
        if self.head_pattern is None and self.num_heads != 1:
            raise ValueError(
                f"num_heads={self.num_heads} needs --head-pattern: what the heads share decides what they add "
                f"(Thm 4.7). Mamba-2 itself uses MVA."
            )
        if self.head_pattern is not None:
            for D in self.embed_dim:
                MultiHeadSpec(
                    embed_dim=D,
                    state_dim=1,
                    num_heads=self.num_heads,
                    head_pattern=self.head_pattern,
                    expand=1,
                    conv_width=2,
                )
        first = laws_for(self.model)
        laws = [find_law(name) for name in self.law] or first + [law for law in LAWS if law not in first]
        rows = self._rows(laws)
        if self.json:
            print_json({"task": task.model_dump(mode="json"), "rows": rows})
        elif len(rows) == 1:
            self._print_cell(task.length, rows[0], laws)
        else:
            self._print_grid(rows, laws if self.law else laws[:1])
        return 0

    def _rows(self, laws: list[Law]) -> list[dict[str, Any]]:
        import numpy as np

        from recallscope.theory.heads import head_bounds

        D, N = (grid.ravel() for grid in np.meshgrid(self.embed_dim, self.state_dim, indexing="ij"))
        bounds = head_bounds(self.head_pattern or "MVA", D, N, self.num_heads)
        words = {
            "vocab_size": self.vocab_size,
            "num_facts": self.num_facts,
            "task": self.task,
            "length": self.length if self.task == "mqar" else None,
            "num_layers": self.num_layers,
        }
        rows: list[dict[str, Any]] = [
            {"embed_dim": int(d), "state_dim": int(n), "laws": {}} for d, n in zip(D, N, strict=True)
        ]
        sides = [("laws", bounds.lower)] + ([("laws_upper", bounds.upper)] if self.head_pattern == "MHA" else [])
        for side, dims in sides:
            for law in laws:
                # a law that was asked for by name says why it does not apply; the others step aside
                evaluate: Callable[..., Any] = law if self.law else partial(law_or_nan, law)
                p = np.atleast_1d(evaluate(embed_dim=dims.embed_dim, state_dim=dims.state_dim, **words))
                for row, value in zip(rows, p, strict=True):
                    row.setdefault(side, {})[law.name] = float(value)
        if self.head_pattern and self.num_layers == 1:
            for row, value in zip(rows, self._counted(D, N), strict=True):
                row["channels_counted"] = float(value)
        return rows

    def _counted(self, D: Any, N: Any) -> Any:
        """Trained models have 2 D channels: what that makes of the heads."""
        from recallscope.theory.sharing_heads import sharing_heads_law

        return sharing_heads_law(
            head_pattern=self.head_pattern or "MVA",
            num_heads=self.num_heads,
            vocab_size=self.vocab_size,
            num_facts=self.num_facts,
            embed_dim=D,
            state_dim=N,
            task=self.task,
            length=self.length if self.task == "mqar" else None,
        )

    def _print_cell(self, length: int, row: dict[str, Any], laws: list[Law]) -> None:
        from rich.console import Console
        from rich.table import Table

        from recallscope.theory.catalogue import RECOMMENDED

        console = Console()
        V, N_f, D, N = self.vocab_size, self.num_facts, row["embed_dim"], row["state_dim"]
        name, why = RECOMMENDED[self.model]
        title = f"{self.task.upper()}  V={V}  N_f={N_f}  L={length}  D={D}  N={N}"
        title += f"  layers={self.num_layers}" if self.num_layers > 1 else ""
        title += f"  {self.head_pattern} x {self.num_heads}" if self.head_pattern else ""
        console.print(f"[bold]{title}[/bold]", highlight=False)
        if not self.law:
            console.print(f"p_recall [bold]{_interval(row, name)}[/bold]   {name}: {why}\n", highlight=False)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("p_recall", "law", "weights", "source", "says"):
            table.add_column(column, overflow="fold")
        for law in laws:
            table.add_row(_interval(row, law.name), law.name, law.weights, law.reference, law.summary)
        console.print(table, highlight=False)
        if "channels_counted" in row:
            console.print(
                f"\n{_number(row['channels_counted'])}: trained-sharing with the 2 D channels of the published models "
                f"counted; closest to trained {self.head_pattern}.",
                highlight=False,
            )
        if self.num_layers * N > D:
            console.print(
                "\nN > D: the designed hash takes N orthonormal rows from R^D (App. E.1); designed laws show -.",
                highlight=False,
            )

    def _print_grid(self, rows: list[dict[str, Any]], laws: list[Law]) -> None:
        from rich.console import Console
        from rich.table import Table

        console = Console()
        values = {(row["embed_dim"], row["state_dim"]): row for row in rows}
        for law in laws:
            console.print(f"[bold]{law.name}[/bold]: {law.summary}", highlight=False)
            table = Table(box=None, pad_edge=False, header_style="dim")
            table.add_column("D \\ N", style="dim")
            for N in self.state_dim:
                table.add_column(str(N), justify="right")
            for D in self.embed_dim:
                table.add_row(str(D), *(_interval(values[D, N], law.name) for N in self.state_dim))
            console.print(table, highlight=False)


def law_or_nan(law: Law, **words: Any) -> Any:
    """The law's values, nan where the law does not apply to the task at all."""
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            return np.atleast_1d(law(**words))
    except ValueError:
        return np.full(np.atleast_1d(words["embed_dim"]).shape, np.nan)


def _interval(row: dict[str, Any], name: str) -> str:
    lower = _number(row["laws"][name])
    if "laws_upper" not in row:
        return lower
    return f"{lower}..{_number(row['laws_upper'][name])}"


def _number(p: float) -> str:
    if p != p:
        return "-"
    return f"{p:.3f}" if p <= 0.9995 else f"{p:.6g}"
