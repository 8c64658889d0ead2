"""The question put to a law: which task, which sizes. Checked once, and broadcast together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recallscope.specs import HeadPattern

LawTask = Literal["ar", "mqar", "template_ar", "template_mqar"]
PLAIN: tuple[LawTask, ...] = ("ar", "mqar")  # tasks with keys of one token
TEMPLATES: tuple[LawTask, ...] = ("template_ar", "template_mqar")  # with correlated keys
TEMPLATE_FIELDS = ("key_tokens", "rho", "rows", "columns")  # of these tasks alone
Array = NDArray[np.float64]
Result = TypeVar("Result")

_ONE_SHAPE = ("V", "N_f", "D", "N", "L")  # letters that are given the common shape
LETTERS = ("V", "N_f", "L", "D", "N", "G", "Lambda", "M")


def _size(letter: str, description: str, least: int = 1) -> dict[str, Any]:
    """A size: the paper's letter, what it is, and its smallest value."""
    return {"letter": letter, "description": description, "least": least}


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What recall depends on. Sizes are numbers or arrays that broadcast together; what is unknown is left out.

    Dimensions may be real numbers: inverses and effective dimensions pass between the integers. The attributes V,
    N_f, D, N and L are float arrays of the common `shape`; asking for one that was left out is an error.
    """

    task: LawTask = field(
        default="mqar",
        metadata={"description": "ar: one query; mqar: every fact is queried once; template_*: with correlated keys"},
    )
    vocab_size: ArrayLike | None = field(default=None, metadata=_size("V", "even: half keys, half values", least=2))
    num_facts: ArrayLike | None = field(default=None, metadata=_size("N_f", "key-value pairs in the context"))
    length: ArrayLike | None = field(
        default=None, metadata=_size("L", "tokens in a sequence; default: 4 N_f for mqar, 2 N_f + 1 for ar")
    )
    embed_dim: ArrayLike | None = field(default=None, metadata=_size("D", "embedding dimension"))
    state_dim: ArrayLike | None = field(default=None, metadata=_size("N", "state dimension"))
    num_layers: ArrayLike | None = field(default=1, metadata=_size("Lambda", "layers; their states add up (Thm 4.6)"))
    num_heads: ArrayLike = field(default=1, metadata=_size("M", "heads of Mamba-2, with a head pattern"))
    head_pattern: HeadPattern | None = field(
        default=None,
        metadata={"description": "what the heads share (Thm 4.7); without it the model counts as one head"},
    )
    key_tokens: int = field(default=2, metadata={"description": "template_*: m, tokens of a key"})
    rho: float = field(
        default=0.0, metadata={"description": "template_*: chance that a place of a key holds a shared token"}
    )
    rows: int = field(default=0, metadata={"description": "template_*: keys are cells of a table with this many rows"})
    columns: int = field(default=0, metadata={"description": "template_*: columns of the table"})
    expand: ArrayLike = field(default=2, metadata=_size("expand", "inner channels over D"))

    shape: tuple[int, ...] = field(init=False, repr=False)
    V: Array = field(init=False, repr=False)
    N_f: Array = field(init=False, repr=False)
    D: Array = field(init=False, repr=False)
    N: Array = field(init=False, repr=False)
    L: Array = field(init=False, repr=False)
    Lambda: Array = field(init=False, repr=False)  # one number where one was given, as is M
    M: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.task not in get_args(LawTask):
            raise ValueError(
                f"task={self.task!r}: the recall laws are stated for 'ar' and 'mqar' (Thm 4.2), and for 'template_ar' "
                f"and 'template_mqar', which have correlated keys. "
                f"For repeated keys a single layer guesses among N_k values (App. I.2); train the model instead."
            )
        if self.head_pattern is not None and self.head_pattern not in get_args(HeadPattern):
            raise ValueError(f"head_pattern={self.head_pattern!r}: the patterns are MHA, MQA, MKA and MVA (Tab. 5).")
        if self.key_tokens < 1 or not 0 <= self.rho <= 1 or min(self.rows, self.columns) < 0:
            raise ValueError(
                f"key_tokens={self.key_tokens}, rho={self.rho}, rows={self.rows}, columns={self.columns}: a key has a "
                f"token or more, rho is a chance, and rows and columns are counted. Try key_tokens=2, rho=1."
            )
        own = self.__dict__  # a frozen dataclass may not assign to its attributes
        letters: dict[str, Array] = {}
        for name, about in SIZES.items():
            if own[name] is not None and name != "length":
                own[name] = letters[about["letter"]] = _numbers(name, own[name], about["least"])
        L = self._length(letters.get("N_f"))
        if L is not None:
            letters["L"] = L
        own["shape"] = shape = np.broadcast(*letters.values()).shape
        for letter, array in letters.items():
            if letter != "expand":
                own[letter] = np.full(shape, array) if letter in _ONE_SHAPE or array.shape else array

    def _length(self, N_f: Array | None) -> Array | None:
        """L, checked against N_f; None if it is neither given nor follows."""
        given = None if self.length is None else _numbers("length", self.length, 1.0)
        if self.task in TEMPLATES:
            self.__dict__["length"] = None  # nothing but facts and queries
            queries = 0 if N_f is None else N_f if self.task == "template_mqar" else 1
            return None if N_f is None else N_f * (self.key_tokens + 1) + queries * self.key_tokens
        if self.task == "ar":
            if N_f is not None and given is not None and np.any(given != 2 * N_f + 1):
                raise ValueError(
                    f"length={np.asarray(self.length)} does not fit task='ar': one query, L = 2 N_f + 1. Leave it out."
                )
            self.__dict__["length"] = None  # it follows from N_f
            return None if N_f is None else 2 * N_f + 1
        self.__dict__["length"] = given
        if N_f is None or given is None:
            return given if N_f is None else 4 * N_f
        if np.any(4 * N_f > given):
            raise ValueError(
                f"length={np.min(given):g} is shorter than 4 num_facts = {np.max(4 * N_f):g}: every fact is asked "
                f"once, in a slot of two tokens after the 2 N_f tokens of the context (Tab. 1). Use length >= 4 "
                f"num_facts."
            )
        return given

    if not TYPE_CHECKING:  # a type checker would take every misspelt attribute for one of these

        def __getattr__(self, letter: str) -> NoReturn:
            """Called for attributes that are not there: a size that was left out is named."""
            names = {about["letter"]: name for name, about in SIZES.items()} | {"L": "num_facts"}
            if letter in names:
                raise ValueError(f"{names[letter]} is not given, and this needs it ({letter}).")
            raise AttributeError(f"a Problem has no attribute {letter!r}")

    @property
    def G(self) -> Array:
        """Query slots, (L - 2 N_f) / 2; for AR, where L = 2 N_f + 1, the one query."""
        return np.maximum(np.floor((self.L - 2 * self.N_f) / 2), 1.0)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are given, by name."""
        return {name: self.__dict__[name] for name in FIELDS if self.__dict__[name] is not None}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Problem:
        """The problem of a run, from a mapping of its fields; other keys and None are ignored.

        The length of a run follows from its facts and is ignored, too, but for MQAR.
        """
        known = {name: fields[name] for name in FIELDS if fields.get(name) is not None}
        if known.get("task", "mqar") != "mqar":
            known.pop("length", None)
        return cls(**known)

    def replace(self, **changes: Any) -> Problem:
        """The same problem with some fields changed."""
        return Problem(**(self.fields | changes))

    def take(self, index: Any) -> Problem:
        """Some entries of the broadcast arrays: the problems at an index, as numpy understands it."""
        arrays = {name: value for name, value in self.fields.items() if np.ndim(value) or not self.shape}
        sizes = (name for name in arrays if name not in SINGLE)
        return self.replace(**{name: np.broadcast_to(arrays[name], self.shape)[index] for name in sizes})


