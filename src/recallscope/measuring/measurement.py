"""What a measurement of one model on one task says: plain data, made into sentences, a table and a figure elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from recallscope.measuring.beside import Neighbour
from recallscope.specs import ModelSpec, TaskSpec
from recallscope.theory.bounds import information_bits, most_recall
from recallscope.theory.law import TRAINED_LAW, find_law
from recallscope.theory.problem import Array, Problem
from recallscope.theory.solve import Question, frontier, solve

STATE_BITS = 32  # of a number of the state
FRONTIER_POINTS = 16  # sizes N at which the least state is looked for
CURVE_SIZES = (1, 2, 4, 8, 16)  # N of the linear Mambas among which the best of each state is drawn


@dataclass(frozen=True)
class Accuracy:
    """Share of questions answered rightly, with a 95 % interval, and what that interval is over."""

    mean: float
    interval: tuple[float, float]
    over: str
    seeds: tuple[float, ...]
    queries: int  # of one seed

    @classmethod
    def of(cls, means: Sequence[float], errors: Sequence[float], sequences: int, queries: int) -> Accuracy:
        """By Wilson's interval over test sequences; of several seeds not narrower than by Student's t over seeds.

        `errors` are standard errors over sequences, which treat the questions of one sequence as dependent.
        """
        mean, count = sum(means) / len(means), len(means)
        error, z = math.hypot(*errors) / count, float(ndtri(0.975))
        n = mean * (1 - mean) / error**2 if error > 0 else float(sequences * count)
        middle, half = mean + z**2 / (2 * n), z * math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
        low, high, over = (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n), "one seed"
        if count > 1:
            spread = float(np.std(means, ddof=1)) / math.sqrt(count) * float(stdtrit(count - 1, 0.975))
            low, high, over = min(low, mean - spread), max(high, mean + spread), f"{count} seeds"
        ends = max(min(low, mean), 0.0), min(max(high, mean), 1.0)  # rounding must not leave the mean outside
        return cls(mean, ends, f"{sequences:,} test sequences, {over}", tuple(means), queries)


@dataclass(frozen=True)
class Information:
    """Bits about the values that the accuracy proves were held (Lem 4.5), and how many the facts have in all."""

    held: float
    of_task: float
    per_entry: float | None  # of the state
    share_of_bound: float | None  # of what the state's 32-bit numbers could hold

    @classmethod
    def of(cls, accuracy: float, task: TaskSpec, state_entries: int | None) -> Information | None:
        """None for a task without facts to count."""
        num_facts = getattr(task, "num_facts", None)
        if num_facts is None:
            return None
        chance = 2 / task.vocab_size
        held, every = (
            float(information_bits(num_facts, task.vocab_size, min(max(1 - p, 1e-12), 1 - 1e-12), values="distinct"))
            for p in (accuracy, 1.0)
        )
        held = held if accuracy > chance else 0.0
        per_entry = held / state_entries if state_entries else None
        return cls(held, every, per_entry, None if per_entry is None else per_entry / STATE_BITS)


@dataclass(frozen=True)
class LinearEqual:
    """The linear Mamba that recalls as well, by the recommended law; None with the reason where there is none."""

    law: str
    embed_dim: int | None
    state_dim: int | None
    state_entries: int | None
    reason: str

    @classmethod
    def of(cls, accuracy: Accuracy, task: TaskSpec, model: ModelSpec) -> LinearEqual:
        """The least N at the model's own D, if it has one that is enough; else the least state of any D and N.

        Where every answer was right, the lower end of the interval counts.
        """
        law = find_law(TRAINED_LAW)
        words, own = task.model_dump(mode="json") | {"task": task.kind}, model.size_of("embed_dim")
        D = own if own > 1 else None
        if accuracy.mean <= 2 / task.vocab_size:
            return cls(law.name, None, None, None, "it recalls no more than guessing does")
        target, at_least = (accuracy.mean, "") if accuracy.mean < 1 else (accuracy.interval[0], "at least ")
        try:
            Problem.from_words(words)
            known: dict[str, Any] = {name: words.get(name) for name in ("vocab_size", "num_facts", "length")}
            question = Question(law, target, task=words["task"], **known)
            N = None if D is None else solve(replace(question, embed_dim=D), "state_dim").value
            if D is not None and N is not None:
                return cls(law.name, D, N, 2 * D * N, f"{at_least}the least N at its D={D}")
            points = frontier(question, max_points=FRONTIER_POINTS)
        except (ValueError, TypeError) as error:  # a task that the laws do not speak about
            return cls(law.name, None, None, None, str(error))
        if not points:
            return cls(law.name, None, None, None, "none recalls as much")
        best = min(points, key=lambda point: point.state_entries)
        why = "" if D is None else f"; at its D={D} none recalls as much"
        return cls(law.name, best.embed_dim, best.state_dim, best.state_entries, f"{at_least}the least state{why}")


@dataclass(frozen=True)
class Measurement:
    """One model on one task."""

    name: str
    model: dict[str, Any]
    task: dict[str, Any]
    accuracy: Accuracy
    parameters: int
    state_entries: int | None
    state_bytes: int | None
    state_how: str
    recipe: str
    information: Information | None
    linear: LinearEqual
    beside: list[Neighbour]
    runs: tuple[str, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()  # about trainings that diverged, stayed at chance or were still improving

    @property
    def place(self) -> int:
        """Its rank by accuracy among the models beside it, from 1."""
        return 1 + sum(row.accuracy > self.accuracy.mean for row in self.beside)

    @property
    def place_per_entry(self) -> int | None:
        """Among those with no more state than it has, by accuracy, from 1; None if its state was not measured."""
        mine = self.state_entries
        if mine is None:
            return None
        return 1 + sum(
            row.accuracy > self.accuracy.mean for row in self.beside if row.state_entries and row.state_entries <= mine
        )

    @property
    def headline(self) -> str:
        """Name and accuracy with its interval."""
        low, high = self.accuracy.interval
        interval = f"95 %: {low:.4f} to {high:.4f}, over {self.accuracy.over}"
        return f"{self.name}  recall {self.accuracy.mean:.4f}  ({interval})"

    @property
    def summary(self) -> dict[str, str]:
        """What was measured, a line per name."""
        size = f"{self.state_entries:,} entries, {self.state_bytes:,} bytes, " if self.state_entries else ""
        lines = {"seeds": "  ".join(f"{value:.4f}" for value in self.accuracy.seeds)}
        lines = lines if len(self.accuracy.seeds) > 1 else {}
        lines |= {"state": f"{size}{self.state_how}", "parameters": f"{self.parameters:,}"}
        if held := self.information:
            lines["bits"] = f"{held.held:.1f} of the {held.of_task:.1f} that the facts have"
            if held.per_entry is not None and held.share_of_bound is not None:
                share = f"{held.share_of_bound:.2%} of what its 32-bit numbers could hold (Lem 4.5)"
                lines["bits"] += f"; {held.per_entry:.3f} per state entry, {share}"
        equal = self.linear
        lines["equals"] = f"no linear Mamba by {equal.law}: {equal.reason}"
        if equal.state_dim is not None:
            sizes = f"D={equal.embed_dim}, N={equal.state_dim}, {equal.state_entries:,} state entries"
            lines["equals"] = f"a linear Mamba of {sizes}: {equal.reason}, by {equal.law}"
        return lines | {"recipe": self.recipe}

    @property
    def rank(self) -> str:
        """Its place among the models beside it, as a sentence."""
        if not self.beside:
            return "no stored run on this task; name stores with --compare-with"
        among = f"place {self.place} of {len(self.beside) + 1} by recall"
        per_entry = self.place_per_entry
        return among if per_entry is None else f"{among}, place {per_entry} among those with no more state"

    def nearest(self, count: int) -> list[Neighbour]:
        """The models beside it that are nearest in state size, and itself (store "this"), best accuracy first."""
        mine = self.state_entries or 1
        rows = [row for row in self.beside if row.state_entries]
        near = sorted(rows, key=lambda row: max(row.state_entries or 1, mine) / min(row.state_entries or 1, mine))
        seeds = len(self.accuracy.seeds)
        itself = Neighbour(self.name, "", self.accuracy.mean, seeds, self.state_entries, "this")
        return sorted([*near[:count], itself], key=lambda row: -row.accuracy)


def linear_by_state(states: Array, state_dim: Array) -> Array:
    """D of a linear Mamba with so many state entries, 2 D N."""
    return states / (2 * state_dim)


def linear_curve(task: TaskSpec, sizes: Array, embed_dim: Callable[[Array, Array], Array] = linear_by_state) -> Array:
    """The best recall of a linear Mamba of some size or less, by the recommended law; nan if unknown.

    The size is the number of state entries, or another one from which `embed_dim` gives D at every N.
    """
    law = find_law(TRAINED_LAW)
    S, N = (grid.ravel() for grid in np.meshgrid(sizes, CURVE_SIZES, indexing="ij"))
    D = embed_dim(S, N)
    p = np.zeros(S.shape)
    fits = D >= N
    try:
        words = task.model_dump(mode="json") | {"task": task.kind, "embed_dim": D[fits], "state_dim": N[fits]}
        with np.errstate(all="ignore"):
            p[fits] = np.nan_to_num(law(Problem.from_words(words)))
    except ValueError:  # a task that the laws do not speak about
        return np.full(len(sizes), np.nan)
    return np.maximum.accumulate(p.reshape(len(sizes), -1).max(axis=1))


def reference_curves(measured: Measurement, task: TaskSpec) -> dict[str, tuple[Array, Array]]:
    """Accuracy against state entries to compare a measurement with: the best linear Mamba, the information bound."""
    seen = [row.state_entries for row in measured.beside if row.state_entries] + [measured.state_entries or 256]
    few, many = (np.geomspace(max(min(seen) / 4, 2), max(seen) * 4, points) for points in (12, 100))
    curves = {"best linear Mamba (law)": (few, linear_curve(task, few))}
    if "num_facts" in measured.task:
        bound = most_recall(many, measured.task["num_facts"], task.vocab_size)
        curves["information bound, 1 bit per entry"] = (many, bound)
    return curves
