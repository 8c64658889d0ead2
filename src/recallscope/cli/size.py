"""`recallscope size`: which dimensions do I need?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from recallscope.cli.flags import OptionalInt, OptionalText, names_from, problem_flags
from recallscope.cli.output import console, count, print_json, show, table
from recallscope.specs import ARCHITECTURES


@dataclass(kw_only=True)
class Size(problem_flags(required=())):  # type: ignore[misc]
    """Find the smallest dimensions, or the largest number of facts, for a target accuracy.

    recallscope size --target 0.99 --vocab-size 1024 --num-facts 16 --embed-dim 64

    Give all but one of --embed-dim, --state-dim, --num-facts and --vocab-size to find the missing one. Give neither
    --embed-dim nor --state-dim to list all minimal pairs:

    recallscope size --target 0.99 --vocab-size 1024 --num-facts 16

    An answer beyond the sizes the law was compared with is marked as extrapolated. --bits finds the bits per entry of a
    rounded state instead:

    recallscope size --target 0.9 --bits 4096 --embed-dim 128 --state-dim 128 --vocab-size 32768
    """

    target: float
    """Target accuracy, between 0 and 1."""
    solve_for: OptionalText = None
    """The field to find, one of the four or num_layers (default: the one that is left out)."""
    model: Annotated[str, names_from(ARCHITECTURES.names)] = "linear_mamba"
    """Architecture whose law is inverted."""
    designed: bool = False
    """Hand-constructed weights instead of trained ones."""
    law: OptionalText = None
    """Invert this law instead (see: recallscope laws)."""
    bits: OptionalInt = None
    """Instead: bits per state entry that cost 1% of accuracy at --target, for a context of this many writes or a decay
    time of this many tokens."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find the unknown, or the frontier, and print it."""
        from recallscope.predictions import size_query, size_sentences, sizing, state_bits

        if self.bits is not None:
            self._print_bits(state_bits(vars(self)))
            return 0
        asked, unknown = size_query(vars(self))
        found = sizing(asked, unknown, model=self.model)
        if self.json:
            print_json(found)
            return 0
        show(size_sentences(found, unknown), bold=1)
        if points := found["frontier"]:
            columns = ("embed_dim", "state_dim", "p_recall", "state entries", "parameters", "state bytes")
            rows = [
                (f"{point['embed_dim']}{'*' if point['extrapolated'] else ' '}", str(point["state_dim"]),
                 f"{point['probability']:.5f}", *map(count, (point["state_entries"], point["parameters"],
                 point["state_bytes"])))
                for point in points
            ]  # fmt: skip
            console().print(table(columns, rows))
            show(f"* {sentence}" for sentence in dict.fromkeys(point["extrapolated"] for point in points) if sentence)
        return 0

    def _print_bits(self, found: dict[str, Any]) -> None:
        if self.json:
            print_json(found)
            return
        show(
            [f"bits of a state entry for {found['writes']} writes, and a loss of 0.01 at recall {found['target']:g}"], 1
        )
        names = ("scale", "nearest", "stochastic", "every_16", "once")
        heads = ("scale per", "nearest", "stochastic", "every 16 tokens", "once or error feedback")
        console().print(table(heads, [[str(row[name]) for name in names] for row in found["rows"]], left=heads[:1]))
        longest = ", ".join(f"{name} {writes:,.0f}" for name, writes in found["longest"].items())
        show([f"writes, or tokens of decay, that a float holds for the same loss: {longest}"])
