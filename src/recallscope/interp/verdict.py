"""An inspection in sentences: what was found, and whether the model is the recall circuit.

The thresholds of every verdict are here, and each sentence that uses one states it.
"""

from __future__ import annotations

from recallscope.health import best_guess, noise
from recallscope.interp.banks import BankScores
from recallscope.interp.decoders import ShiftScores
from recallscope.interp.inspection import Inspection, OperatorScores
from recallscope.interp.interventions import OverwriteScores
from recallscope.interp.rates import RateScores
from recallscope.interp.stored_states import HeadBits
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Score

NEAR = 0.95  # block masses and closeness from here on are called the circuit's
WORKS = 0.9  # recall and overwriting from here on are called working
MOST_HEADS = 4  # whose bits are listed
ROUTES = 2.0  # standard deviations from unrelated places from which a key is said to answer


def describe(score: Score, found: Inspection, task: TaskSpec) -> list[str]:
    """One line per finding; with operators, the conclusion last; without, what is left out and why."""
    guess = best_guess(task.model_dump())
    by_luck = guess is not None and score.accuracy <= guess.accuracy + noise(guess.accuracy, score.queries)
    chance = f", not above the {guess.accuracy:.4f} of guessing {guess.how}" if guess and by_luck else ""
    lines = [f"recall {score.accuracy:.4f} ± {score.standard_error:.4f}{chance}", *_of_behaviour(found)]
    bits = _of_bits(found.state_bits or [])
    if found.operators is None:
        return [*lines, *bits, *_without_operators(found)]
    with_operators = _with_operators(found, found.operators)
    return [*lines, *bits, *with_operators, *_conclusion(score, found.operators, found.overwrite)]


def _of_bits(heads: list[HeadBits]) -> list[str]:
    """What the law of rounded states asks for: of every head, or of the one that needs most where there are many."""
    if not heads:
        return []
    shown = heads if len(heads) <= MOST_HEADS else [max(heads, key=lambda head: (head.bits, head.roundings))]
    which = "" if shown is heads else f", the head of {len(heads)} that needs most"
    return [f"bits of the state, for a loss of 1 % at recall .9, an absmax scale per row{which}:",
            *(f"  {head.sentence()}" for head in shown)]  # fmt: skip


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
            f"state patching: overwriting one fact gives its new answer in {overwrite.success:.1%} of "
            f"{overwrite.trials} trials; of the others {overwrite.others_changed:.2%} change, "
            f"{overwrite.others_changed_control:.2%} if the sequence is rewritten instead"
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
            f"state patching: exchanging v' k'ᵀ{part} for one fact gives its new answer in {overwrite.success:.1%} of "
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
    """Masks, noise, ablations, and the mechanism they add up to."""
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
        + ", ".join(f"{name.replace('_', ' ')} {recall:.3f}" for name, recall in banks.ablations.items()),
        f"mechanism: {banks.mechanism}",
    ]


def _of_shift(shift: ShiftScores) -> str:
    """Where keys answer, by the scores: one place later, in place, both or neither; the sign of queries is free."""
    places = {"one place later": shift.shifted, "in place": shift.unshifted}
    texts = {True: list[str](), False: list[str]()}
    for place, score in places.items():
        texts[abs(score) >= ROUTES].append(f"{place} ({score:+.1f} sd)")
    yes, no = " and ".join(texts[True]), " nor ".join(texts[False])
    answer = f"{yes}, not {no}" if yes and no else yes or f"neither {no}"
    return f"shift: keys answer {answer}; {ROUTES:g} sd away from unrelated places are called an answer"