FIELDS = {entry.name: entry for entry in fields(Problem) if entry.init}
SINGLE = ("task", "head_pattern", *TEMPLATE_FIELDS)  # which are not arrays
SIZES = {name: entry.metadata for name, entry in FIELDS.items() if "letter" in entry.metadata}
ASKED = {name: entry for name, entry in FIELDS.items() if name != "expand"}  # which follows from the architecture


def one_value(name: str) -> Any:
    """The type of a field in a single setting: int for a size, where a Problem also takes arrays."""
    return int if name in SIZES else get_type_hints(Problem)[name]


def problem_and_options(problem: Problem | None, fields: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Part keyword arguments into the fields of a Problem, which it gets, and all others."""
    sizes = {name: value for name, value in fields.items() if name in FIELDS}
    if problem is None:
        problem = Problem(**sizes)
    elif sizes:
        problem = problem.replace(**sizes)
    return problem, {name: value for name, value in fields.items() if name not in FIELDS}


def takes_fields(function: Callable[..., Result]) -> Callable[..., Result]:
    """Let a function of one Problem be called with the fields of a Problem as keywords instead."""

    @wraps(function)
    def called(problem: Problem | None = None, /, **fields: Any) -> Result:
        if problem is None or fields:
            problem, fields = problem_and_options(problem, fields)
        return function(problem, **fields)

    return called


def probability(name: str, value: float) -> float:
    """A probability strictly between 0 and 1, or an error that says so."""
    if not 0 < value < 1:
        raise ValueError(f"{name}={value}: a probability strictly between 0 and 1 is needed. Try 0.99.")
    return float(value)


def _numbers(name: str, value: ArrayLike, least: float) -> Array:
    if isinstance(value, int | float) and least <= value < math.inf:
        return np.array(value, float)
    array = np.asarray(value, float)
    low, high = float(array.min(initial=least)), float(array.max(initial=least))  # nan passes through both
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name}={np.asarray(value)}: a finite number is needed.")
    if low < least:
        why = "a layer has at least one head" if name == "num_heads" else "the least that has a meaning here"
        raise ValueError(f"{name}={low:g} is below {least:g}, {why}. Use {name} >= {least:g}.")
    return array
