"""`recallscope inspect`: look inside a model; every mechanism picture of the paper, every score, and a verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import print_json
from recallscope.cli.verdict import verdict

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.specs import TaskSpec

TRAINING = (
    "embed_dim",
    "state_dim",
    "vocab_size",
    "num_facts",
    "conv_width",
    "num_layers",
    "batch_size",
    "flat_steps",
    "decay_steps",
    "eval_size",
)


@dataclass(kw_only=True)
class Inspect:
    """recallscope inspect WEIGHTS --out DIR

    Show that the state of a model is a hash table: operators, tables, attention, copy and shift, surgery on the state.
    A model that cannot show all of that, a module of your own for one, gets what it can, and why the rest is left out.
    WEIGHTS is what `recallscope train --out` or `recallscope design --out` wrote. Without it, train first:

    recallscope inspect --preset mechanism --embed-dim 32 --state-dim 16 --vocab-size 64 --num-facts 4 --eval-size 200

    With --out: scores.json, and every picture as PNG and SVG; after training also weights and record.
    """

    weights: Annotated[Path | None, tyro.conf.Positional] = None
    """A .safetensors file, or the folder that train --out wrote."""
    preset: str | None = None
    """Train this preset first, see recallscope train; mechanism is the paper's."""
    out: Path | None = None
    """Folder for scores.json and pictures."""
    embed_dim: int | None = None
    """D (with --preset)."""
    state_dim: int | None = None
    """N (with --preset)."""
    vocab_size: int | None = None
    """V (with --preset)."""
    num_facts: int | None = None
    """N_f (with --preset)."""
    conv_width: int | None = None
    """D_conv (with --preset)."""
    num_layers: int | None = None
    """Lambda (with --preset)."""
    batch_size: int | None = None
    """Sequences in one forward pass (with --preset)."""
    flat_steps: int | None = None
    """Steps at the learning rate (with --preset)."""
    decay_steps: int | None = None
    """Steps of cosine to 0 (with --preset)."""
    eval_size: int | None = None
    """Sequences in the validation set, and in the test set (with --preset)."""
    num_examples: int = 2000
    """Sequences to measure accuracy on; the other scores take a tenth of them."""
    seed: int = 0
    """Random seed of the sequences, and of the run if there is one."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Load or train, look, draw, report."""
        if not 20 <= self.num_examples <= 10**6:
            raise ValueError(f"num_examples={self.num_examples} is outside 20..10^6.")
        model, task = self._model()
        import torch

        from recallscope.interp.inspection import inspect_model
        from recallscope.train.evaluate import evaluate

        generator = torch.Generator().manual_seed(self.seed)
        accuracy = evaluate(model, task, self.num_examples, generator)
        found = inspect_model(model, task, generator, num_sequences=self.num_examples // 10)
        scores: dict[str, Any] = {"accuracy": accuracy.accuracy, "standard_error": accuracy.standard_error}
        scores |= found.to_dict()
        scores |= {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json"), "pictures": []}
        if self.out:
            from recallscope.cli.pictures import draw_pictures

            scores["pictures"] = [path.name for path in draw_pictures(model, task, found, self.out, self.seed)]
            text = json.dumps(scores, indent=1, allow_nan=False)
            (self.out / "scores.json").write_text(text + "\n", encoding="utf-8")
        if self.json:
            print_json(scores)
        else:
            print("\n".join(verdict(accuracy, found, model.spec.kind)))
            if self.out:
                print(f"{len(scores['pictures'])} pictures and scores.json in {self.out}")
        return 0

    def _model(self) -> tuple[RecallModel, TaskSpec]:
        changes = {name: getattr(self, name) for name in TRAINING if getattr(self, name) is not None}
        if self.weights is not None:
            given = ["preset"] * (self.preset is not None) + list(changes)
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in given)
                raise ValueError(
                    f"{flags}: for a model to be trained, and {self.weights} is trained already. "
                    f"Give either WEIGHTS or --preset."
                )
            from recallscope.train.weights import read_weights

            return read_weights(self.weights / "weights.safetensors" if self.weights.is_dir() else self.weights)
        if self.preset is None:
            raise ValueError("nothing to inspect: give WEIGHTS, or --preset mechanism to train a model first.")
        from recallscope.cli.train import Train

        run = Train(preset=self.preset, seed=self.seed, **changes).spec()
        import torch

        from recallscope.cli.training import keep, train_with_bar

        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
        checkpoint = self.out / "checkpoint.safetensors" if self.out else None
        trained = train_with_bar(run, device=torch.device("cpu"), checkpoint=checkpoint)
        if self.out:
            keep(trained, self.out)
        return trained.model, run.task
