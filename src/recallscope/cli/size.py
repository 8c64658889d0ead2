"""`recallscope size`: which dimensions do I need?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from recallscope.cli.flags import OptionalText, names_from
from recallscope.cli.output import console, count, print_json, show, table
from recallscope.cli.problem_flags import problem_flags
from recallscope.specs import ARCHITECTURES


@dataclass(kw_only=True)
class Size(problem_flags(required=())):  # type: ignore[misc]
    """recallscope size --target 0.99 --vocab-size 1024 --num-facts 16 --embed-dim 64

    Find what is missing for a wanted recall probability. Give all but one of --embed-dim, --state-dim, --num-facts and
    --vocab-size and the missing one is found; give neither --embed-dim nor --state-dim and all minimal pairs are
    listed:

    recallscope size --target 0.99 --vocab-size 1024 --num-facts 16

    An answer outside of what the law was compared with is marked as extrapolated.
    """

    target: float
    """Wanted recall probability, between 0 and 1."""
    solve_for: OptionalText = None
    """The field to find, one of the four or num_layers (default: the one that is left out)."""
    model: Annotated[str, names_from(ARCHITECTURES.names)] = "linear_mamba"
    """Architecture whose law is inverted."""
    designed: bool = False
    """Hand-constructed weights instead of trained ones."""
    law: OptionalText = None
    """Invert this law instead (see: recallscope laws)."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Find the unknown, or the frontier, and print it."""
        from recallscope.predictions import size_question, size_sentences, sizing

        asked, unknown = size_question(vars(self))
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
