"""`recallscope predict`: how likely is recall with these dimensions?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.cli.flags import OptionalInt, Unset, make_task, print_json
from recallscope.specs import HeadPattern

if TYPE_CHECKING:
    from rich.console import Console

    from recallscope.specs import RunSpec
    from recallscope.theory.law import Law
    from recallscope.theory.problem import Problem


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
        import numpy as np

        from recallscope.theory.law import LAWS, find_law, laws_for
        from recallscope.theory.problem import Problem

        task = make_task(kind=self.task, vocab_size=self.vocab_size, num_facts=self.num_facts, length=self.length)
        if not self.embed_dim or not self.state_dim:
            raise ValueError(
                "--embed-dim and --state-dim need a number each, or several. Try --embed-dim 64 --state-dim 16."
            )
        for D in self.embed_dim:
            for N in self.state_dim:
                LinearSpec(embed_dim=D, state_dim=N, num_layers=self.num_layers)  # type: ignore[call-arg]
        check_heads(self.num_heads, self.head_pattern, *self.embed_dim)
        all_D, all_N = (grid.ravel() for grid in np.meshgrid(self.embed_dim, self.state_dim, indexing="ij"))
        problem = Problem.from_words({**vars(self), "embed_dim": all_D, "state_dim": all_N})
        best = recommended_law(self.model)[0]
        first = best.for_pattern(self.head_pattern) if self.num_layers == 1 else best
        laws = [find_law(name) for name in self.law]
        if not laws:
            ordered = dict.fromkeys([first, best, *laws_for(self.model), *LAWS])
            laws = [law for law in ordered if not law.missing(problem)]
        rows = self._rows(laws, problem)
        if self.json:
            headline = rows[0]["headline"] if len(rows) == 1 else None
            print_json({"task": task.model_dump(mode="json"), "headline": headline, "rows": rows})
            return 0
        shown = laws if self.all or self.law else laws[:1]
        if len(rows) == 1:
            self._print_cell(task.sequence_length, rows[0], laws, shown)
        else:
            self._print_grid(rows, shown)
        return 0

    def _rows(self, laws: list[Law], problem: Problem) -> list[dict[str, Any]]:
        """One row per pair of D and N; MHA has a lower and an upper bound by every law for one head (Thm 4.7)."""
        import numpy as np

        from recallscope.theory.reduction import one_head

        cells = [problem.take(index) for index in range(problem.D.size)]
        rows: list[dict[str, Any]] = [
            {"embed_dim": int(cell.D), "state_dim": int(cell.N), "laws": {}, "extrapolated": {}} for cell in cells
        ]
        asked = [("laws", law, problem) for law in laws]
        if self.head_pattern == "MHA":
            asked += [("laws_upper", law, one_head(problem, "upper")) for law in laws if not law.heads]
        for side, law, question in asked:
            # a law that was asked for by name says why it does not apply; the others step aside
            for row, p in zip(rows, law(question) if self.law else law_or_nan(law, question), strict=True):
                row.setdefault(side, {})[law.name] = float(p)
        for law in laws:
            outside = np.broadcast_to(law.extrapolated(problem), (len(rows),))
            for row, cell, beyond in zip(rows, cells, outside, strict=True):
                row["extrapolated"][law.name] = law.limits(cell) if beyond else ""
        first = laws[0]
        for row, cell in zip(rows, cells, strict=True):
            inside = (domain.sentence for domain in first.compared if domain.contains(cell))
            row["headline"] = {
                "probability": row["laws"][first.name],
                **({"upper": row["laws_upper"][first.name]} if first.name in row.get("laws_upper", {}) else {}),
                "law": first.name,
                "compared": next(inside, None),
                "extrapolated": row["extrapolated"][first.name],
                "support": first.support,
            }
        return rows

    def _print_cell(self, length: int, row: dict[str, Any], laws: list[Law], shown: list[Law]) -> None:
        from rich.console import Console

        console = Console(highlight=False)
        V, N_f, D, N = self.vocab_size, self.num_facts, row["embed_dim"], row["state_dim"]
        title = f"{self.task.upper()}  V={V}  N_f={N_f}  L={length}  D={D}  N={N}"
        title += f"  layers={self.num_layers}" if self.num_layers > 1 else ""
        title += f"  {self.head_pattern} x {self.num_heads}" if self.head_pattern else ""
        console.print(f"[bold]{title}[/bold]")
        first, headline = laws[0], row["headline"]
        console.print(f"p_recall [bold]{_interval(row, first.name)}[/bold]   {first.name}: {first.summary}")
        outside, inside = headline["extrapolated"], f"compared for {headline['compared']}"
        console.print(f"[bold]{outside}[/bold]" if outside else inside)
        console.print(first.support)
        if not self.all and not self.law:
            console.print(f"{len(laws) - 1} other laws: --all", style="dim")
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
            table.add_column(column, overflow="fold", no_wrap=column == "law")
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
                console.print(f"* {sentence}")


def check_heads(num_heads: int, head_pattern: HeadPattern | None, *embed_dims: int) -> None:
    """Several heads need a pattern, and dimensions that they can split."""
    if head_pattern is None and num_heads != 1:
        raise ValueError(
            f"num_heads={num_heads} needs --head-pattern: what the heads share decides what they add (Thm 4.7). "
            f"Mamba-2 itself uses MVA."
        )
    if head_pattern is not None:
        for D in embed_dims:
            heads = {"num_heads": num_heads, "head_pattern": head_pattern}
            MultiHeadSpec.model_validate({"embed_dim": D, "state_dim": 1, "expand": 1, "conv_width": 2} | heads)


def recommended_law(model: str) -> tuple[Law, str]:
    """The law for an architecture or a kind of weights, and what it rests on."""
    from recallscope.specs import find_architecture
    from recallscope.theory.law import RECOMMENDED, find_law

    name = RECOMMENDED[model] if model in RECOMMENDED else find_architecture(model).law
    if name is None:
        raise ValueError(f"no law of the catalogue predicts the recall of {model}. Name one with --law, or train it.")
    law = find_law(name)
    return law, law.support


def predictions(run: RunSpec) -> list[tuple[str, float]]:
    """What the law of the run's architecture, and the paper's own, say about it; none where they do not apply."""
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


def law_or_nan(law: Law, problem: Problem) -> Any:
    """The law's values for a Problem, nan outside of its domain, and where it does not apply to the task at all."""
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            return np.atleast_1d(np.where(law.in_domain(problem), law(problem), np.nan))
    except ValueError:
        return np.full(problem.shape or (1,), np.nan)


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
