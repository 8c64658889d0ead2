"""Where a law holds, or what it was compared with: inequalities between the paper's letters, read and computed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.theory.problem import LETTERS, Array, LawTask, Problem

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
Sum = tuple[tuple[float, tuple[str, ...]], ...]  # terms: a number times some letters


@dataclass(frozen=True, init=False)
class Domain:
    """Conditions such as "2 <= N <= D" or "V >= 2 N_f + 2"; the letters are those of a Problem.

    A condition on L or G is about MQAR only: the length of AR follows from its facts. `task` restricts the domain to
    one task.
    """

    conditions: tuple[str, ...]
    task: LawTask | None
    _inequalities: tuple[tuple[str, Sum, str, Sum], ...] = field(repr=False, compare=False)

    def __init__(self, *conditions: str, task: LawTask | None = None) -> None:
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "task", task)
        found = ((text, *inequality) for text in conditions for inequality in _parse(text))
        object.__setattr__(self, "_inequalities", tuple(found))

    def contains(self, problem: Problem) -> NDArray[np.bool_]:
        """Whether all conditions hold, per entry of the problem."""
        inside = np.full(problem.shape, self.task in (None, problem.task))
        for _, holds in self._checked(problem):
            inside &= holds
        return inside

    def broken(self, problem: Problem) -> tuple[str, ...]:
        """The conditions that some entry of the problem does not meet."""
        other_task = () if self.task in (None, problem.task) else (str(self.task).upper(),)
        return other_task + tuple(dict.fromkeys(text for text, holds in self._checked(problem) if not np.all(holds)))

    def _checked(self, problem: Problem) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Every inequality that is about this task: the condition it is from, and where it holds."""
        for text, left, sign, right in self._inequalities:
            letters = {letter for _, some in (*left, *right) for letter in some}
            if not (problem.task == "ar" and letters & {"L", "G"}):
                yield text, _COMPARE[sign](_value(left, problem), _value(right, problem))

    @property
    def sentence(self) -> str:
        """The conditions in one line."""
        task = f"{self.task.upper()}: " if self.task else ""
        return task + ", ".join(self.conditions)


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
