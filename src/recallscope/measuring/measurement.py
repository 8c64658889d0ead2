"""What a measurement of one model on one task says: plain data, made into sentences, a table and a figure elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from recallscope.health import left_chance
from recallscope.measuring.learning import Verdict
from recallscope.records import RecordError, RunRecord
from recallscope.registry import suggestion
from recallscope.runs.store import RunStore
from recallscope.runs.table import Condition, find_runs
from recallscope.specs import ARCHITECTURES, ModelSpec, TaskSpec, find_architecture, parse_model
from recallscope.theory.bounds import information_bits, most_recall
from recallscope.theory.law import TRAINED_LAW, find_law
from recallscope.theory.problem import Array, Problem
from recallscope.theory.solve import SizeQuery, frontier, solve

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
            low_seeds, high_seeds = over_seeds(means)
            low, high, over = min(low, low_seeds), max(high, high_seeds), f"{count} seeds"
        ends = max(min(low, mean), 0.0), min(max(high, mean), 1.0)  # rounding must not leave the mean outside
        return cls(mean, ends, f"{sequences:,} test sequences, {over}", tuple(means), queries)


@dataclass(frozen=True)
class Information:
    """Bits about the values that the accuracy proves were held (Lem 4.5), and how many the facts have in all."""

    held: float
    of_task: float
    per_entry: float | None  # of the effective state
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
    state_entries: int | None  # effective, D N; it stores 2 D N
    reason: str

    @classmethod
    def of(cls, accuracy: Accuracy, task: TaskSpec, model: ModelSpec) -> LinearEqual:
        """The least N at the model's own D, if it has one that is enough; else the least state of any D and N.

        Where every answer was right, the lower end of the interval counts.
        """
        law = find_law(TRAINED_LAW)
        fields, own = task.model_dump(mode="json") | {"task": task.kind}, model.size_of("embed_dim")
        D = own if own > 1 else None
        if accuracy.mean <= 2 / task.vocab_size:
            return cls(law.name, None, None, None, "it recalls no more than guessing does")
        target, at_least = (accuracy.mean, "") if accuracy.mean < 1 else (accuracy.interval[0], "at least ")
        try:
            Problem.from_fields(fields)
            known: dict[str, Any] = {name: fields.get(name) for name in ("vocab_size", "num_facts", "length")}
            question = SizeQuery(law, target, task=fields["task"], **known)
            N = None if D is None else solve(replace(question, embed_dim=D), "state_dim").value
            if D is not None and N is not None:
                return cls(law.name, D, N, D * N, f"{at_least}the least N at its D={D}")
            points = frontier(question, max_points=FRONTIER_POINTS)
        except (ValueError, TypeError) as error:  # a task that the laws do not speak about
            return cls(law.name, None, None, None, str(error))
        if not points:
            return cls(law.name, None, None, None, "none recalls as much")
        best = min(points, key=lambda point: point.state_entries)
        why = "" if D is None else f"; at its D={D} none recalls as much"
        D, N = best.embed_dim, best.state_dim
        return cls(law.name, D, N, D * N, f"{at_least}the least state{why}")


@dataclass(frozen=True)
class Measurement:
    """One model on one task. Where it did not learn, nothing is derived from its accuracy."""

    name: str
    model: dict[str, Any]
    task: dict[str, Any]
    accuracy: Accuracy
    binding: float | None  # mean over seeds (`records.binding`)
    verdict: Verdict
    parameters: int
    state_entries: int | None  # effective
    stored_entries: int | None
    entries_per_token: float | None  # of a memory that grows
    state_bytes: int | None
    state_how: str
    recipe: str
    information: Information | None
    linear: LinearEqual | None
    beside: list[Neighbour]
    runs: tuple[str, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()  # about runs that diverged or were still improving, and the module itself

    @property
    def label(self) -> str:
        """Its name without folders."""
        return self.name.rpartition("/")[2]

    @property
    def title(self) -> str:
        """Of a figure: what was measured, on which task, and what the interval is over."""
        task, facts = self.task, self.task.get("num_facts")
        what = f"{facts} facts" if facts else f"the task {task['kind']}"
        others = {name: value for name, value in task.items() if name in ("filler", "key_repeats")}
        usual = {"filler": "random", "key_repeats": 1}
        more = "".join(f", {name.replace('_', ' ')} {value}" for name, value in others.items() if value != usual[name])
        seeds = len(self.accuracy.seeds)
        how = f"mean and 95% interval over {seeds} seeds" if seeds > 1 else "one seed, 95% interval over sequences"
        return f"{self.label}: recall of {what}, vocabulary of {task['vocab_size']} tokens{more}\n{how}"

    @property
    def place(self) -> int | None:
        """Its rank by accuracy among the models beside it, from 1; None if it did not learn."""
        if not self.verdict.learned:
            return None
        return 1 + sum(row.learned and row.accuracy > self.accuracy.mean for row in self.beside)

    @property
    def place_per_entry(self) -> int | None:
        """Among those with no more effective state, by accuracy, from 1; None if that or the accuracy is unknown."""
        mine = self.state_entries
        if mine is None or not self.verdict.learned:
            return None
        fair = [row for row in self.beside if row.learned and row.state_entries and row.state_entries <= mine]
        return 1 + sum(row.accuracy > self.accuracy.mean for row in fair)

    @property
    def headline(self) -> str:
        """Name and accuracy with its interval; or that there is none to speak of."""
        low, high = self.accuracy.interval
        interval = f"(95%: {low:.4f} to {high:.4f}, over {self.accuracy.over})"
        if self.verdict.learned:
            return f"{self.name}  recall {self.accuracy.mean:.4f}  {interval}"
        return f"{self.name}  {self.verdict.word}  accuracy {self.accuracy.mean:.4f}  {interval}"

    @property
    def summary(self) -> dict[str, str]:
        """What was measured, a line per name."""
        lines = {"verdict": self.verdict.sentence}
        if len(self.accuracy.seeds) > 1:
            lines["seeds"] = "  ".join(f"{value:.4f}" for value in self.accuracy.seeds)
        if self.binding is not None:
            lines["binding"] = f"{self.binding:.3f} (0: names any value of the context; 1: always the key's own)"
        lines |= {"state": self._state(), "parameters": f"{self.parameters:,}"}
        if held := self.information:
            lines["bits"] = f"{held.held:.1f} of the {held.of_task:.1f} that the facts have"
            if held.per_entry is not None and held.share_of_bound is not None:
                share = f"{held.share_of_bound:.2%} of what its 32-bit numbers could hold (Lem 4.5)"
                lines["bits"] += f"; {held.per_entry:.3f} per effective state entry, {share}"
        if equal := self.linear:
            lines["equals"] = f"no linear Mamba by {equal.law}: {equal.reason}"
            if equal.state_dim is not None:
                sizes = f"D={equal.embed_dim}, N={equal.state_dim}, {equal.state_entries:,} effective state entries"
                lines["equals"] = f"a linear Mamba of {sizes}: {equal.reason}, by {equal.law}"
            if self.verdict.word in ("still rising", "unstable"):
                lines["equals"] += "; a lower limit, as the accuracy is"
        return lines | {"recipe": self.recipe}

    def _state(self) -> str:
        """Effective and stored entries."""
        stored = "" if self.stored_entries is None else f"stores {self.stored_entries:,} entries; "
        if self.state_entries is not None:
            return f"{self.state_entries:,} entries effective; {stored}{self.state_bytes:,} bytes; {self.state_how}"
        each = "" if self.entries_per_token is None else f"{self.entries_per_token:.3g} entries per token; "
        return f"{each}{stored}{self.state_how}"

    @property
    def rank(self) -> str:
        """Its place among the models beside it, as a sentence."""
        if not self.verdict.learned:
            return "no place: it did not learn" if self.verdict.word == "did not learn" else "no place: seeds differ"
        if not self.beside:
            return "no stored run on this task; --compare-with linear_mamba delta_net trains some, or reads a store"
        failed = sum(not row.learned for row in self.beside)
        place = f"place {self.place} of {len(self.beside) + 1 - failed} by recall"
        place += f", {failed} that did not learn left out" if failed else ""
        per_entry = self.place_per_entry
        return place if per_entry is None else f"{place}, place {per_entry} among those with no more effective state"

    def nearest(self, count: int) -> list[Neighbour]:
        """Rivals, the stored models nearest in state size, and itself (store "this"), best accuracy first."""
        rivals = [row for row in self.beside if row.store == TRAINED_NOW]
        near = sorted((row for row in self.beside if row.state_entries and row not in rivals), key=self._distance)
        seeds, mean = len(self.accuracy.seeds), self.accuracy.mean
        itself = Neighbour(self.name, "", mean, seeds, self.state_entries, "this", self.accuracy.interval)
        return sorted([*rivals, *near[:count], itself], key=lambda row: -row.accuracy)

    def _distance(self, row: Neighbour) -> float:
        """How far another's effective state is from this one's."""
        mine, other = self.state_entries or 1, row.state_entries or 1
        return abs(math.log(other / mine))

    @property
    def drawn(self) -> list[Neighbour]:
        """One of each architecture beside it: the one nearest in state, of those that learned if any did."""
        rows = sorted(self.beside, key=lambda row: (not row.learned, self._distance(row), -row.accuracy))
        return sorted({row.model: row for row in reversed(rows)}.values(), key=lambda row: -row.accuracy)


def linear_by_state(states: Array, state_dim: Array) -> Array:
    """D of a linear Mamba with so many effective state entries, D N."""
    return states / state_dim


def linear_curve(task: TaskSpec, sizes: Array, embed_dim: Callable[[Array, Array], Array] = linear_by_state) -> Array:
    """The best recall of a linear Mamba of some size or less, by the recommended law; nan if unknown.

    The size is the number of effective state entries, or another one from which `embed_dim` gives D at every N.
    """
    law = find_law(TRAINED_LAW)
    S, N = (grid.ravel() for grid in np.meshgrid(sizes, CURVE_SIZES, indexing="ij"))
    D = embed_dim(S, N)
    p = np.zeros(S.shape)
    fits = D >= N
    try:
        fields = task.model_dump(mode="json") | {"task": task.kind, "embed_dim": D[fits], "state_dim": N[fits]}
        with np.errstate(all="ignore"):
            p[fits] = np.nan_to_num(law(Problem.from_fields(fields)))
    except ValueError:  # a task that the laws do not speak about
        return np.full(len(sizes), np.nan)
    return np.maximum.accumulate(p.reshape(len(sizes), -1).max(axis=1))


def reference_curves(measured: Measurement, task: TaskSpec) -> dict[str, tuple[Array, Array]]:
    """Accuracy against effective state entries, to compare with: the best linear Mamba, the information bound."""
    seen = [row.state_entries for row in measured.drawn if row.state_entries] + [measured.state_entries or 256]
    few, many = (np.geomspace(max(min(seen) / 4, 2), max(seen) * 4, points) for points in (12, 100))
    curves = {"best linear Mamba (law)": (few, linear_curve(task, few))}
    if "num_facts" in measured.task:
        bound = most_recall(many, measured.task["num_facts"], task.vocab_size)
        curves["information bound, 1 bit per entry"] = (many, bound)
    return curves


# What a measurement is compared with: finished runs on the same task, and rivals trained by the same recipe

COMMITTED = Path(__file__).resolve().parents[3] / "results"  # of a checkout; an installed package has none
TRAINED_NOW = "trained now"  # in the place of a store: a rival
_SIZES = {"embed_dim": "D", "state_dim": "N", "num_layers": "layers", "num_heads": "heads", "head_pattern": ""}


@dataclass(frozen=True)
class Neighbour:
    """All seeds of one model on the task: how well they recall, and what state that takes."""

    model: str  # the architecture
    sizes: str
    accuracy: float  # mean of the seeds
    seeds: int
    state_entries: int | None  # effective
    store: str  # or `TRAINED_NOW`
    interval: tuple[float, float] | None = None  # 95%, over seeds; None for one seed of a stored run
    learned: bool = True  # False if a seed is at chance: its accuracy is that of a failed run

    @property
    def label(self) -> str:
        """Architecture and sizes."""
        return f"{self.model} {self.sizes}".strip()


def committed_stores() -> list[Path]:
    """The stores among this repository's results."""
    return sorted(marker.parent for marker in COMMITTED.glob("*/store.json"))


