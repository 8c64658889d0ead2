"""`recallscope inspect`: look inside a model; every mechanism picture of the paper, every score, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalPath, Quiet, Unset, print_json
from recallscope.cli.run_flags import RunFlags, with_run_flags
from recallscope.cli.weights import is_pretrained, load_model, what_is_measured
from recallscope.health import best_guess, noise

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.interp.banks import BankScores
    from recallscope.interp.inspection import Inspection, OperatorScores
    from recallscope.interp.probes import ShiftScores
    from recallscope.interp.rates import RateScores
    from recallscope.interp.surgery import OverwriteScores
    from recallscope.specs import TaskSpec
    from recallscope.tasks import Score

NEAR = 0.95  # block masses and closeness from here on are called the circuit's
WORKS = 0.9  # recall and overwriting from here on are called working
ANSWERS = 2.0  # standard deviations from unrelated places from which a key is said to answer


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

    weights: Annotated[Path | None, tyro.conf.Positional, Unset] = None
    """A .safetensors file, the folder that train --out wrote, or a Hugging Face folder of a Mamba or Mamba-2 (its
    task is given by --num-facts, --vocab-size and the other flags of the task)."""
    out: OptionalPath = None
    """Folder for scores.json and pictures."""
    num_examples: int = 2000
    """Sequences to measure accuracy on; the other scores take a tenth of them."""
    quiet: Quiet = False
    """Show no progress while training."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Load or train, look, draw, report."""
        if not 20 <= self.num_examples <= 10**6:
            raise ValueError(f"num_examples={self.num_examples} is outside 20..10^6.")
        model, task = self._model()
        seed = self.seed or 0
        import torch

        from recallscope.interp.inspection import inspect_model
        from recallscope.train.evaluate import evaluate

        generator = torch.Generator().manual_seed(seed)
        accuracy = evaluate(model, task, self.num_examples, generator)
        found = inspect_model(model, task, generator, num_sequences=self.num_examples // 10)
        scores: dict[str, Any] = {"accuracy": accuracy.accuracy, "standard_error": accuracy.standard_error}
        scores |= found.to_dict()
        scores |= {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json"), "pictures": []}
        if self.out:
            from recallscope.cli.pictures import draw_pictures

            scores["pictures"] = [path.name for path in draw_pictures(model, task, found, self.out, seed)]
            text = json.dumps(scores, indent=1, allow_nan=False)
            (self.out / "scores.json").write_text(text + "\n", encoding="utf-8")
        if self.json:
            print_json(scores)
        else:
            print("\n".join(verdict(accuracy, found, task)))
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
            return load_model(self.weights, self.given("task"), self.task)
        if self.preset is None and self.model is None and self.config is None:
            raise ValueError("nothing to inspect: give WEIGHTS, or --preset mechanism to train a model first.")
        run = self.run_spec()
        import torch

        from recallscope.cli.run_folder import checkpoint_in, finished_run, keep, warn_of
        from recallscope.cli.training import train_resumable

        if self.out and finished_run(self.out, run):
            return load_model(self.out, {}, None)
        checkpoint = checkpoint_in(self.out) if self.out else None
        trained = train_resumable(run, device=torch.device("cpu"), checkpoint=checkpoint, quiet=self.quiet)
        if self.out:
            keep(trained, self.out)
        warn_of(trained.record)
        return trained.model, run.task


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with flags for the task and the model that are to be trained, if any."""
    return with_run_flags(Inspect, arguments)


def verdict(score: Score, found: Inspection, task: TaskSpec) -> list[str]:
    """One line per finding; with operators, the conclusion last; without, what is left out and why."""
    guess = best_guess(task.model_dump())
    by_luck = guess is not None and score.accuracy <= guess.accuracy + noise(guess.accuracy, score.queries)
    chance = f", not above the {guess.accuracy:.4f} of guessing {guess.how}" if guess and by_luck else ""
    lines = [f"recall {score.accuracy:.4f} ± {score.standard_error:.4f}{chance}", *_of_behaviour(found)]
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
            f"surgery: overwriting one fact gives its new answer in {overwrite.success:.1%} of {overwrite.trials} "
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
    structure = {
        "share of G_vv in its block": ops.g_vv_block_mass,
        "share of G_kq in its block": ops.g_kq_block_mass,
        "closeness to the circuit": ops.closeness,
    }
    if missed := _missed(structure, NEAR):
        return [f"verdict: not the recall circuit, or not yet: {missed}."]
    if missed := _missed({"recall": score.accuracy, "overwriting": overwrite.success}, WORKS):
        return [f"verdict: the structure is the circuit's, but it is too small or too noisy to recall well: {missed}."]
    return ["verdict: this is the recall circuit; its state is a hash table."]


def _missed(scores: dict[str, float], least: float) -> str:
    """The scores that miss what is needed, and by how much; one that could not be measured misses it."""
    failed = {name: score for name, score in scores.items() if not score >= least}
    return ", ".join(
        f"{name} {score:.3f} ({least - score:.3f} short of {least:g})" if score == score else f"{name} is not a number"
        for name, score in failed.items()
    )


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
        lines.append(_of_shift(shift))
    if found.rates:
        lines.extend(_of_rates(found.rates))
    if found.banks:
        lines.extend(_of_banks(found.banks))
    if overwrite := found.overwrite:
        energy = overwrite.factored_energy
        part = "" if energy is None else f", {energy:.0%} of what the model writes,"
        lines.append(
            f"surgery: exchanging v' k'ᵀ{part} for one fact gives its new answer in {overwrite.success:.1%} of "
            f"{overwrite.trials} trials; {overwrite.others_changed:.2%} of the others change"
        )
    reasons: dict[str, list[str]] = {}
    for item in found.left_out:
        reasons.setdefault(item.why, []).append(item.section)
    left = [f"left out: {', '.join(sections)}. {why}" for why, sections in reasons.items()]
    return [*lines, *left]


def _of_rates(rates: RateScores) -> list[str]:
    """A row for every kind of pair that there is, and the best rate if theory has one."""
    rows = [
        f"  ({name}){'':{14 - len(name)}}{pair.written:9.4f}{pair.erased:9.4f}{pair.kept:9.4f}"
        for name, pair in rates.pairs.items()
        if pair.written == pair.written
    ]
    best = [] if rates.best_rate is None else [f"  erased at facts, best by theory: {rates.best_rate:.3f}"]
    return [f"by kind of pair:   {'written':>9}{'erased':>9}{'kept':>9}", *rows, *best]


def _of_banks(banks: BankScores) -> list[str]:
    """Masks, noise, surgery, and the mechanism they add up to."""
    read, noise = banks.read, banks.noise
    pairs = ", ".join(
        f"({name}) {power * noise.dimensions:.2%}" for name, power in list(noise.pairs.items())[1:] if power == power
    )
    return [
        f"masks: one direction has {read.share:.1%} of the gate's variance over keys; it is {read.two_valued:.0%} "
        f"two-valued (4th moment {read.fourth_moment:.2f}), {read.in_one_bank:.0%} of the keys on one side, and "
        f"correlates {banks.correlation:.3f} with that of the writes",
        f"noise: another fact adds 1/{noise.dimensions:.0f} of a fact's power (N D = {noise.shared_dimensions:g}, two "
        f"banks N (2D - N) = {noise.bank_dimensions:g}); of that, other pairs: {pairs}",
        "recall with masks changed: "
        + ", ".join(f"{name.replace('_', ' ')} {recall:.3f}" for name, recall in banks.surgery.items()),
        f"mechanism: {banks.mechanism}",
    ]


def _of_shift(shift: ShiftScores) -> str:
    """Where keys answer, by the scores: one place later, in place, both or neither; the sign of queries is free."""
    places = {"one place later": shift.shifted, "in place": shift.unshifted}
    texts = {True: list[str](), False: list[str]()}
    for place, score in places.items():
        texts[abs(score) >= ANSWERS].append(f"{place} ({score:+.1f} sd)")
    yes, no = " and ".join(texts[True]), " nor ".join(texts[False])
    answer = f"{yes}, not {no}" if yes and no else yes or f"neither {no}"
    return f"shift: keys answer {answer}; {ANSWERS:g} sd away from unrelated places are called an answer"
