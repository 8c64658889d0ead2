"""`recallscope predict`: how likely is recall with these dimensions?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from recallscope.cli.flags import SeveralStateFlags, names_from, problem_flags
from recallscope.cli.output import console, print_json, show, table
from recallscope.specs import ARCHITECTURES

SIZES = problem_flags(
    required=("vocab_size", "num_facts", "embed_dim", "state_dim"), several=("embed_dim", "state_dim")
)


@dataclass(kw_only=True)
class Predict(SeveralStateFlags, SIZES):  # type: ignore[misc, valid-type]
    """Predict a model's recall accuracy from its dimensions.

    recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16

    Uses the recommended law; --all also shows every other law that applies. A prediction beyond the sizes a law was
    compared with is marked as extrapolated. Give lists to get a table:

    recallscope predict --vocab-size 512 --num-facts 16 --embed-dim 32 64 --state-dim 4 8 16

    --state-format int8 int4 adds the accuracy with the state stored in few bits. --top-k 5 predicts how often the right
    value is among the 5 best.
    """

    model: Annotated[str, names_from(ARCHITECTURES.names)] = "linear_mamba"
    """Architecture whose law is shown first."""
    designed: bool = False
    """Hand-constructed weights instead of trained ones."""
    law: tuple[str, ...] = ()
    """Only these laws (see: recallscope laws)."""
    top_k: int = 1
    """Predict how often the right value is among the k best, where the law allows it."""
    all: bool = False
    """Show every law that applies, not only the recommended one."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Ask the laws, print a table or JSON."""
        from recallscope.predictions import prediction, question, stored_prediction
        from recallscope.theory.law import find_law

        answer = prediction(vars(self), others=self.json or self.all)
        stored = [stored_prediction(vars(self), precision) for precision in self.precisions()]
        answer |= {"stored_state": stored[0]} if len(stored) == 1 else {"stored_states": stored} if stored else {}
        if self.json:
            print_json(answer)
            return 0
        rows = answer["rows"]
        shown = [find_law(name) for name in rows[0]["laws"]]
        if len(rows) == 1:
            others = 0 if self.all or self.law else len(question(vars(self))[2]) - 1
            self._print_cell(answer["task"], rows[0], shown, others)
        else:
            self._print_grid(rows, shown)
        for one in stored:
            values = ", ".join(
                f"{p:.3f}" + f" (D={row['embed_dim']}, N={row['state_dim']})" * (len(rows) > 1)
                for p, row in zip(one["rows"], rows, strict=True)
            )
            show([f"with the state stored as {one['label']}: {values}"])
        show([one["holds"] for one in stored[:1]])
        return 0

    def _print_cell(self, task: dict[str, Any], row: dict[str, Any], shown: list[Any], others: int) -> None:
        from recallscope.predictions import basis, marked, probability_text

        D, N = row["embed_dim"], row["state_dim"]
        more = {"L": task.get("length"), "m": task.get("key_tokens"), "rho": task.get("rho")}
        more = {"table": f"{self.rows}x{self.columns}"} if task.get("rows") else more
        of_task = "".join(f"  {name}={value}" for name, value in more.items() if value is not None)
        title = f"{self.task.upper()}  V={self.vocab_size}  N_f={self.num_facts}{of_task}  D={D}  N={N}"
        title += f"  layers={self.num_layers}" if self.num_layers > 1 else ""
        title += f"  {self.head_pattern} x {self.num_heads}" if self.head_pattern else ""
        first = shown[0]
        what = f"p_top{self.top_k}" if self.top_k > 1 else "p_recall"
        headline = f"{what} {probability_text(row, first.name)}   {first.name}: {first.summary}"
        show([title, headline, *basis(row["headline"])], bold=2)
        if others:
            show([f"{others} other laws: --all"])
        if len(shown) > 1:
            columns = ("p_recall", "law", "of", "source", "says")
            cells = [(marked(row, law.name), law.name, law.about, law.reference, law.summary) for law in shown]
            show([""])
            console().print(table(columns, cells, left=columns, whole=("p_recall", "law")))
            show(
                ["", "* extrapolated: outside of what the law was compared with (recallscope laws); - no meaning here"]
            )
        if self.num_layers * N > D and (self.all or self.law):
            show(["", "N > D: the designed hash takes N orthonormal rows from R^D (App. E.1); designed laws show -."])

    def _print_grid(self, rows: list[dict[str, Any]], laws: list[Any]) -> None:
        from recallscope.predictions import marked

        values = {(row["embed_dim"], row["state_dim"]): row for row in rows}
        for law in laws:
            cells = [[str(D), *(marked(values[D, N], law.name) for N in self.state_dim)] for D in self.embed_dim]
            show([f"{law.name}: {law.summary}"], bold=1)
            console().print(table(["D \\ N", *map(str, self.state_dim)], cells, left=["D \\ N"]))
            notes = dict.fromkeys(filter(None, (row["extrapolated"][law.name] for row in rows)))
            show(f"{'-' if sentence.startswith('no answer') else '*'} {sentence}" for sentence in notes)