def neighbours(task: TaskSpec, stores: Iterable[Path | str]) -> list[Neighbour]:
    """Every model that the stores have on exactly this task, best first.

    Runs of one model that were trained differently, in steps or learning rate, are one model: the better training
    counts.
    """
    rows = []
    for place, records in trained_best(task, stores):
        accuracies, spec = [record.test_accuracy for record in records], records[0].spec.model
        entries = spec.effective_entries or records[0].effective_entries
        learned = all(left_chance(record.model_dump(mode="json")) for record in records)
        ends = over_seeds(accuracies) if len(records) > 1 else None
        name = Path(place).name
        rows.append(Neighbour(spec.kind, sizes_of(spec), mean(accuracies), len(records), entries, name, ends, learned))
    return sorted(rows, key=lambda row: -row.accuracy)


def trained_best(task: TaskSpec, stores: Iterable[Path | str]) -> list[tuple[str, list[RunRecord]]]:
    """The store, and the records of all seeds, of every model on exactly this task in its best training."""
    found: dict[tuple[str, str], dict[str, list[RunRecord]]] = {}
    for place in stores:
        store = RunStore(place)
        for run in _same_task(store, task):
            try:
                record = store.get(run)
            except RecordError:  # of an architecture that is not here
                continue
            if record is None or record.spec.task != task:
                continue
            key = (str(place), record.spec.model.canonical_json())
            found.setdefault(key, {}).setdefault(record.spec.train.canonical_json(), []).append(record)
    return [
        (place, max(by_training.values(), key=lambda some: mean(record.test_accuracy for record in some)))
        for (place, _), by_training in found.items()
    ]


