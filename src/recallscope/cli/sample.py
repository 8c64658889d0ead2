"""`recallscope sample`: look at the task, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from recallscope.cli.flags import OptionalInt, SpecFlags, names_from, typed_value, with_spec_flags
from recallscope.cli.output import console, print_json
from recallscope.specs import TASKS, TaskSpec, parse_task

if TYPE_CHECKING:
    from recallscope.tasks.batch import Batch

MOST_TOKENS = 50_000_000  # about 400 MB of tokens: more is a slip of the keyboard


@dataclass(kw_only=True)
class Sample(SpecFlags):
    """Print sequences of a recall task, token by token.

    recallscope sample --task mqar --vocab-size 64 --num-facts 4 --num-sequences 2 --seed 0

    --stream zoology reproduces zoology's own generator bit for bit:

    recallscope sample --vocab-size 128 --num-facts 16 --length 64 --power-a 0.01 --stream zoology --filler zero --json
    """

    task: Annotated[str, names_from(TASKS.names)] = "mqar"
    """mqar queries every fact, ar one; repeated writes keys several times; template_* has correlated keys. Its fields
    are flags."""
    num_sequences: int = 1
    """Sequences to draw."""
    seed: int = 0
    """Random seed of the sequences."""
    stream: Literal["torch", "zoology"] = "torch"
    """torch: our fast generator; zoology: the original stream, row by row."""
    filler_seed: OptionalInt = None
    """zoology only: seed of the filler, which the original draws from torch's global stream (default: --seed)."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Draw and print."""
        task = parse_task({"kind": self.task} | self.given("task"))
        if self.num_sequences < 1:
            raise ValueError(f"num_sequences={self.num_sequences}: at least one sequence is drawn.")
        for name, value in (("seed", self.seed), ("filler_seed", self.filler_seed)):
            if value is not None and not 0 <= value < 2**31:
                raise ValueError(f"{name}={value} is outside 0..{2**31 - 1}.")
        L = task.sequence_length
        if self.num_sequences * L > MOST_TOKENS:
            raise ValueError(
                f"num_sequences={self.num_sequences} times length={L} is {self.num_sequences * L:,} tokens; at most "
                f"{MOST_TOKENS:,} are drawn at once. Use num_sequences <= {MOST_TOKENS // L:,}."
            )
        if self.filler_seed is not None and self.stream != "zoology":
            raise ValueError("--filler-seed belongs to --stream zoology; our own stream draws the filler from --seed.")
        batch = self._draw(task)
        if self.json:
            print_json({"tokens": batch.tokens.tolist(), "targets": batch.targets.tolist()})
        else:
            self._print(task, batch)
        return 0

    def _draw(self, task: TaskSpec) -> Batch:
        import torch

        from recallscope.tasks.drawing import sample_batch
        from recallscope.tasks.zoology import zoology_batch

        if self.stream == "zoology":
            filler_seed = self.seed if self.filler_seed is None else self.filler_seed
            return zoology_batch(task, self.num_sequences, self.seed, filler_seed=filler_seed)
        return sample_batch(task, self.num_sequences, torch.Generator().manual_seed(self.seed))

    def _print(self, task: TaskSpec, batch: Batch) -> None:
        from rich.text import Text

        out = console()
        context = getattr(task, "context_length", 2 * batch.all_values[0].numel())  # tokens of the facts section
        m = getattr(task, "key_tokens", 1)
        width = len(str(task.vocab_size - 1))
        legend = Text.assemble(
            ("key", "cyan"), " ", ("value", "red"), " ", ("query", "bold green"), " ", ("filler", "dim"), "\n"
        )
        out.print(legend)
        shown = min(len(batch.tokens), 20)
        for tokens, targets in zip(batch.tokens[:shown].tolist(), batch.targets[:shown].tolist(), strict=True):
            x, y = Text("x  "), Text("y  ")
            for position, (token, target) in enumerate(zip(tokens, targets, strict=True)):
                asked, fact = target != -100, "red" if position % (m + 1) == m else "cyan"
                query = any(later != -100 for later in targets[position : position + m])
                style = "bold green" if query else "dim" if position >= context else fact
                x.append(f"{token:>{width}} ", style)
                y.append(f"{target if asked else '*':>{width}} ", "red" if asked else "dim")
            out.print(x, soft_wrap=True)
            out.print(y, soft_wrap=True)
            out.print()
        if shown < len(batch.tokens):
            out.print(f"{len(batch.tokens) - shown} more sequences; --json prints all.")


def command_for(arguments: Sequence[str]) -> type:
    """The command with the fields of the task that is asked for."""
    return with_spec_flags(Sample, {"task": TASKS.find(typed_value(arguments, "--task") or "mqar")})
