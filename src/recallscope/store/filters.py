"""Conditions on runs as one types them, `state_dim<=16`, and as SQL understands them. Values never become SQL text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from recallscope.store.columns import COLUMNS, TEXT_COLUMNS
from recallscope.store.words import unknown_word

_CONDITION = re.compile(r"\s*([A-Za-z_]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """column, comparison, value."""

    column: str
    sign: str
    value: float | int | str


def parse_condition(text: str) -> Condition:
    """One condition, or a ValueError that says what is not understood."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ValueError(
            f"{text!r} is not a condition. Write a field, a comparison and a value: state_dim<=16 or model=linear."
        )
    column, sign, value = match.groups()
    if column not in COLUMNS:
        raise ValueError(unknown_word(column, COLUMNS))
    sign = "=" if sign == "==" else sign
    if column in TEXT_COLUMNS:
        return Condition(column, sign, value.strip("'\""))
    lowered = {"true": "1", "yes": "1", "false": "0", "no": "0"}.get(value.lower(), value)
    try:
        number = float(lowered)
    except ValueError as error:
        raise ValueError(f"{text!r}: {column} is a number, and {value!r} is none.") from error
    if not math.isfinite(number):
        raise ValueError(f"{text!r}: {column} is compared with a finite number.")
    return Condition(column, sign, int(number) if number.is_integer() else number)


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """All of them must hold; commas separate conditions as well as spaces do."""
    return [parse_condition(part) for text in texts for part in text.split(",") if part.strip()]


def where_clause(conditions: Iterable[Condition]) -> tuple[str, list[float | int | str]]:
    """SQL after WHERE, and the values for its question marks."""
    conditions = list(conditions)
    clause = " AND ".join(f"{c.column} {c.sign} ?" for c in conditions) or "1"
    return clause, [c.value for c in conditions]
