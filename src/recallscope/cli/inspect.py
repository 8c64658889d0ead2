"""`recallscope inspect`: look inside a model; every mechanism picture of the paper, every score, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.evaluate import weights_file
from recallscope.cli.flags import print_json
from recallscope.cli.run_flags import RunFlags, with_run_flags
from recallscope.cli.verdict import verdict

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.specs import TaskSpec


@dataclass(kw_only=True)
class Inspect(RunFlags):
    """recallscope inspect WEIGHTS --out DIR

    Show that the state of a model is a hash table: operators, tables, attention, copy and shift, surgery on the state.
    A model that cannot show all of that, a module of your own for one, gets what it can, and why the rest is left out.
    WEIGHTS is what `recallscope train --out` or `recallscope design --out` wrote. Without it, train first:

    recallscope inspect --preset mechanism --embed-dim 32 --state-dim 16 --vocab-size 64 --num-facts 4 --eval-size 200

    With --out: scores.json, and every picture as PNG and SVG; after training also weights and record. The flags of a
    run, --preset and below, are for a model to be trained first; --seed is also that of the sequences.
    """

    weights: Annotated[Path | None, tyro.conf.Positional] = None
    """A .safetensors file, or the folder that train --out wrote."""
    out: Path | None = None
    """Folder for scores.json and pictures."""
    num_examples: int = 2000
    """Sequences to measure accuracy on; the other scores take a tenth of them."""
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
        if self.weights is not None:
            names = ("preset", "model", "model_args", "task", *self.SPEC_FLAGS)
            flags = ", ".join("--" + name.replace("_", "-") for name in names if getattr(self, name) is not None)
            if flags:
                raise ValueError(
                    f"{flags}: for a model to be trained, and {self.weights} is trained already. "
                    f"Give either WEIGHTS or --preset."
                )
            from recallscope.train.weights import read_weights

            return read_weights(weights_file(self.weights))
        if self.preset is None and self.model is None:
            raise ValueError("nothing to inspect: give WEIGHTS, or --preset mechanism to train a model first.")
        run = self.run_spec()
        import torch

        from recallscope.cli.training import keep, train_with_bar

        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
        checkpoint = self.out / "checkpoint.safetensors" if self.out else None
        trained = train_with_bar(run, device=torch.device("cpu"), checkpoint=checkpoint)
        if self.out:
            keep(trained, self.out)
        return trained.model, run.task


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with flags for the task and the model that are to be trained, if any."""
    return with_run_flags(Inspect, arguments)
