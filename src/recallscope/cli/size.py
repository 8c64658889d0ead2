"""`recallscope size`: which dimensions do I need?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from recallscope.architectures.linear import LinearSpec
from recallscope.cli.flags import OptionalInt, OptionalText, Unset, make_task, print_json
from recallscope.cli.predict import check_heads
from recallscope.specs import HeadPattern

if TYPE_CHECKING:
    from recallscope.theory.solve import FrontierPoint, Question, Unknown


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
        from recallscope.cli.predict import recommended_law
        from recallscope.theory.law import RECOMMENDED, find_law
        from recallscope.theory.problem import probability
        from recallscope.theory.solve import Question, solve

        probability("target", self.target)
        law = find_law(self.law) if self.law else recommended_law(self.model)[0].for_pattern(self.head_pattern)
        unknown = self._unknown()
        self._check()
        known = {field.name: getattr(self, field.name) for field in fields(Question)} | {"law": law}
        if unknown == "num_layers":
            known["num_layers"] = None
        question = Question(**known)
        answer: dict[str, Any] | None = None
        points: list[FrontierPoint] = []
        if unknown == "frontier":
            points, answer, reason = _frontier(question, "linear" if self.model in RECOMMENDED else self.model)
        else:
            found = solve(question, unknown)
            reason = found.reason
            if found.value is not None:
                answer = {"embed_dim": self.embed_dim, "state_dim": self.state_dim, unknown: found.value}
                answer |= {"probability": found.probability, "extrapolated": found.extrapolated}
                answer |= {} if found.real is None else {"real": found.real}
        if self.json:
            shown = {"target": self.target, "law": law.name, "answer": answer, "reason": reason}
            print_json(shown | {"frontier": [asdict(point) for point in points]})
        else:
            self._print(law.name, unknown, answer, reason, points)
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
        N_f, D, N = (1 if size is None else size for size in (self.num_facts, self.embed_dim, self.state_dim))
        V = 2 * max(N_f, 1) + 8 if self.vocab_size is None else self.vocab_size
        make_task(kind=self.task, vocab_size=V, num_facts=N_f, length=self.length)
        LinearSpec(embed_dim=D, state_dim=N, num_layers=self.num_layers)  # type: ignore[call-arg]
        check_heads(self.num_heads, self.head_pattern, self.num_heads if self.embed_dim is None else D)

    def _print(
        self, law: str, unknown: str, answer: dict[str, Any] | None, reason: str, points: list[FrontierPoint]
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
            star = "*" if point.extrapolated else " "
            table.add_row(
                f"{point.embed_dim}{star}", str(point.state_dim), f"{point.probability:.5f}",
                f"{point.state_entries:,}", "-" if point.parameters is None else f"{point.parameters:,}",
                f"{point.state_bytes:,}",
            )  # fmt: skip
        console.print(table)
        for sentence in dict.fromkeys(point.extrapolated for point in points if point.extrapolated):
            console.print(f"* {sentence}")


def _frontier(question: Question, model: str) -> tuple[list[FrontierPoint], dict[str, Any] | None, str]:
    """All minimal pairs, the one with the smallest state, and what is said of it."""
    from recallscope.theory.solve import LARGEST_EMBED, frontier

    points = frontier(question, model=model)
    if points:
        best = min(points, key=lambda point: (point.extrapolated != "", point.state_entries, point.embed_dim))
        starred = any(point.extrapolated for point in points)
        which = "smallest state" + (" (all are extrapolated)" if best.extrapolated else " without *" if starred else "")
        return points, asdict(best), which
    p = float(question.evaluate(embed_dim=LARGEST_EMBED, state_dim=LARGEST_EMBED))
    return [], None, f"unreachable: even embed_dim=state_dim={LARGEST_EMBED} gives p={p:.6f}: the task sets a ceiling."
