"""The scores of `recallscope inspect` in a few plain sentences."""

from __future__ import annotations

from typing import Any

NEAR = 0.95  # block masses and closeness from here on are called the circuit's
WORKS = 0.9  # recall and overwriting from here on are called working


def verdict(scores: dict[str, Any]) -> list[str]:
    """One line per finding, the conclusion last."""
    recall = f"recall {scores['accuracy']:.4f} ± {scores['standard_error']:.4f}"
    if scores["g_vv_block_mass"] is None:
        return [recall, *_of_full(scores)]
    return [recall, *_of_operators(scores), *_of_state(scores), *_of_codes(scores), _conclusion(scores)]


def _of_operators(scores: dict[str, Any]) -> list[str]:
    circuit = scores["nearest_circuit"]
    return [
        f"operators: {scores['g_vv_block_mass']:.2%} of G_vv and {scores['g_kq_block_mass']:.2%} of G_kq lie in the "
        f"predicted blocks; closeness to the circuit {scores['closeness']:.4f}",
        f"the nearest circuit, two matrices E and F, answers {circuit['agreement']:.2%} of the queries as the model "
        f"does (accuracy {circuit['accuracy']:.4f})",
    ]


def _of_state(scores: dict[str, Any]) -> list[str]:
    table, overwrite = scores["table"], scores["overwrite"]
    return [
        f"hash table: {table['hit_rate']:.2%} of facts decoded from the state, AUC {table['auc']:.5f}; noise "
        f"{table['noise']:.3f} of a fact, expected {table['predicted_noise']:.3f}",
        f"surgery: overwriting one fact changes its answer in {overwrite['success']:.1%} of {overwrite['trials']} "
        f"trials; of the others {overwrite['others_changed']:.2%} change, {overwrite['others_changed_control']:.2%} if "
        f"the sequence is rewritten instead",
    ]


def _of_codes(scores: dict[str, Any]) -> list[str]:
    key, value = scores["key_variance"], scores["value_variance"]
    return [
        f"codes: key variance {key['measured']:.4f} (random {key['random']:.4f}, tight frame {key['welch']:.4f}), "
        f"value variance {value['measured']:.4f} (random {value['random']:.4f}, tight {value['welch']:.4f}, "
        f"tight and shared {value['sharing']:.4f})"
    ]


def _conclusion(scores: dict[str, Any]) -> str:
    if min(scores["g_vv_block_mass"], scores["g_kq_block_mass"], scores["closeness"]) < NEAR:
        return "verdict: not the recall circuit, or not yet."
    if min(scores["accuracy"], scores["overwrite_success"]) < WORKS:
        return "verdict: the structure is the circuit's, but it is too small or too noisy to recall well."
    return "verdict: this is the recall circuit; its state is a hash table."


def _of_full(scores: dict[str, Any]) -> list[str]:
    probe, shift, overwrite = scores["probe"], scores["shift_test"], scores["overwrite"]
    lines = [
        "full Mamba: gate, SiLU and decay depend on the input: no fixed G_vv and G_kq, no Alg. 2. What carries over:",
        f"attention: the place of the right value adds most to the answer in {scores['attribution_hit_rate']:.1%} of "
        f"the queries",
        f"state: a linear probe reads {probe['accuracy']:.1%} of the facts ({probe['control']:.1%} with keys shuffled)",
        f"shift: keys answer one place later ({shift['shifted']:+.1f} standard deviations), not in place "
        f"({shift['unshifted']:+.1f})",
    ]
    if overwrite:
        lines.append(
            f"surgery: exchanging v' k'ᵀ for one fact changes its answer in {overwrite['factored_write']:.1%} of "
            f"{overwrite['trials']} trials, though it is only {overwrite['factored_energy']:.0%} of what the model "
            f"writes; {overwrite['others_changed']:.2%} of the others change"
        )
    return lines
