"""A grid of runs: a base run, axes that vary its fields, fields that follow from others, and cells that are left out.

Fields are the words of `specs.in_words`, resolved for the task and the model of each cell, so the fields of any
registered architecture, and any argument of an outsider's module, can be axes.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recallscope.presets import PRESETS, merged
from recallscope.registry import suggestion
from recallscope.runs.arithmetic import calculate, names_in
from recallscope.specs import PARTS, TASKS, ModelSpec, RunSpec, Spec, TaskSpec, TrainSpec, find_architecture, path_of

MOST_CELLS = 1_000_000
KEYS = ("name", "preset", "seed", "skip", "task", "model", "train", "axes", "zip", "derived")

Fields = dict[str, Any]  # of a RunSpec, by part: {"task": {...}, "model": {...}, "train": {...}, "seed": 0}
Kinds = tuple[type[TaskSpec], type[ModelSpec]]


@dataclass(frozen=True)
class Cell:
    """One run of a grid, and the words that tell it from the others."""

    run: str
    spec: RunSpec
    words: Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """Crossed axes are independent; the fields of one zipped group vary together and count as one axis.

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
        """A grid around a complete run. Fields whose value follows from other fields still follow in every cell."""
        lean = {"task": run.task.leaving_out(), "model": run.model.leaving_out()}
        return cls(base=run.model_dump(mode="json") | lean, **parts)

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        zipped = [("zip", group) for group in self.zipped]
        for place, names in (("axes", self.axes), *zipped, ("derived", self.derived)):
            for name in names:
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
                raise ValueError(f"zipped axes vary together and need as many values each, and these have {lengths}.")
        if self.size > MOST_CELLS:
            raise ValueError(
                f"{self.size:,} cells: at most {MOST_CELLS:,} are taken. Shorten an axis, or make several grids."
            )
        for name, place in taken.items():
            self._check_word(name, f"{place}: ")
        for text in (*self.derived.values(), *self.skip):
            for name in names_in(text):
                self._check_word(name, f"{text!r}: ")

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
                if run not in found:
                    fields, kinds = spec.model_dump(mode="json"), _classes(spec.task.kind, spec.model.kind)
                    found[run] = Cell(run, spec, {name: _value(fields, name, kinds) for name in self.varied})
        return list(found.values())

    @cached_property
    def _kinds(self) -> list[Kinds]:
        """The tasks and models of the grid's cells, as far as they are known before any formula is calculated."""
        values = dict(itertools.chain(self.axes.items(), *(group.items() for group in self.zipped)))
        kinds = [values.get(part, [self.base.get(part, {}).get("kind")]) for part in ("task", "model")]
        return [_classes(task, model) for task, model in itertools.product(*kinds)]

    def _check_word(self, name: str, place: str) -> None:
        """Refuse a word that no cell can have."""
        if not any(path_of(name, *kinds) for kinds in self._kinds) and not {"task", "model"} & set(self.derived):
            known = list(dict.fromkeys(word for kinds in self._kinds for word in _words(kinds)))
            raise ValueError(f"{place}{name!r} is no field of a run. {suggestion(name, known)}")

    def _points(self) -> Iterator[dict[str, Any]]:
        """The axes' values, cell by cell."""
        steps = [[{name: value} for value in values] for name, values in self.axes.items()]
        for group in self.zipped:
            names = list(group)
            steps.append([dict(zip(names, values, strict=True)) for values in zip(*group.values(), strict=True)])
        for choice in itertools.product(*steps):
            yield {name: value for part in choice for name, value in part.items()}

    def count(self) -> int:
        """How many cells no rule skips; found without making their specs."""
        return sum(self._kept(point) for point in self._points()) if self.skip else self.size

    def _kept(self, point: dict[str, Any]) -> bool:
        """Calculate the derived fields of a point, and say whether no rule skips it."""
        words = self._base_words(*self._kinds_at(point)) | point
        for name in self._order:
            words[name] = point[name] = _whole(calculate(self.derived[name], words))
        return not any(calculate(rule, words) for rule in self.skip)

    def _spec(self, point: dict[str, Any]) -> RunSpec | None:
        """The run at a point; None if a rule skips it."""
        if not self._kept(point):
            return None
        fields: Fields = {part: dict(self.base.get(part, {})) for part in PARTS}
        fields["seed"] = self.base.get("seed", 0)
        where = ", ".join(f"{name}={value!r}" for name, value in point.items()) or "of the grid"
        kinds = self._kinds_at(point)
        for name, value in point.items():
            path = path_of(name, *kinds)
            if path is None:
                raise ValueError(
                    f"the cell {where} is no run: it has no field {name!r}. {suggestion(name, _words(kinds))}"
                )
            (fields[path[0]] if path[0] else fields)[path[1]] = value
        try:
            return RunSpec.model_validate(fields)
        except ValidationError as error:
            raise ValueError(f"the cell {where} is no run: {_sentence(error)}") from error

    def _kinds_at(self, point: Mapping[str, Any]) -> Kinds:
        kinds = {part: self.base.get(part, {}).get("kind") for part in ("task", "model")} | dict(point)
        return _classes(kinds["task"], kinds["model"])

    @cached_property
    def _order(self) -> list[str]:
        return _in_order(self.derived)

    @cached_property
    def _base_words(self) -> Callable[..., dict[str, Any]]:
        """What formulas may use besides the axes, by the kinds of task and model."""
        return lru_cache(lambda *kinds: self._words_of_base(kinds))

    def _words_of_base(self, kinds: Kinds) -> dict[str, Any]:
        """The base's fields, and the defaults of those it leaves out."""
        words: dict[str, Any] = {"seed": self.base.get("seed", 0)}
        for part, owner in _owners(kinds).items():
            defaults = {name: info.default for name, info in owner.model_fields.items() if not info.is_required()}
            for name, value in (defaults | self.base.get(part, {})).items():
                words.setdefault(part if name == "kind" else name, value)
                words[f"{part}.{name}"] = value
        return words


