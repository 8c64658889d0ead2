"""`recallscope design`: write a circuit down as weights, and measure it beside the laws' predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from recallscope.circuits.circuit import CIRCUITS, Circuit, CircuitSizes
from recallscope.cli.flags import (
    OptionalInt,
    OptionalPath,
    SpecFlags,
    names_from,
    typed_value,
    with_spec_flags,
)
from recallscope.cli.output import print_json, show
from recallscope.specs import TASKS, TaskSpec, parse_task

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.tasks.batch import Score


@dataclass(kw_only=True)
class Design(SpecFlags):
    """recallscope design --circuit compressive --vocab-size 512 --num-facts 16 --embed-dim 64 --state-dim 32

    Write a recall circuit down as weights and measure its accuracy, beside what the laws predict for it. One draw of
    the codes is one sample: --num-draws averages over several.
    """

    circuit: Annotated[str, names_from(CIRCUITS.names)] = "compressive"
    """Which circuit."""
    embed_dim: OptionalInt = None
    """D (V for the ideal circuit)."""
    state_dim: OptionalInt = None
    """N (V for the ideal circuit)."""
    num_layers: int = 2
    """Lambda (depth)."""
    num_heads: int = 2
    """M (MVA .. MHA)."""
    write_rate: float = 0.05
    """b, what the delta rule replaces of the old value (delta)."""
    task: Annotated[str, names_from(TASKS.names)] = "mqar"
    """Task it is measured on; its fields are flags."""
    num_sequences: int = 2000
    """Sequences to measure on, over all draws."""
    num_draws: int = 1
    """Independent draws of the codes."""
    seed: int = 0
    """Random seed of codes and sequences."""
    output: OptionalPath = None
    """File for the weights of the (last) circuit."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Draw, measure, compare, keep."""
        from recallscope.predictions import circuit_predictions

        task, circuit = parse_task({"kind": self.task} | self.given("task")), CIRCUITS.find(self.circuit)
        sizes = self._sizes(task, circuit)
        if self.num_draws < 1 or self.num_sequences < self.num_draws:
            raise ValueError(
                f"num_draws={self.num_draws}, num_sequences={self.num_sequences}: every draw needs a sequence or more."
            )
        model, scores = self._measured(task, circuit, sizes)
        accuracy = sum(score.accuracy for score in scores) / self.num_draws
        if self.num_draws > 1:
            error = (sum((s.accuracy - accuracy) ** 2 for s in scores) / (self.num_draws - 1) / self.num_draws) ** 0.5
        else:
            error = scores[0].standard_error
        laws = circuit_predictions(task, circuit, sizes)
        if self.output:
            from recallscope.train.weights import write_weights

            write_weights(self.output, model, task)
        if self.json:
            specs = {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json")}
            measured = {"accuracy": accuracy, "standard_error": error, "num_draws": self.num_draws, "laws": laws}
            weights = {"weights": str(self.output) if self.output else None}
            print_json({"circuit": self.circuit} | specs | measured | weights)
        else:
            self._print(accuracy, error, laws)
        return 0

    def _sizes(self, task: TaskSpec, circuit: Circuit) -> CircuitSizes:
        V, D, N = task.vocab_size, self.embed_dim, self.state_dim
        if circuit.fixed_size:
            if D not in (None, V) or N not in (None, V):
                raise ValueError(
                    f"the {self.circuit} circuit has D = N = V = {V} (Thm 3.1). Leave --embed-dim and --state-dim out."
                )
            if V > 4096:
                raise ValueError(
                    f"vocab_size={V}: the {self.circuit} circuit holds 10 V² weights. Use vocab_size <= 4096."
                )
            D = N = V
        if D is None or N is None:
            raise ValueError(f"the {self.circuit} circuit needs --embed-dim and --state-dim.")
        sizes = {"embed_dim": D, "state_dim": N, "num_layers": self.num_layers, "num_heads": self.num_heads}
        for name, value in sizes.items():
            if not 1 <= value <= 100_000:
                raise ValueError(f"{name}={value} is outside 1..100000.")
        if D * V > 10**9:
            raise ValueError(f"embed_dim={D} x vocab_size={V} weights do not fit; at most 10^9.")
        kv_share = 1 / 2 if task.num_queries == 1 else 5 / 12
        return CircuitSizes(vocab_size=V, kv_share=kv_share, write_rate=self.write_rate, **sizes)

    def _measured(self, task: TaskSpec, circuit: Circuit, sizes: CircuitSizes) -> tuple[RecallModel, list[Score]]:
        """The last draw of the circuit, and the scores of all."""
        import torch

        from recallscope.cli.training import use_threads
        from recallscope.train.evaluate import evaluate

        use_threads(1)
        generator = torch.Generator().manual_seed(self.seed)
        scores = []
        for _ in range(self.num_draws):
            model = circuit.build(sizes, generator)
            scores.append(evaluate(model, task, self.num_sequences // self.num_draws, generator))
        return model, scores

    def _print(self, accuracy: float, error: float, laws: dict[str, float]) -> None:
        lines = [f"measured  {accuracy:.4f} ± {error:.4f}  ({self.num_draws} draw(s) of the codes)"]
        lines += [f"predicted {p:.4f}  by {name}" for name, p in laws.items()]
        show([*lines, *([f"weights in {self.output}"] if self.output else [])], bold=1)


def command_for(arguments: Sequence[str]) -> type:
    """The command with the fields of the task that is asked for."""
    return with_spec_flags(Design, {"task": TASKS.find(typed_value(arguments, "--task") or "mqar")})
