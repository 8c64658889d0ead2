"""Will it fit? What the recommended law says about some sizes, around them, and what was measured there.

The answer comes in parts, the number first, so that a page can show each as it is there and drop the rest when the
question changes. No part takes longer than a few cells of the law.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, create_model

from recallscope.predictions import law_or_nan, prediction, sizing
from recallscope.registry import UnknownNameError
from recallscope.runs.table import Condition, find_runs
from recallscope.specs import ARCHITECTURES, find_architecture, parse_model
from recallscope.theory.bounds import information_bits, jl_least_square, least_dim_product, most_recall
from recallscope.theory.law import Law, find_law, recommended
from recallscope.theory.problem import ASKED, PLAIN, SIZES, TEMPLATE_FIELDS, Array, Problem, one_value
from recallscope.theory.solve import SizeQuery
from recallscope.web.store_set import Query, StoreSet

START = {"vocab_size": 512, "num_facts": 16, "embed_dim": 64, "state_dim": 16}  # what the page opens with
MOST_SIZE = 4096  # of a size, unless MOST has another bound
MOST = {"vocab_size": 2**20, "length": 2**20, "num_layers": 64, "num_heads": 64}
SIDE = 32  # cells along an axis of the map
STRIDES = (4, 2, 1)  # the map is filled in ever finer steps
SHOWN = [name for name in ASKED if name not in TEMPLATE_FIELDS]  # laws of correlated keys take too long for a map
CHUNK = 64  # cells that are computed before the question may be dropped
CURVE_POINTS = 17
FRONTIER_POINTS = 24
MOST_SECONDS = 20.0  # for one question
MOST_MAPS, MOST_TARGETS = 32, 16  # that are kept
LINEAR = "linear_mamba"  # the architecture of the laws for trained and designed weights
RANGES = {
    "vocab_size": (16, 65536), "num_facts": (1, 512), "length": (4, 4096), "embed_dim": (4, 1024),
    "state_dim": (1, 512), "num_layers": (1, 8), "num_heads": (1, 16),
}  # fmt: skip


def _query_field(name: str) -> tuple[Any, Any]:
    """Type and default of a field of a recall problem in a query."""
    kind, default = Literal[PLAIN] if name == "task" else one_value(name), START.get(name, ASKED[name].default)
    if name in SIZES:
        kind = Annotated[kind, Field(ge=SIZES[name]["least"], le=MOST.get(name, MOST_SIZE))]
        kind = kind | None if default is None else kind
    return kind, default


class PredictQuery(create_model("SizesQuery", __base__=Query, **{name: _query_field(name) for name in SHOWN})):  # type: ignore
    """The sizes of `predict` and `size`, one of each, within bounds that keep an answer quick."""

    model: str = LINEAR  # an architecture that has a law, or "designed": the hand-constructed linear Mamba
    target: Annotated[float, Field(gt=0, lt=1)] = 0.99

    @property
    def fields(self) -> dict[str, Any]:
        """As the commands take them."""
        if self.model not in recommended():
            raise UnknownNameError(f"model={self.model!r}: there is a law for {', '.join(recommended())}.")
        return {
            **self.model_dump(exclude={"target"}),
            "model": self.kind,
            "designed": self.model == "designed",
            "law": (),
        }

    @property
    def kind(self) -> str:
        """The architecture whose runs and whose state belong to the model that is asked about."""
        return self.model if self.model in ARCHITECTURES.names() else LINEAR


def fit_parts(question: PredictQuery, store_set: StoreSet) -> Iterator[dict[str, Any]]:
    """The parts of the answer, most wanted first; empty ones let the caller look whether anybody still listens."""
    ends = time.monotonic() + MOST_SECONDS
    fields = question.fields
    answer = prediction(fields | {"embed_dim": (question.embed_dim,), "state_dim": (question.state_dim,)}, others=False)
    law = find_law(answer["headline"]["law"])
    yield {"headline": answer["headline"], "task": answer["task"], "summary": law.summary, "reference": law.reference}
    yield {"bounds": bounds(question)}
    yield {"measured": measured(question, store_set)}
    chart = _map_of(question, law)
    least = _frontier(question, chart)
    for work in (chart.fill(STRIDES[0]), _curves(question, law), chart.fill(*STRIDES[1:]), least):
        for part in work:
            yield part
            if time.monotonic() > ends:
                yield {"stopped": f"Stopped after {MOST_SECONDS:g} seconds: what is missing takes longer."}
                return


def bounds(question: PredictQuery) -> dict[str, Any]:
    """What any state must hold, what the circuit needs in the mean, and what is enough for every context."""
    N_f, V, delta = question.num_facts, question.vocab_size, 1 - question.target
    bits = float(information_bits(N_f, V, delta, values="distinct"))
    fields = {"kind": question.kind, **{name: getattr(question, name) for name in ("embed_dim", "state_dim")}}
    more = {"num_heads": question.num_heads, "head_pattern": question.head_pattern, "num_layers": question.num_layers}
    known = find_architecture(question.kind).model_fields
    given = {name: value for name, value in more.items() if value is not None and name in known}
    entries = parse_model(fields | given).state_entries
    problem = Problem.from_fields(question.fields)
    return {
        "state_entries": entries,
        "bits_needed": bits,
        "bits_per_entry": bits / entries if entries else None,
        "recall_at_one_bit": float(most_recall(entries, N_f, V)) if entries else None,
        "dim_product": float(least_dim_product(N_f, V, delta)),
        "jl_dim": float(jl_least_square(problem)[1]),
    }


def measured(question: PredictQuery, store_set: StoreSet) -> list[dict[str, Any]]:
    """Accuracy of runs of the same task and architecture, over D and N: mean of all, and one to look at."""
    wanted: dict[str, Any] = {
        "status": "done",
        "task": question.task,
        "vocab_size": question.vocab_size,
        "num_facts": question.num_facts,
        "model": question.kind,
        "num_layers": question.num_layers,
    }
    wanted |= {"length": question.length or 4 * question.num_facts} if question.task == "mqar" else {}
    wanted |= {name: getattr(question, name) for name in ("num_heads", "head_pattern") if question.head_pattern}
    conditions = [Condition(name, "=", str(value)) for name, value in wanted.items()]
    columns = ("run", "embed_dim", "state_dim", "test_accuracy")
    cells: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for number, store in enumerate(store_set.stores):
        try:
            rows = find_runs(store, conditions, columns=columns)
        except ValueError:  # no run of this store has such a field
            continue
        for row in rows:
            cells.setdefault((number, row["embed_dim"], row["state_dim"]), []).append(row)
    return [
        {"store": number, "embed_dim": D, "state_dim": N, "runs": len(rows), "run": rows[0]["run"],
         "accuracy": sum(row["test_accuracy"] for row in rows) / len(rows)}
        for (number, D, N), rows in sorted(cells.items())
    ]  # fmt: skip


@dataclass(eq=False)
class LawMap:
    """A law over D and N, filled bit by bit; what is there already is not computed again."""

    law: Law
    problem: Problem  # without D and N
    embed_dims: NDArray[np.int64]
    state_dims: NDArray[np.int64]
    p: Array = field(init=False)
    done: NDArray[np.bool_] = field(init=False)
    lock: Lock = field(default_factory=Lock)
    least: dict[float, dict[str, Any]] = field(default_factory=dict)  # minimal pairs by target

    def __post_init__(self) -> None:
        self.p = np.full((len(self.embed_dims), len(self.state_dims)), np.nan)
        self.done = np.zeros(self.p.shape, bool)

    def fill(self, *strides: int) -> Iterator[dict[str, Any]]:
        """The map in steps of each stride, one after the other; empty parts in between."""
        for stride in strides:
            rows, columns = (np.arange(stride - 1, size, stride) for size in self.p.shape)
            todo = list(product(rows.tolist(), columns.tolist()))
            for start in range(0, len(todo), CHUNK):
                with self.lock:
                    self._compute([place for place in todo[start : start + CHUNK] if not self.done[place]])
                yield {}
            D, N = self.embed_dims[rows], self.state_dims[columns]
            beyond = self.law.extrapolated(self.problem, embed_dim=D[:, None], state_dim=N)
            p = self.p[np.ix_(rows, columns)]
            grid = {"p": [[_digits(x) for x in row] for row in p.tolist()], "extrapolated": beyond.astype(int).tolist()}
            yield {"map": {"embed_dim": D.tolist(), "state_dim": N.tolist(), "finest": stride == 1, **grid}}

    def _compute(self, places: list[tuple[int, int]]) -> None:
        if places:
            i, j = (np.array(index) for index in zip(*places, strict=True))
            cells = self.problem.replace(embed_dim=self.embed_dims[i], state_dim=self.state_dims[j])
            self.p[i, j] = law_or_nan(self.law, cells)
            self.done[i, j] = True


_MAPS: OrderedDict[tuple[Any, ...], LawMap] = OrderedDict()
_MAPS_LOCK = Lock()


def _map_of(question: PredictQuery, law: Law) -> LawMap:
    """The map around a question. Questions that differ in D, N and target share one, as long as it holds both."""
    top_D, top_N = (_end(size, least) for size, least in ((question.embed_dim, 128), (question.state_dim, 64)))
    fields = question.model_dump(exclude={"embed_dim", "state_dim", "target"})
    key = (*fields.items(), top_D, top_N)
    with _MAPS_LOCK:
        if key not in _MAPS:
            unit = question.num_heads if question.head_pattern else 1  # heads split D evenly
            D, N = (np.unique(np.arange(1, SIDE + 1) * top // SIDE) for top in (top_D, top_N))
            D = np.unique(np.maximum(D // unit, 1) * unit)
            _MAPS[key] = LawMap(law, Problem.from_fields(fields), D, N)
            while len(_MAPS) > MOST_MAPS:
                _MAPS.popitem(last=False)
        _MAPS.move_to_end(key)
        return _MAPS[key]


def _end(size: int, least: int) -> int:
    """`least`, doubled until the size is well inside."""
    while size > 0.8 * least:
        least *= 2
    return least


def _curves(question: PredictQuery, law: Law) -> Iterator[dict[str, Any]]:
    """The law against each variable, all others kept."""
    problem = Problem.from_fields(question.fields)
    for name, (low, high) in RANGES.items():
        here = getattr(question, name)
        here = int(problem.L) if here is None else here
        values = np.unique(np.round(np.geomspace(low, max(high, here), CURVE_POINTS)).astype(int))
        values = np.unique(np.append(_allowed(question, name, values), here))
        if (name == "length" and question.task == "ar") or (name == "num_heads" and not question.head_pattern):
            continue
        p = law_or_nan(law, problem.replace(**{name: values}))
        yield {"curve": {"name": name, "at": here, "x": values.tolist(), "p": [_digits(x) for x in p.tolist()]}}


def _allowed(question: PredictQuery, name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those values of a size that fit the others of the question."""
    V, N_f, L, D, M = (getattr(question, size) for size in ("vocab_size", "num_facts", "length", "embed_dim",
                                                            "num_heads"))  # fmt: skip
    match name:
        case "vocab_size":
            return np.unique(values[values > 2 * N_f + 1] // 2 * 2)
        case "num_facts":
            return values[values <= min(V // 2 - 1, (L or 4 * V) // 4)]
        case "length":
            return values[values >= 4 * N_f]
        case "embed_dim" if question.head_pattern:
            return np.unique(np.maximum(values // M, 1) * M)
        case "num_heads":
            return values[D % values == 0]
    return values


class _Late(Exception):  # noqa: N818 (no error: the time is over)
    """Raised inside a law to end a search."""


def _frontier(question: PredictQuery, chart: LawMap) -> Iterator[dict[str, Any]]:
    """All minimal pairs, as `size` lists them, thinned; a search that takes too long is given up."""
    law, ends = chart.law, time.thread_time() + MOST_SECONDS / 2  # of work: a busy machine takes longer

    def timed(*arguments: Any, **options: Any) -> Array:
        if time.thread_time() > ends:
            raise _Late
        return law.function(*arguments, **options)

    if question.target not in chart.least:
        known = question.model_dump(exclude={"model", "embed_dim", "state_dim"})
        asked = SizeQuery(**known, law=replace(law, function=timed))
        try:
            found = sizing(asked, "frontier", model=question.kind, max_points=FRONTIER_POINTS)
        except _Late:
            yield {"stopped": "The frontier takes longer than usual here: recallscope size finds it."}
            return
        if len(chart.least) < MOST_TARGETS:
            chart.least[question.target] = found
        else:
            chart.least = {question.target: found}
    yield {"frontier": chart.least[question.target]}


def _digits(p: float) -> float:
    """As many digits as a picture shows, of not-a-number none."""
    return round(p, 6)
