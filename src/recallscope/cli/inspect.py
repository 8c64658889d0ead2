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

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.interp.inspection import Inspection, OperatorScores
    from recallscope.interp.surgery import OverwriteScores
    from recallscope.specs import TaskSpec
    from recallscope.tasks import Score

NEAR = 0.95  # block masses and closeness from here on are called the circuit's
WORKS = 0.9  # recall and overwriting from here on are called working


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
            print("\n".join(verdict(accuracy, found)))
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


def verdict(score: Score, found: Inspection) -> list[str]:
    """One line per finding; with operators, the conclusion last; without, what is left out and why."""
    lines = [f"recall {score.accuracy:.4f} ± {score.standard_error:.4f}", *_of_behaviour(found)]
    if found.operators is None:
        return [*lines, *_without_operators(found)]
    return [*lines, *_with_operators(found, found.operators), *_conclusion(score, found.operators, found.overwrite)]


def _of_behaviour(found: Inspection) -> list[str]:
    seen = found.behaviour
    places = " ".join(f"{recall:.3f}" for recall in seen.recall_by_place)
    lines = [f"by place of the fact, oldest first: {places}; mean margin {seen.margin:.2f}"]
    if seen.accuracy < 1:
        kinds = {
            "another fact's value": seen.wrong_other_value,
            "an earlier value of the key": seen.wrong_old_value,
            "something else": seen.wrong_else,
        }
        lines.append("wrong answers: " + ", ".join(f"{share:.1%} {kind}" for kind, share in kinds.items() if share))
    return lines


def _with_operators(found: Inspection, ops: OperatorScores) -> list[str]:
    lines = [
        f"operators: {ops.g_vv_block_mass:.2%} of G_vv and {ops.g_kq_block_mass:.2%} of G_kq lie in the predicted "
        f"blocks; closeness to the circuit {ops.closeness:.4f}"
    ]
    if circuit := found.nearest_circuit:
        lines.append(
            f"the nearest circuit, two matrices E and F, answers {circuit.agreement:.2%} of the queries as the model "
            f"does (accuracy {circuit.accuracy:.4f})"
        )
    if table := found.table:
        lines.append(
            f"hash table: {table.hit_rate:.2%} of facts decoded from the state, AUC {table.auc:.5f}; noise "
            f"{table.noise:.3f} of a fact, expected {table.predicted_noise:.3f}"
        )
    if overwrite := found.overwrite:
        lines.append(
            f"surgery: overwriting one fact changes its answer in {overwrite.success:.1%} of {overwrite.trials} "
            f"trials; of the others {overwrite.others_changed:.2%} change, {overwrite.others_changed_control:.2%} if "
            f"the sequence is rewritten instead"
        )
    if (key := found.key_variance) and (value := found.value_variance):
        lines.append(
            f"codes: key variance {key.measured:.4f} (random {key.random:.4f}, tight frame {key.welch:.4f}), "
            f"value variance {value.measured:.4f} (random {value.random:.4f}, tight {value.welch:.4f}, "
            f"tight and shared {value.sharing:.4f})"
        )
    return lines


def _conclusion(score: Score, ops: OperatorScores, overwrite: OverwriteScores | None) -> list[str]:
    if overwrite is None:
        return []
    if min(ops.g_vv_block_mass, ops.g_kq_block_mass, ops.closeness) < NEAR:
        return ["verdict: not the recall circuit, or not yet."]
    if min(score.accuracy, overwrite.success) < WORKS:
        return ["verdict: the structure is the circuit's, but it is too small or too noisy to recall well."]
    return ["verdict: this is the recall circuit; its state is a hash table."]


def _without_operators(found: Inspection) -> list[str]:
    """What a model shows that has no operators, and what of the report it has not."""
    lines = []
    if found.attribution_hit_rate is not None:
        lines.append(
            f"attention: the place of the right value adds most to the answer in {found.attribution_hit_rate:.1%} of "
            f"the queries"
        )
    if probe := found.probe:
        lines.append(
            f"state: a linear probe reads {probe.accuracy:.1%} of the facts ({probe.control:.1%} with keys shuffled)"
        )
    if shift := found.shift_test:
        lines.append(
            f"shift: keys answer one place later ({shift.shifted:+.1f} standard deviations), not in place "
            f"({shift.unshifted:+.1f})"
        )
    if overwrite := found.overwrite:
        energy = overwrite.factored_energy
        though = "" if energy is None else f", though it is only {energy:.0%} of what the model writes"
        lines.append(
            f"surgery: exchanging v' k'ᵀ for one fact changes its answer in {overwrite.success:.1%} of "
            f"{overwrite.trials} trials{though}; {overwrite.others_changed:.2%} of the others change"
        )
    reasons: dict[str, list[str]] = {}
    for item in found.left_out:
        reasons.setdefault(item.why, []).append(item.section)
    left = [f"left out: {', '.join(sections)}. {why}" for why, sections in reasons.items()]
    return [*lines, *left]
