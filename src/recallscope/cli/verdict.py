"""What `recallscope inspect` found, in a few plain sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recallscope.interp.inspection import Inspection
    from recallscope.tasks import Score

NEAR = 0.95  # block masses and closeness from here on are called the circuit's
WORKS = 0.9  # recall and overwriting from here on are called working


def verdict(score: Score, found: Inspection, name: str = "this model") -> list[str]:
    """One line per finding; with operators, the conclusion last; without, what is left out and why."""
    lines = [f"recall {score.accuracy:.4f} ± {score.standard_error:.4f}", *_of_behaviour(found)]
    if found.operators is not None:
        return [*lines, *_of_operators(found), *_of_state(found), *_of_codes(found), *_conclusion(score, found)]
    return [*lines, *_without_operators(found, name)]


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


def _of_operators(found: Inspection) -> list[str]:
    ops, circuit = found.operators, found.nearest_circuit
    lines = []
    if ops:
        lines.append(
            f"operators: {ops.g_vv_block_mass:.2%} of G_vv and {ops.g_kq_block_mass:.2%} of G_kq lie in the predicted "
            f"blocks; closeness to the circuit {ops.closeness:.4f}"
        )
    if circuit:
        lines.append(
            f"the nearest circuit, two matrices E and F, answers {circuit.agreement:.2%} of the queries as the model "
            f"does (accuracy {circuit.accuracy:.4f})"
        )
    return lines


def _of_state(found: Inspection) -> list[str]:
    table, overwrite = found.table, found.overwrite
    lines = []
    if table:
        lines.append(
            f"hash table: {table.hit_rate:.2%} of facts decoded from the state, AUC {table.auc:.5f}; noise "
            f"{table.noise:.3f} of a fact, expected {table.predicted_noise:.3f}"
        )
    if overwrite:
        lines.append(
            f"surgery: overwriting one fact changes its answer in {overwrite.success:.1%} of {overwrite.trials} "
            f"trials; of the others {overwrite.others_changed:.2%} change, {overwrite.others_changed_control:.2%} if "
            f"the sequence is rewritten instead"
        )
    return lines


def _of_codes(found: Inspection) -> list[str]:
    key, value = found.key_variance, found.value_variance
    if key is None or value is None:
        return []
    return [
        f"codes: key variance {key.measured:.4f} (random {key.random:.4f}, tight frame {key.welch:.4f}), "
        f"value variance {value.measured:.4f} (random {value.random:.4f}, tight {value.welch:.4f}, "
        f"tight and shared {value.sharing:.4f})"
    ]


def _conclusion(score: Score, found: Inspection) -> list[str]:
    ops, overwrite = found.operators, found.overwrite
    if ops is None or overwrite is None:
        return []
    if min(ops.g_vv_block_mass, ops.g_kq_block_mass, ops.closeness) < NEAR:
        return ["verdict: not the recall circuit, or not yet."]
    if min(score.accuracy, overwrite.success) < WORKS:
        return ["verdict: the structure is the circuit's, but it is too small or too noisy to recall well."]
    return ["verdict: this is the recall circuit; its state is a hash table."]


def _without_operators(found: Inspection, name: str) -> list[str]:
    """What a model shows that has no operators, and what of the report it has not."""
    lines = []
    if found.attribution_hit_rate is not None:
        lines.append(
            f"attention: the place of the right value adds most to the answer in {found.attribution_hit_rate:.1%} of "
            f"the queries"
        )
    if found.probe is not None:
        lines.append(
            f"state: a linear probe reads {found.probe.accuracy:.1%} of the facts ({found.probe.control:.1%} with keys "
            f"shuffled)"
        )
    if found.shift_test is not None:
        lines.append(
            f"shift: keys answer one place later ({found.shift_test.shifted:+.1f} standard deviations), not in place "
            f"({found.shift_test.unshifted:+.1f})"
        )
    if found.overwrite is not None:
        energy = found.overwrite.factored_energy
        though = "" if energy is None else f", though it is only {energy:.0%} of what the model writes"
        lines.append(
            f"surgery: exchanging v' k'ᵀ for one fact changes its answer in {found.overwrite.success:.1%} of "
            f"{found.overwrite.trials} trials{though}; {found.overwrite.others_changed:.2%} of the others change"
        )
    why_no_operators = next((item.why for item in found.left_out if item.section == "operators"), "")
    reasons: dict[str, list[str]] = {}
    for item in found.left_out:
        reasons.setdefault(item.why, []).append(item.section)
    left = [f"left out, {', '.join(sections)}: {why}" for why, sections in reasons.items()]
    return [f"{name}: {why_no_operators}" + (" What carries over:" if lines else ""), *lines, *left]
