"""`recallscope size`: which dimensions do I need?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from recallscope.architectures.linear import LinearSpec
from recallscope.cli.flags import OptionalInt, OptionalText, Unset, print_json
from recallscope.specs import HeadPattern

if TYPE_CHECKING:
    from recallscope.theory.solve import Unknown


@dataclass(kw_only=True)
class Size:
    """recallscope size --target 0.99 --vocab-size 1024 --num-facts 16 --embed-dim 64

    Find what is missing for a wanted recall probability. Give all but one of --embed-dim, --state-dim, --num-facts and
    --vocab-size and the missing one is found; give neither --embed-dim nor --state-dim and all minimal pairs are
    listed:

    recallscope size --target 0.99 --vocab-size 1024 --num-facts 16

    An answer outside of what the law was compared with is marked as extrapolated.
    """

    target: float
    """Wanted recall probability, between 0 and 1."""
    vocab_size: OptionalInt = None
    """V; leave out to find the largest."""
    num_facts: OptionalInt = None
    """N_f; leave out to find the largest."""
    embed_dim: OptionalInt = None
    """D; leave out to find the least."""
    state_dim: OptionalInt = None
    """N; leave out to find the least."""
    num_layers: int = 1
    """Lambda."""
    num_heads: int = 1
    """M, heads of Mamba-2 (with --head-pattern)."""
    head_pattern: Annotated[HeadPattern | None, Unset] = None
    """What the heads share."""
    solve_for: Literal["auto", "num_layers"] = "auto"
    """num_layers: find the least number of layers instead."""
    task: Literal["ar", "mqar"] = "mqar"
    """ar: one query; mqar: every fact is asked once."""
    length: OptionalInt = None
    """L; 4 N_f for mqar, 2 N_f + 1 for ar."""
    model: str = "trained"
    """Whose law is inverted: an architecture (linear, full, delta_net ...), trained (that is linear), or designed."""
    law: OptionalText = None
    """Invert this law instead (see: recallscope laws)."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find the unknown, or the frontier, and print it."""
        from recallscope.answers import recommended_law, sizing
        from recallscope.theory.law import find_law
        from recallscope.theory.problem import probability
        from recallscope.theory.solve import Question

        probability("target", self.target)
        law = find_law(self.law) if self.law else recommended_law(self.model).for_pattern(self.head_pattern)
        unknown = self._unknown()
        self._check()
        known = {field.name: getattr(self, field.name) for field in fields(Question)} | {"law": law}
        if unknown == "num_layers":
            known["num_layers"] = None
        answer = sizing(Question(**known), unknown, model=self.model)
        if self.json:
            print_json(answer)
        else:
            self._print(law.name, unknown, answer["answer"], answer["reason"], answer["frontier"])
        return 0

    def _unknown(self) -> Unknown | Literal["frontier"]:
        sizes = ("vocab_size", "num_facts", "embed_dim", "state_dim")
        missing: list[Any] = [name for name in sizes if getattr(self, name) is None]
        if self.solve_for == "num_layers":
            if missing:
                raise ValueError(f"--solve-for num_layers needs {', '.join(missing)} as well.")
            return "num_layers"
        if missing == ["embed_dim", "state_dim"]:
            return "frontier"
        if len(missing) == 1:
            return missing[0]
        if not missing:
            raise ValueError(
                "nothing is left to find: leave out one of --embed-dim, --state-dim, --num-facts, --vocab-size, "
                "or say --solve-for num_layers. To get the probability itself, use recallscope predict."
            )
        raise ValueError(
            f"too much is left to find: {', '.join(missing)}. Leave out one of them, or both --embed-dim and "
            f"--state-dim to see all minimal pairs."
        )

    def _check(self) -> None:
        """The known words must make sense as a task and a model; stand-ins take the place of the unknown."""
        from recallscope.answers import check_heads, make_task

        N_f, D, N = (1 if size is None else size for size in (self.num_facts, self.embed_dim, self.state_dim))
        V = 2 * max(N_f, 1) + 8 if self.vocab_size is None else self.vocab_size
        make_task(kind=self.task, vocab_size=V, num_facts=N_f, length=self.length)
        LinearSpec(embed_dim=D, state_dim=N, num_layers=self.num_layers)  # type: ignore[call-arg]
        check_heads(self.num_heads, self.head_pattern, self.num_heads if self.embed_dim is None else D)

    def _print(
        self, law: str, unknown: str, answer: dict[str, Any] | None, reason: str, points: list[dict[str, Any]]
    ) -> None:
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False)
        if answer is None:
            console.print(f"[bold]no answer[/bold] for p >= {self.target:g} by {law}: {reason}")
            return
        if unknown != "frontier":
            real = f", {answer['real']:.6g} before rounding" if "real" in answer else ""
            console.print(
                f"[bold]{unknown} = {answer[unknown]}[/bold]   p_recall {answer['probability']:.6f} by {law}{real}"
            )
            console.print(reason)
            if answer["extrapolated"]:
                console.print(f"[bold]{answer['extrapolated']}[/bold]")
            return
        console.print(
            f"[bold]{len(points)} minimal pairs[/bold] reach p >= {self.target:g} by {law}; {reason}: "
            f"embed_dim={answer['embed_dim']}, state_dim={answer['state_dim']}"
        )
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("embed_dim", "state_dim", "p_recall", "state entries", "parameters", "state bytes"):
            table.add_column(column, justify="right")
        for point in points:
            star = "*" if point["extrapolated"] else " "
            parameters = "-" if point["parameters"] is None else f"{point['parameters']:,}"
            table.add_row(
                f"{point['embed_dim']}{star}", str(point["state_dim"]), f"{point['probability']:.5f}",
                f"{point['state_entries']:,}", parameters, f"{point['state_bytes']:,}",
            )  # fmt: skip
        console.print(table)
        for sentence in dict.fromkeys(point["extrapolated"] for point in points if point["extrapolated"]):
            console.print(f"* {sentence}")
