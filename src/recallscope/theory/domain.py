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


# What the laws were compared with: the cells behind docs/REPRODUCTION.md and results/theory. To have been compared is
# not to have been right: how far each law was off there is in the law table of the report.

_ONE = ("Lambda = 1", "M = 1")
_SHORTEST = "L = 4 N_f"

# the linear grids of results/paper
TRAINED = (Domain("256 <= V <= 4096", "16 <= N_f <= 80", _SHORTEST, "8 <= D <= 64", "2 <= N <= 32", *_ONE),)
# the grids of full Mamba
FULL = (Domain("512 <= V <= 1024", "16 <= N_f <= 32", _SHORTEST, "16 <= D <= 64", "8 <= N <= 32", *_ONE, task="mqar"),)
# the grids of the head patterns
HEADS = (Domain("V = 512", "N_f = 16", _SHORTEST, "D = 60", "2 <= N <= 8", "Lambda = 1", "M <= 6", task="mqar"),)
# designed circuits
MONTE_CARLO = (Domain("512 <= V <= 1024", "16 <= N_f <= 32", "8 <= D <= 96", "8 <= N <= D", *_ONE),)

# trained-sharing: many words and few dimensions, as above; and small vocabularies, up to D = V. There V > 16 N_f is
# left out, where more directions die than it counts: it is .08 too high at (V, N_f, D, N) = (256, 8, 256, 3), .05 at
# (512, 16, 256, 5); and so is N = 2 with D > V/4, where keys end up in any order, and it is up to .05 off
_SMALL = ("64 <= V <= 512", "N_f >= 4", _SHORTEST, *_ONE)
SHARING = (
    Domain("64 <= V <= 1024", "N_f >= 8", "6 N_f <= V", "L <= 8 N_f", "8 <= D <= 64", "4 D <= V", "N >= 2", *_ONE),
    Domain(*_SMALL, "8 N_f <= V", "8 <= D <= 128", "4 D <= V", "N >= 2", task="mqar"),
    Domain(*_SMALL, "8 N_f <= V <= 16 N_f", "8 <= D <= 192", "D <= V", "N >= 3", task="mqar"),
    Domain("64 <= V <= 128", "N_f >= 4", "8 N_f <= V", "8 <= D <= V", "N >= 3", *_ONE, task="ar"),
)
SHARING_HEADS = (
    *HEADS,
    Domain("128 <= V <= 256", "N_f = 8", _SHORTEST, "D = 64", "2 <= N <= 4", "Lambda = 1", "M <= 4", task="mqar"),
)
# the trained minimal variants of the architecture comparison; memories of explicit codes
# (results/theory/memories_monte_carlo.md)
_MINIMAL = (_SHORTEST, "16 <= D <= 64", "4 <= N <= 16", *_ONE)
TRAINED_MEMORIES = (Domain("256 <= V <= 512", "8 <= N_f <= 16", *_MINIMAL, task="mqar"),)
MEMORIES = (*TRAINED_MEMORIES, Domain("256 <= V <= 1024", "8 <= N_f <= 32", "16 N_f <= V", *_MINIMAL))
# two to sixteen routed memories (studies/own/new_architectures.py)
ROUTED = (Domain("V = 256", "N_f = 16", "D = 16", "N = 4", _SHORTEST, *_ONE, task="mqar"),)
# memories of explicit codes with correlated keys (results/theory/template_monte_carlo.md)
CORRELATED = (Domain("256 <= V <= 1024", "12 <= N_f <= 16", "32 <= D <= 64", "4 <= N <= 16", *_ONE),)
