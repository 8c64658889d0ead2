"""`recallscope inspect`: look inside a model; every mechanism picture of the paper, every score, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalPath, Quiet, RunFlags, StateFlags, Unset, with_run_flags
from recallscope.cli.output import print_json
from recallscope.train.saved import is_pretrained, load_model, what_is_measured

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.specs import TaskSpec


@dataclass(kw_only=True)
class Inspect(StateFlags, RunFlags):
    """Look inside a model: is its state a hash table?

    recallscope inspect WEIGHTS --out DIR

    Shows operators, hash tables, attention, copy and shift, and state patching, with a verdict. A model that does not
    offer all of this, such as your own module, is shown as far as it goes, with the reasons for what is left out.
    WEIGHTS comes from `recallscope train --out` or `recallscope design --output`. Without it, a model is trained first:

    recallscope inspect --preset mechanism --embed-dim 32 --state-dim 16 --vocab-size 64 --num-facts 4 --eval-size 200

    --out saves scores.json and every picture as PNG and SVG, and after training also weights and record. The run's
    flags, --preset and below, describe the model to train; --seed also seeds the sequences.
    """

    weights: Annotated[Path | None, tyro.conf.Positional, Unset] = None
    """A .safetensors file, the folder of train --out, or a Hugging Face folder of a Mamba or Mamba-2 (give its task by
    --num-facts, --vocab-size and the other task flags)."""
    trust_code: bool = False
    """Import the code that WEIGHTS names; without this flag no file makes recallscope run code."""
    out: OptionalPath = None
    """Folder for scores.json and pictures."""
    num_sequences: int = 2000
    """Sequences for the accuracy; the other scores use a tenth of them."""
    quiet: Quiet = False
    """Show no progress while training."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Load or train, look, draw, report."""
        if not 20 <= self.num_sequences <= 10**6:
            raise ValueError(f"num_sequences={self.num_sequences} is outside 20..10^6.")
        model, task = self._model()
        seed = self.seed or 0
        import torch

        from recallscope.interp.inspection import inspect_model
        from recallscope.interp.verdict import describe
        from recallscope.train.evaluate import evaluate

        generator = torch.Generator().manual_seed(seed)
        precision, stored = self.precision(), None
        if precision is not None:
            from recallscope.measuring.stored_states import measure_stored

            (stored,) = measure_stored(model, task, [precision], self.num_sequences, seed)
        accuracy = evaluate(model, task, self.num_sequences, generator)
        found = inspect_model(model, task, generator, num_sequences=self.num_sequences // 10)
        scores: dict[str, Any] = {"accuracy": accuracy.accuracy, "standard_error": accuracy.standard_error}
        scores |= found.to_dict()
        scores |= {} if stored is None else {"stored_state": asdict(stored)}
        scores |= {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json"), "pictures": []}
        if self.out:
            from recallscope.cli.pictures import draw_pictures

            scores["pictures"] = [path.name for path in draw_pictures(model, task, found, self.out, seed)]
            text = json.dumps(scores, indent=1, allow_nan=False)
            (self.out / "scores.json").write_text(text + "\n", encoding="utf-8")
        if self.json:
            print_json(scores)
        else:
            print("\n".join(describe(accuracy, found, task)))
            print("\n".join([] if stored is None else stored.sentences[:1]), end="" if stored is None else "\n")
            if self.weights and is_pretrained(self.weights):
                print(what_is_measured(model, task))
            if self.out:
                print(f"{len(scores['pictures'])} pictures and scores.json in {self.out}")
        return 0

    def _model(self) -> tuple[RecallModel, TaskSpec]:
        if self.weights is not None:
            pretrained = is_pretrained(self.weights)
            of_task = ("task", *(flag for flag, (part, _) in self.SPEC_FLAGS.items() if part == "task"))
            names = ("config", "preset", "model", "model_args", "task", *self.SPEC_FLAGS)
            names = tuple(name for name in names if not (pretrained and name in of_task))
            flags = ", ".join("--" + name.replace("_", "-") for name in names if getattr(self, name) is not None)
            if flags:
                raise ValueError(
                    f"{flags}: for a model to be trained, and {self.weights} is trained already. "
                    f"Give either WEIGHTS or --preset."
                )
            return load_model(self.weights, self.given("task"), self.task, trust_code=self.trust_code)
        if self.preset is None and self.model is None and self.config is None:
            raise ValueError("nothing to inspect: give WEIGHTS, or --preset mechanism to train a model first.")
        run = self.run_spec()
        import torch

        from recallscope.cli.run_folder import checkpoint_in, finished_run, keep, warn_of
        from recallscope.cli.training import train_resumable

        if self.out and finished_run(self.out, run):
            return load_model(self.out, {}, trust_code=run.model.kind)
        checkpoint = checkpoint_in(self.out) if self.out else None
        trained = train_resumable(run, device=torch.device("cpu"), checkpoint=checkpoint, quiet=self.quiet)
        if self.out:
            keep(trained, self.out)
        warn_of(trained.record)
        return trained.model, run.task


def command_for(arguments: Sequence[str]) -> type:
    """The command with flags for the task and the model that are to be trained, if any."""
    return with_run_flags(Inspect, arguments)