def _classes(task: Any, model: Any) -> Kinds:
    """The spec classes of two kinds; a run that names none is of the kinds that RunSpec takes."""
    return TASKS.find(str(task or "mqar")), find_architecture(str(model or "linear"))


def _owners(kinds: Kinds) -> dict[str, type[Spec]]:
    """The spec classes of a run's parts; where two have a field of one name, the first has the word."""
    return {"train": TrainSpec, "task": kinds[0], "model": kinds[1]}


def _words(kinds: Kinds) -> list[str]:
    """All words of runs of these kinds."""
    fields = [(part, name) for part, owner in _owners(kinds).items() for name in owner.model_fields if name != "kind"]
    words = [name if path_of(name, *kinds) == (part, name) else f"{part}.{name}" for part, name in fields]
    return ["task", "model", *words, "seed"]


def _value(fields: Fields, word: str, kinds: Kinds) -> Any:
    part, name = path_of(word, *kinds) or ("", "")
    return (fields[part] if part else fields).get(name)


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


def read_grid(path: Path) -> Grid:
    """Parse the grid of a TOML file; ValueError says what is wrong with it and where."""
    try:
        fields = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}. examples/tiny_grid.toml is one.") from error
    try:
        return grid_from_fields(fields, name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def grid_from_fields(fields: dict[str, Any], *, name: str = "grid") -> Grid:
    """The grid that a TOML file's tables describe."""
    unknown = [key for key in fields if key not in KEYS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no part of a grid. {suggestion(unknown[0], KEYS)}")
    base: Fields = {part: dict(_table(fields, part)) for part in PARTS}
    if "preset" in fields:
        base = _with_preset(fields["preset"], base)
    base["seed"] = fields.get("seed", 0)
    groups = fields.get("zip", [])
    groups = [groups] if isinstance(groups, dict) else groups
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("zip is a table, [zip], or several, [[zip]], of lists that vary together.")
    derived = _table(fields, "derived")
    skip = fields.get("skip", [])
    skip = [skip] if isinstance(skip, str) else skip
    if not isinstance(skip, list) or not all(isinstance(rule, str) for rule in skip):
        raise ValueError(f'skip={skip!r}: rules are texts, such as skip = ["state_dim > embed_dim"].')
    if not all(isinstance(text, str) for text in derived.values()):
        raise ValueError(
            'derived fields are texts, such as length = "4 * num_facts". '
            "A fixed value goes to [task], [model] or [train]."
        )
    title = fields.get("name", name)
    if not isinstance(title, str):
        raise ValueError(f"name={title!r}: a text is needed.")
    return Grid(
        base=base,
        axes={key: _values(key, value) for key, value in _table(fields, "axes").items()},
        zipped=[{key: _values(key, value) for key, value in group.items()} for group in groups],
        derived=derived,
        skip=skip,
        name=title,
    )


def _with_preset(name: Any, base: Fields) -> Fields:
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"{name!r} is no published experiment. {suggestion(name, PRESETS)}")
    return {part: merged(getattr(PRESETS[name], part), base[part]) for part in PARTS}


def _table(fields: Fields, name: str) -> Fields:
    table = fields.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name}={table!r}: a table is needed, [{name}] with one field per line.")
    return table


def _values(name: str, given: Any) -> list[Any]:
    """A list as it stands, or {from, to, step} counted out, both ends included."""
    if isinstance(given, list):
        if any(isinstance(value, list | dict) for value in given):
            raise ValueError(f"axis {name!r}: a list of plain values is needed, and one of these is a list or a table.")
        return given
    if isinstance(given, dict) and set(given) <= {"from", "to", "step"} and {"from", "to"} <= set(given):
        first, last, step = given["from"], given["to"], given.get("step", 1)
        if all(isinstance(end, int) and not isinstance(end, bool) for end in (first, last, step)) and step > 0:
            if (last - first) // step >= MOST_CELLS:
                raise ValueError(f"axis {name!r} counts from {first} to {last}: more than {MOST_CELLS:,} values.")
            return list(range(first, last + 1, step))
    raise ValueError(
        f"axis {name!r} is {str(given)[:60]}: a list is needed, such as [16, 32], or {{ from = 2, to = 64, step = 2 }}."
    )