def sizes_of(spec: ModelSpec) -> str:
    """D, N and the other sizes of a model that has them."""
    given = {name: getattr(spec, name, None) for name in _SIZES}
    return " ".join(f"{_SIZES[name]}={value}".lstrip("=") for name, value in given.items() if value not in (None, 1))


def over_seeds(means: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the mean of some seeds, by Student's t."""
    half = float(np.std(means, ddof=1)) / math.sqrt(len(means)) * float(stdtrit(len(means) - 1, 0.975))
    return mean(means) - half, mean(means) + half


def rivals_and_stores(named: Iterable[Path | str]) -> tuple[list[str], list[str]]:
    """Names of architectures and of users' modules; and paths of stores. ValueError for what is neither."""
    known, rivals, stores = ARCHITECTURES.names(), list[str](), list[str]()
    for name in map(str, named):
        if name in known or (":" in name and name.rpartition(":")[2].isidentifier()):
            rivals.append(name)
        elif Path(name).exists():
            stores.append(name)
        else:
            raise ValueError(f"compare_with={name}: there is no such store or architecture. {suggestion(name, known)}")
    return rivals, stores


def rival(name: str, width: int, state_entries: int | None) -> ModelSpec:
    """An architecture in its smallest variant at some width D, its N such that D N is nearest to a state size.

    Where that is not known, N = D/4. A user's module is made with the defaults of its constructor.
    """
    if ":" in name:
        return parse_model({"kind": name})
    N = round(state_entries / width) if state_entries else width // 4
    fields = {"embed_dim": width, "state_dim": min(max(N, 1), width)}
    return find_architecture(name).model_validate(fields | {"kind": name})


def _same_task(store: RunStore, task: TaskSpec) -> list[str]:
    """Runs whose fields are those of the task, as far as the store has such columns; quick, and not the last word."""
    fields = {"task": task.kind, "vocab_size": task.vocab_size, "num_facts": getattr(task, "num_facts", None)}
    rows = find_runs(store, [Condition("status", "=", "done")], columns=None)
    return [
        str(row["run"])
        for row in rows
        if all(value is None or row.get(name) == value for name, value in fields.items())
    ]
