"""Where a law holds, as inequalities between the paper's letters that can be read and computed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.theory.problem import LETTERS, Array, Problem

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
Sum = tuple[tuple[float, tuple[str, ...]], ...]  # terms: a number times some letters


@dataclass(frozen=True, init=False)
class Domain:
    """Conditions such as "2 <= N <= D" or "V >= 2 N_f + 2"; the letters are those of a Problem.

    A condition on L or G is about MQAR only: the length of AR follows from its facts.
    """

    conditions: tuple[str, ...]
    _inequalities: tuple[tuple[Sum, str, Sum], ...] = field(repr=False, compare=False)

    def __init__(self, *conditions: str) -> None:
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "_inequalities", tuple(found for text in conditions for found in _parse(text)))

    def contains(self, problem: Problem) -> NDArray[np.bool_]:
        """Whether all conditions hold, per entry of the problem."""
        inside = np.ones(problem.shape, bool)
        for left, sign, right in self._inequalities:
            letters = {letter for _, some in (*left, *right) for letter in some}
            if not (problem.task == "ar" and letters & {"L", "G"}):
                inside &= _COMPARE[sign](_value(left, problem), _value(right, problem))
        return inside

    @property
    def sentence(self) -> str:
        """The conditions in one line."""
        return ", ".join(self.conditions)


def _parse(text: str) -> Iterator[tuple[Sum, str, Sum]]:
    """A chain such as a <= b < c is two inequalities."""
    parts = re.split(r"(<=|>=|<|>|=)", text)
    sums = [tuple(_term(term, text) for term in re.split(r"\s+(?=[+-])", part.strip())) for part in parts[::2]]
    if len(sums) < 2:
        raise ValueError(f"domain condition {text!r} compares nothing. Write it as 'V >= 4 D' or '2 <= N <= D'.")
    for (left, right), sign in zip(pairwise(sums), parts[1::2], strict=True):
        yield left, sign, right


def _term(term: str, text: str) -> tuple[float, tuple[str, ...]]:
    """A number times some letters, such as `4 N_f` or `- 2`."""
    number, letters = (-1.0 if term.startswith("-") else 1.0), []
    for factor in term.lstrip("+-").split() or [""]:
        if factor in LETTERS:
            letters.append(factor)
        elif re.fullmatch(r"\d+(\.\d+)?", factor):
            number *= float(factor)
        else:
            raise ValueError(
                f"domain condition {text!r}: {factor!r} is neither a number nor one of {', '.join(LETTERS)}. "
                f"Put a space between factors, as in '4 N_f'."
            )
    return number, tuple(letters)


def _value(terms: Sum, problem: Problem) -> Array:
    values = [number * np.prod([getattr(problem, letter) for letter in letters], axis=0) for number, letters in terms]
    return np.asarray(sum(values))
