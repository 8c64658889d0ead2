"""`recallscope design`: write a circuit down as weights, and measure it beside the laws' predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from recallscope.cli.flags import OptionalInt, OptionalPath, make_task, print_json
from recallscope.specs import TaskSpec
from recallscope.tasks.associative_recall import Filler

if TYPE_CHECKING:
    import torch

    from recallscope.architectures.model import RecallModel

Circuit = Literal["ideal", "compressive", "selective-soft", "selective-hard", "depth", "MVA", "MQA", "MKA", "MHA"]


@dataclass(kw_only=True)
class Design:
    """recallscope design --circuit compressive --vocab-size 512 --num-facts 16 --embed-dim 64 --state-dim 32

    Write a recall circuit down as weights and measure its accuracy, beside what the laws predict for it. One draw of
    the
    codes is one sample: --draws averages over several.
    """

    circuit: Circuit = "compressive"
    """ideal: D = N = V (Thm 3.1); compressive: random codes (Thm 3.2, App. E.1); selective: keys and values apart
    (Rem F.3);
    depth: over layers (Thm G.1); MVA .. MHA: heads (Lem H.2-H.5)."""
    vocab_size: int
    """V, even: half keys, half values."""
    num_facts: int
    """N_f."""
    embed_dim: OptionalInt = None
    """D (V for the ideal circuit)."""
    state_dim: OptionalInt = None
    """N (V for the ideal circuit)."""
    num_layers: int = 2
    """Lambda (depth)."""
    num_heads: int = 2
    """M (MVA .. MHA)."""
    task: Literal["ar", "mqar"] = "mqar"
    """ar or mqar."""
    length: OptionalInt = None
    """L."""
    filler: Filler = "random"
    """random, zero or values."""
    num_examples: int = 2000
    """Sequences to measure on, over all draws."""
    draws: int = 1
    """Independent draws of the codes."""
    seed: int = 0
    """Owner of codes and sequences."""
    out: OptionalPath = None
    """Write the (last) circuit's weights here."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Draw, measure, compare, keep."""
        task = make_task(
            kind=self.task,
            vocab_size=self.vocab_size,
            num_facts=self.num_facts,
            length=self.length,
            filler=self.filler,
        )
        D, N = self._dims()
        if self.draws < 1 or self.num_examples < self.draws:
            raise ValueError(
                f"draws={self.draws} of num_examples={self.num_examples}: every draw needs at least one sequence."
            )
        import torch

        from recallscope.cli.training import use_threads
        from recallscope.train.evaluate import evaluate

        use_threads(1)
        generator = torch.Generator().manual_seed(self.seed)
        scores = []
        for _ in range(self.draws):
            model = self._model(D, N, generator)
            scores.append(evaluate(model, task, self.num_examples // self.draws, generator))
        accuracy = sum(score.accuracy for score in scores) / self.draws
        if self.draws > 1:
            error = (sum((s.accuracy - accuracy) ** 2 for s in scores) / (self.draws - 1) / self.draws) ** 0.5
        else:
            error = scores[0].standard_error
        laws = self._laws(task, D, N)
        if self.out:
            from recallscope.train.weights import write_weights

            write_weights(self.out, model, task)
        if self.json:
            print_json(
                {
                    "circuit": self.circuit,
                    "model": model.spec.model_dump(mode="json"),
                    "task": task.model_dump(mode="json"),
                    "accuracy": accuracy,
                    "standard_error": error,
                    "draws": self.draws,
                    "laws": laws,
                    "weights": str(self.out) if self.out else None,
                }
            )
            return 0
        self._print(accuracy, error, laws)
        return 0

    def _dims(self) -> tuple[int, int]:
        if self.circuit == "ideal":
            if self.embed_dim not in (None, self.vocab_size) or self.state_dim not in (None, self.vocab_size):
                raise ValueError(
                    f"the ideal circuit has D = N = V = {self.vocab_size} (Thm 3.1). "
                    f"Leave --embed-dim and --state-dim out."
                )
            if self.vocab_size > 4096:
                raise ValueError(
                    f"vocab_size={self.vocab_size}: the ideal circuit holds 10 V² weights. Use vocab_size <= 4096."
                )
            return self.vocab_size, self.vocab_size
        if self.embed_dim is None or self.state_dim is None:
            raise ValueError(f"the {self.circuit} circuit needs --embed-dim and --state-dim.")
        for name, value in (
            ("embed_dim", self.embed_dim),
            ("state_dim", self.state_dim),
            ("num_layers", self.num_layers),
            ("num_heads", self.num_heads),
        ):
            if not 1 <= value <= 100_000:
                raise ValueError(f"{name}={value} is outside 1..100000.")
        if self.embed_dim * self.vocab_size > 10**9:
            raise ValueError(
                f"embed_dim={self.embed_dim} x vocab_size={self.vocab_size} weights do not fit; at most 10^9."
            )
        return self.embed_dim, self.state_dim

    def _model(self, D: int, N: int, generator: torch.Generator) -> RecallModel:
        from recallscope import circuits

        V = self.vocab_size
        if self.circuit == "ideal":
            return circuits.ideal_circuit(V)
        if self.circuit == "compressive":
            return circuits.designed_circuit(V, D, N, generator)
        if self.circuit == "depth":
            return circuits.designed_depth(V, D, N, self.num_layers, generator)
        if self.circuit == "selective-soft" or self.circuit == "selective-hard":
            split: Any = self.circuit.removeprefix("selective-")
            return circuits.selective_circuit(
                V, D, N, generator, split=split, kv_share=1 / 2 if self.task == "ar" else 5 / 12
            )
        E = circuits.sphere_code(D, V, generator)
        count = self.num_heads if self.circuit == "MHA" else 1
        hashes = [circuits.hash_matrix(N, D, generator) for _ in range(count)]
        return circuits.head_circuit(self.circuit, E, hashes * (self.num_heads // count), expand=1)

    def _laws(self, task: TaskSpec, D: int, N: int) -> dict[str, float]:
        from recallscope.cli.predict import law_or_nan
        from recallscope.theory.catalogue import find_law

        if self.circuit == "ideal" or task.filler != "random":
            return {}
        names = {"selective-soft": ["trained-t3"], "selective-hard": ["trained-t4"]}.get(self.circuit)
        words: dict[str, Any] = {
            "vocab_size": self.vocab_size,
            "num_facts": self.num_facts,
            "task": self.task,
        }
        words["length"] = task.length if self.task == "mqar" else None
        dims = {"MQA": (D // self.num_heads, N), "MKA": (D // self.num_heads, N)}.get(self.circuit, (D, N))
        if self.circuit in ("depth", "MHA"):
            return {}
        names = names or [
            "designed-improved",
            "designed-exact",
            "designed-unified-mv",
            "designed-unified",
            "designed",
        ]
        found = {
            name: float(law_or_nan(find_law(name), embed_dim=dims[0], state_dim=dims[1], **words)[0]) for name in names
        }
        return {name: p for name, p in found.items() if p == p}

    def _print(self, accuracy: float, error: float, laws: dict[str, float]) -> None:
        from rich.console import Console

        console = Console()
        console.print(
            f"[bold]measured  {accuracy:.4f}[/bold] ± {error:.4f}  ({self.draws} draw(s) of the codes)",
            highlight=False,
        )
        for name, p in laws.items():
            console.print(f"predicted {p:.4f}  by {name}", highlight=False)
        if self.out:
            console.print(f"weights in {self.out}", highlight=False)
