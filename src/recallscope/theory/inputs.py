"""The door of every law: words come in, the paper's letters go out, checked once and broadcast together."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LawTask = Literal["ar", "mqar"]
Array = NDArray[np.float64]


class Letters(NamedTuple):
    """The paper's letters as float arrays of one shape."""

    V: Array
    N_f: Array
    D: Array
    N: Array
    L: Array

    @property
    def G(self) -> Array:
        """Query slots, (L - 2 N_f) / 2; for AR, where L = 2 N_f + 1, the one query."""
        return np.maximum(np.floor((self.L - 2 * self.N_f) / 2), 1.0)


def letters(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: str,
    length: ArrayLike | None = None,
) -> Letters:
    """Check and broadcast a law's arguments; `length` is 4 N_f unless given, and 2 N_f + 1 for AR.

    Dimensions may be real numbers: inverses and effective dimensions pass through between the integers.
    """
    if task not in ("ar", "mqar"):
        raise ValueError(
            f"task={task!r}: the recall laws are stated for 'ar' and 'mqar' (Thm 4.2). "
            f"For repeated keys a single layer guesses among N_k values (App. I.2); train the model instead."
        )
    V, N_f, D, N = (
        _numbers(name, value, least)
        for name, value, least in (
            ("vocab_size", vocab_size, 2.0),
            ("num_facts", num_facts, 1.0),
            ("embed_dim", embed_dim, 1.0),
            ("state_dim", state_dim, 1.0),
        )
    )
    if task == "ar":
        L = 2 * N_f + 1
        if length is not None and np.any(_numbers("length", length, 1.0) != L):
            raise ValueError(
                f"length={np.asarray(length)} does not fit task='ar': one query, L = 2 N_f + 1. Leave it out."
            )
    else:
        L = 4 * N_f if length is None else _numbers("length", length, 1.0)
        if np.any(4 * N_f > L):
            raise ValueError(
                f"length={np.min(L):g} is shorter than 4 num_facts = {np.max(4 * N_f):g}: every fact is asked once, "
                f"in a slot of two tokens after the 2 N_f tokens of the context (Tab. 1). Use length >= 4 num_facts."
            )
    return Letters(*(np.array(a, float) for a in np.broadcast_arrays(V, N_f, D, N, L)))


def probability(name: str, value: float) -> float:
    """A probability strictly between 0 and 1, or an error that says so."""
    if not 0 < value < 1:
        raise ValueError(f"{name}={value}: a probability strictly between 0 and 1 is needed. Try 0.99.")
    return float(value)


def _numbers(name: str, value: ArrayLike, least: float) -> Array:
    array = np.asarray(value, float)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={np.asarray(value)}: a finite number is needed.")
    if np.any(array < least):
        raise ValueError(
            f"{name}={np.min(array):g} is below {least:g}, the least that has a meaning here. Use {name} >= {least:g}."
        )
    return array
