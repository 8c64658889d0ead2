"""Kind a run whose accuracy should not be taken at face value: it diverged, stayed at chance, or was still improving.

The rules are here and nowhere else, and read plain data, so runs recorded before there were warnings get theirs on
reading. A run has one warning at most, the first that applies:

diverged         a loss was not a finite number (training stops at the step after which weights are not finite either)
still-improving  from the last evaluation before the last eighth of its steps to its end, the best validation accuracy
                 rose by more than .02 per eighth of the steps, and by more than chance moves it, and the run did not
                 reach its stop_accuracy
at-chance        the test accuracy is not above what guessing gives: any of the context's N_f values, or any value; or,
                 of the answers that are values of the context, no more are right than guessing among them gives
                 (binding below 0.05, or not above 0 by more than chance moves it; `has_begun`)

"More than chance" is 3.1 standard errors of a share over the test's queries: passed 1 time in 1000.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeGuard

from recallscope.specs import Value, flat_fields

Kind = Literal["diverged", "still-improving", "at-chance"]
RARE = 3.1  # standard errors that luck exceeds 1 time in 1000
LAST_PART = 1 / 8  # of the steps
LEAST_GAIN = 0.02  # in that part
BEGUN = 0.05  # binding from which a model has begun to tell the keys apart


class RunWarning(NamedTuple):
    """What kind it is, and the sentence that explains it; both empty for a run without fault."""

    kind: Kind | Literal[""] = ""
    sentence: str = ""


class Guess(NamedTuple):
    """What can be had without recall: the share of right answers, and how."""

    accuracy: float
    how: str


def examine(facts: Mapping[str, Any]) -> RunWarning:
    """The finding about a record as plain data; what the data lack cannot be found."""
    spec, history = facts.get("spec"), facts.get("history")
    fields = flat_fields(spec if isinstance(spec, Mapping) else {})
    seen = [entry for entry in history if _is_evaluation(entry)] if isinstance(history, list) else []
    return (
        _diverged(facts, fields, seen)
        or _still_improving(facts, fields, seen)
        or _at_chance(facts, fields)
        or RunWarning()
    )


def warning_of(facts: Mapping[str, Any]) -> str:
    """The warning that was recorded; of an earlier record, what its numbers say."""
    recorded = facts.get("flag")
    return recorded if isinstance(recorded, str) else examine(facts).kind


def best_guess(fields: Mapping[str, Value]) -> Guess | None:
    """The best guess at a task, from its fields; None if they do not tell."""
    facts, tokens = fields.get("num_facts"), fields.get("vocab_size")
    options = [(facts, f"any of the {facts} values of the context"), (tokens, f"any of the {tokens} tokens")]
    if isinstance(facts, int) and isinstance(tokens, int):  # half of the tokens are values
        options[1] = tokens // 2, f"any of the {tokens // 2} values"
    return max((Guess(1 / n, how) for n, how in options if isinstance(n, int) and n > 1), default=None)


def noise(accuracy: float, queries: float) -> float:
    """How far luck moves a measured accuracy, exceeded 1 time in 1000."""
    return RARE * math.sqrt(max(accuracy * (1 - accuracy), 0.0) / max(queries, 1))


def has_begun(facts: Mapping[str, Any]) -> bool | None:
    """Whether a run binds values to their keys at all; None if its record does not tell.

    Models learn first which values the context has, and name any of them: binding 0 (`records.binding`). Some never get
    further. Older records have no binding; an accuracy above 1/N_f gives a lower limit of it, as c is 1 at the most.
    """
    fields = flat_fields(spec) if isinstance(spec := facts.get("spec"), Mapping) else {}
    N_f, reached, queries = fields.get("num_facts"), facts.get("test_accuracy"), facts.get("test_queries")
    if not (isinstance(N_f, int) and N_f > 1 and is_number(reached) and is_number(queries)):
        return None
    bound, in_context = facts.get("binding"), facts.get("in_context")
    if is_number(bound) and is_number(in_context):
        return bound >= begun_from(N_f, in_context * queries)
    lowest = (reached - 1 / N_f) / (1 - 1 / N_f)
    return True if lowest >= begun_from(N_f, queries) else None


def left_chance(facts: Mapping[str, Any]) -> bool:
    """Whether a run answers better than guessing does, by its accuracy and, if it is known, by its binding."""
    return not why_at_chance(facts)


def why_at_chance(facts: Mapping[str, Any]) -> str:
    """Why a run does not answer better than guessing does, as a sentence; empty if it does."""
    spec = facts.get("spec")
    return (_at_chance(facts, flat_fields(spec) if isinstance(spec, Mapping) else {}) or RunWarning()).sentence


def begun_from(num_facts: int, answers: float) -> float:
    """The binding that counts as begun, of so many answers from the context: 0.05, and more than chance gives."""
    return max(BEGUN, noise(1 / num_facts, answers) / (1 - 1 / num_facts))


def _diverged(
    facts: Mapping[str, Any], fields: Mapping[str, Value], seen: list[Mapping[str, Any]]
) -> RunWarning | None:
    lost = next((entry["step"] for entry in seen if entry.get("loss", 0) is None), None)
    if lost is None:
        return None
    rate = fields.get("learning_rate")
    than = f" than {rate:g}" if isinstance(rate, float | int) else ""
    return RunWarning(
        "diverged",
        f"diverged: at step {lost} its loss was no longer a finite number. The accuracy is that of step "
        f"{facts.get('best_step')}. Try a smaller --learning-rate{than}.",
    )


def _still_improving(
    facts: Mapping[str, Any], fields: Mapping[str, Value], seen: list[Mapping[str, Any]]
) -> RunWarning | None:
    steps, queries, goal = facts.get("steps"), facts.get("test_queries"), fields.get("stop_accuracy")
    if not (is_number(steps) and is_number(queries)):
        return None
    before = [entry for entry in seen if entry["step"] <= steps * (1 - LAST_PART)]
    after = [entry["accuracy"] for entry in seen if entry["step"] > steps * (1 - LAST_PART)]
    if not before or not after or (is_number(goal) and max(after) >= goal):
        return None
    old, new = max(entry["accuracy"] for entry in before), max(after)
    parts = (1 - before[-1]["step"] / steps) / LAST_PART
    if new - old <= max(LEAST_GAIN * parts, math.hypot(noise(old, queries), noise(new, queries))):
        return None
    return RunWarning(
        "still-improving",
        f"was still improving: from step {before[-1]['step']} to its end at {steps} its validation accuracy rose from "
        f"{old:.4f} to {new:.4f}. It may reach more with more steps (--flat-steps, --decay-steps).",
    )


def _at_chance(facts: Mapping[str, Any], fields: Mapping[str, Value]) -> RunWarning | None:
    reached, queries, guess = facts.get("test_accuracy"), facts.get("test_queries"), best_guess(fields)
    if guess is None or not (is_number(reached) and is_number(queries)):
        return None
    luck = noise(guess.accuracy, queries)
    if reached <= guess.accuracy + luck:
        return RunWarning(
            "at-chance",
            f"stayed at chance: accuracy {reached:.4f} is not above the {guess.accuracy:.4f} of guessing {guess.how}, "
            f"which luck makes {guess.accuracy + luck:.4f} at most over {queries:,} queries. That is no capacity.",
        )
    if has_begun(facts) is False:
        least = begun_from(fields["num_facts"], facts["in_context"] * queries)  # type: ignore[arg-type]
        return RunWarning(
            "at-chance",
            f"stayed at chance: {facts['in_context']:.0%} of its answers are values of the context, but no more of "
            f"these are the key's own than by guessing (accuracy {reached:.4f}, binding {facts['binding']:.3f}; "
            f"{least:.2g} or more counts as begun). That is no capacity.",
        )
    return None


def _is_evaluation(entry: Any) -> bool:
    return isinstance(entry, Mapping) and is_number(entry.get("step")) and is_number(entry.get("accuracy"))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number, and neither true nor false."""
    return type(value) in (int, float) and value - value == 0  # finite
