"""A grid: a base run, axes that vary its fields, fields that follow from others, and cells that are left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.mamba import FullSpec
from recallscope.architectures.mamba2 import Full2Spec
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.specs import RunSpec, Spec, TaskSpec, TrainSpec
from recallscope.store.words import WORDS, in_words, unknown_word
from recallscope.sweeps.arithmetic import calculate, names_in

MOST_CELLS = 1_000_000

Fields = dict[str, Any]  # of a RunSpec, by part: {"task": {...}, "model": {...}, "train": {...}, "seed": 0}


@dataclass(frozen=True)
class Cell:
    """One run of a grid, and the words that tell it from the others."""

    run: str
    spec: RunSpec
    words: Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """Crossed axes are independent; the fields of one zipped group walk together and count as one axis.

    `Grid.around(run, axes={"embed_dim": [16, 32], "state_dim": [4, 8]}, skip=["state_dim > embed_dim"])`
    """

    base: Fields
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    zipped: Sequence[Mapping[str, Sequence[Any]]] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    skip: Sequence[str] = ()
    name: str = "grid"

    @classmethod
    def around(cls, run: RunSpec, **parts: Any) -> Grid:
        """A grid around a complete run; fields that stand where they follow from others keep following."""
        fields = run.model_dump(mode="json")
        leaner = {"task": "length", "model": "residual"}
        for part, name in leaner.items():
            without = {key: value for key, value in fields[part].items() if key != name}
            if name in fields[part] and RunSpec.model_validate(fields | {part: without}) == run:
                fields[part] = without
        return cls(base=fields, **parts)

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        for place, names in (
            ("axes", self.axes),
            *(("zip", group) for group in self.zipped),
            ("derived", self.derived),
        ):
            for name in names:
                if name not in WORDS:
                    raise ValueError(f"{place}: {unknown_word(name)}")
                if name in taken:
                    raise ValueError(
                        f"{name!r} is in {taken[name]} and in {place}: a field has one source. Remove one of them."
                    )
                taken[name] = place
        for name, values in itertools.chain(self.axes.items(), *(group.items() for group in self.zipped)):
            if not values:
                raise ValueError(f"axis {name!r} has no values, so the grid has no cells. Give it one or leave it out.")
        for group in self.zipped:
            lengths = {name: len(values) for name, values in group.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"zipped axes walk together and need as many values each, and these have {lengths}.")
        for text in (*self.derived.values(), *self.skip):
            for name in names_in(text):
                if name not in WORDS:
                    raise ValueError(f"{text!r}: {unknown_word(name)}")
        if self.size > MOST_CELLS:
            raise ValueError(
                f"{self.size:,} cells: at most {MOST_CELLS:,} are taken. Shorten an axis, or make several grids."
            )

    @property
    def size(self) -> int:
        """Cells before any is skipped."""
        steps = [len(values) for values in self.axes.values()]
        steps += [len(next(iter(group.values()))) for group in self.zipped if group]
        return math.prod(steps)

    @property
    def varied(self) -> tuple[str, ...]:
        """The words that tell cells apart."""
        return (*self.axes, *(name for group in self.zipped for name in group), *self.derived)

    def cells(self) -> list[Cell]:
        """Every run of the grid that no rule skips, each once."""
        found: dict[str, Cell] = {}
        for point in self._points():
            spec = self._spec(point)
            if spec is not None:
                run = spec.content_hash()
                words = in_words(spec)
                found.setdefault(run, Cell(run, spec, {name: words.get(name) for name in self.varied}))
        return list(found.values())

    def _points(self) -> Iterator[dict[str, Any]]:
        """The axes' values, cell by cell."""
        steps = [[{name: value} for value in values] for name, values in self.axes.items()]
        for group in self.zipped:
            names = list(group)
            steps.append([dict(zip(names, values, strict=True)) for values in zip(*group.values(), strict=True)])
        for choice in itertools.product(*steps):
            yield {name: value for part in choice for name, value in part.items()}

    def _spec(self, point: dict[str, Any]) -> RunSpec | None:
        """The run at a point; None if a rule skips it."""
        words = self._base_words(point.get("model")) | point
        for name in _in_order(self.derived):
            words[name] = point[name] = _whole(calculate(self.derived[name], words))
        if any(calculate(rule, words) for rule in self.skip):
            return None
        fields: Fields = {part: dict(self.base.get(part, {})) for part in ("task", "model", "train")}
        fields["seed"] = self.base.get("seed", 0)
        for name, value in point.items():
            path = WORDS[name]
            (fields if len(path) == 1 else fields[path[0]])[path[-1]] = value
        try:
            return RunSpec.model_validate(fields)
        except ValidationError as error:
            where = ", ".join(f"{name}={value!r}" for name, value in point.items())
            raise ValueError(f"the cell {where or 'of the grid'} is no run: {_sentence(error)}") from error

    def _base_words(self, kind: Any = None) -> dict[str, Any]:
        """What formulas may use besides the axes: the base's fields, and the defaults of those it leaves out."""
        words: dict[str, Any] = {"seed": self.base.get("seed", 0)}
        kinds: dict[str, type[Spec]] = {
            "linear": LinearSpec,
            "multihead": MultiHeadSpec,
            "full": FullSpec,
            "full2": Full2Spec,
        }
        model = kinds.get(str(kind or self.base.get("model", {}).get("kind")), LinearSpec)
        parts: tuple[tuple[str, type[Spec]], ...] = (("task", TaskSpec), ("model", model), ("train", TrainSpec))
        for part, spec in parts:
            defaults = {name: info.default for name, info in spec.model_fields.items() if not info.is_required()}
            fields = defaults | self.base.get(part, {})
            words |= {name: fields[path[-1]] for name, path in WORDS.items() if path[0] == part and path[-1] in fields}
        return words


def _in_order(derived: Mapping[str, str]) -> list[str]:
    """Derived fields, each after those it uses; a circle is refused."""
    order: list[str] = []
    left = dict(derived)
    while left:
        ready = [name for name, text in left.items() if not set(names_in(text)) & set(left)]
        if not ready:
            raise ValueError(
                f"derived fields follow from one another in a circle: {', '.join(left)}. Give one of them a value."
            )
        order += ready
        for name in ready:
            del left[name]
    return order


def _whole(value: Any) -> Any:
    """60 / 2 is 30, a whole number, as fields of a spec want it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    place = ".".join(str(part) for part in first["loc"])
    came = "" if first["type"] == "missing" else f"={str(first['input'])[:60]}"
    return f"{place}{came}: {first['msg'].lower()}."
