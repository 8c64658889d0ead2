"""A grid of runs: a base run, axes that vary its fields, fields that follow from others, and cells that are left out.

Fields are those of `specs.flat_fields`, resolved for the task and the model of each cell, so the fields of any
registered architecture, and any argument of an outsider's module, can be axes.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recallscope.faults import in_sentences
from recallscope.presets import PRESETS, merged
from recallscope.registry import suggestion
from recallscope.runs.arithmetic import calculate, names_in
from recallscope.specs import (
    PARTS,
    TASKS,
    ModelSpec,
    RunSpec,
    Spec,
    TaskSpec,
    TrainSpec,
    canonical_json,
    find_architecture,
    has_field,
    path_of,
    run_name,
    unknown_field,
)

MOST_CELLS = 200_000  # planned in some ten seconds
KEYS = ("name", "preset", "seed", "skip", "task", "model", "train", "axes", "zip", "derived")

Fields = dict[str, Any]  # of a RunSpec, by part: {"task": {...}, "model": {...}, "train": {...}, "seed": 0}
Kinds = tuple[type[TaskSpec], type[ModelSpec]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a grid, and the fields that tell it from the others.

    A grid may have many cells: they share the parts they have in common, and the rest is made when asked for.
    """

    run: str
    parts: tuple[Spec, ...]  # task, model, train
    seed: int
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, spec: RunSpec) -> Cell:
        """The cell of a run that is in no grid."""
        return cls(spec.content_hash(), (spec.task, spec.model, spec.train), spec.seed)

    @property
    def spec(self) -> RunSpec:
        """The run."""
        return RunSpec.model_validate(dict(zip(PARTS, self.parts, strict=True)) | {"seed": self.seed})

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that vary in the grid, and their values here."""
        return dict(zip(self.names, self.values, strict=True))


@dataclass(frozen=True)
class _Part:
    """A part of a run, checked once for all cells that have it; its identity as text, and its fields as plain data."""

    spec: Spec
    identity: str
    fields: Fields

    @classmethod
    def of(cls, spec: Spec) -> _Part:
        return cls(spec, canonical_json(spec.identity()), spec.model_dump(mode="json"))


class GridFieldError(ValueError):
    """A field of a table that no run has; `part` and `name` say where it stands."""

    def __init__(self, part: str, name: str, text: str) -> None:
        super().__init__(text)
        self.part, self.name = part, name


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
        self._check_base()
        for name, place in taken.items():
            self._check_name(name, f"{place}: ")
        for text in (*self.derived.values(), *self.skip):
            for name in names_in(text):
                self._check_name(name, f"{text!r}: ")

    @property
    def size(self) -> int:
        """Cells before any is skipped."""
        steps = [len(values) for values in self.axes.values()]
        steps += [len(next(iter(group.values()))) for group in self.zipped if group]
        return math.prod(steps)

    @property
    def varied(self) -> tuple[str, ...]:
        """The fields that tell cells apart."""
        return (*self.axes, *(name for group in self.zipped for name in group), *self.derived)

    def cells(self) -> list[Cell]:
        """Every run of the grid that no rule skips, each once."""
        found: dict[str, Cell] = {}
        known: dict[tuple[str, Kinds, str], _Part] = {}  # by what a point says about a part
        seeds: set[str] = set()  # those checked
        names = self.varied
        for point in self._points():
            kinds = self._kinds_at(point)
            if not self._kept(point, kinds):
                continue
            kinds = self._kinds_at(point) if self.derived else kinds
            paths = self._paths(kinds)
            seed: Any = point.get("seed", self.base.get("seed", 0))
            keys = [(part, kinds, repr([point[name] for name in names if paths[name][0] == part])) for part in PARTS]
            if repr(seed) not in seeds or any(key not in known for key in keys):
                spec = self._spec(point, kinds)
                known |= {key: _Part.of(getattr(spec, key[0])) for key in keys if key not in known}
                seeds.add(repr(seed))
            parts = {key[0]: known[key] for key in keys}
            run = run_name({name: part.identity for name, part in parts.items()}, seed)
            if run not in found:
                owners = (paths[name] for name in names)
                values = tuple(parts[part].fields.get(field) if part else seed for part, field in owners)
                found[run] = Cell(run, tuple(part.spec for part in parts.values()), seed, names, values)
        return list(found.values())

    @cached_property
    def _paths(self) -> Callable[[Kinds], dict[str, tuple[str, str]]]:
        """Where the fields that vary belong, by the kinds of task and model; nowhere is ("?", "")."""
        return lru_cache(lambda kinds: {name: path_of(name, *kinds) or ("?", "") for name in self.varied})

    @cached_property
    def _kinds(self) -> list[Kinds]:
        """The tasks and models of the grid's cells, as far as they are known before any formula is calculated."""
        values = dict(itertools.chain(self.axes.items(), *(group.items() for group in self.zipped)))
        kinds = [values.get(part, [self.base.get(part, {}).get("kind")]) for part in ("task", "model")]
        return [_classes(task, model) for task, model in itertools.product(*kinds)]

    def _check_base(self) -> None:
        """Refuse a field of the base that no cell can have."""
        if {"task", "model"} & set(self.derived):
            return  # which kinds there are is not known yet
        owners = [_owners(kinds) for kinds in self._kinds]
        for part in PARTS:
            for name in self.base.get(part, {}):
                if not any(has_field(owner[part], name) for owner in owners):
                    raise GridFieldError(part, name, f"[{part}] {unknown_field(name, owners[0][part])}")

    def _check_name(self, name: str, place: str) -> None:
        """Refuse a name that no cell can have."""
        if not any(path_of(name, *kinds) for kinds in self._kinds) and not {"task", "model"} & set(self.derived):
            known = list(dict.fromkeys(one for kinds in self._kinds for one in _all_fields(kinds)))
            raise ValueError(f"{place}{name!r} is not a field of a run. {suggestion(name, known)}")

    def _points(self) -> Iterator[dict[str, Any]]:
        """The axes' values, cell by cell."""
        steps = [[{name: value} for value in values] for name, values in self.axes.items()]
        for group in self.zipped:
            names = list(group)
            steps.append([dict(zip(names, values, strict=True)) for values in zip(*group.values(), strict=True)])
        for choice in itertools.product(*steps):
            yield {name: value for part in choice for name, value in part.items()}

    def count(self) -> int:
        """How many cells no rule skips; found without making their specs, over the axes that rules speak of."""
        if not self.skip:
            return self.size
        spoken = {name.rpartition(".")[2] for text in (*self.derived.values(), *self.skip) for name in names_in(text)}
        named = {name: values for name, values in self.axes.items() if name.rpartition(".")[2] in spoken | {*PARTS}}
        few = replace(self, axes=named)
        return self.size // few.size * sum(few._kept(point, few._kinds_at(point)) for point in few._points())

    def among(self, runs: Mapping[str, Fields]) -> set[str]:
        """Which of these runs, by name with the fields of their specs, are cells; found without making the others."""
        varied = set(self.varied)
        fixed = [
            (part, name, value)
            for part in PARTS
            for name, value in self.base.get(part, {}).items()
            if not {name, f"{part}.{name}", part if name == "kind" else name} & varied
        ]
        found = set()
        for run, fields in runs.items():
            if all(fields.get(part, {}).get(name, value) == value for part, name, value in fixed):
                kinds = _classes(fields["task"].get("kind"), fields["model"].get("kind"))
                point = {
                    name: _value(fields, path) for name, path in self._paths(kinds).items() if name not in self.derived
                }
                kept = self._is_point(point) and self._kept(point, kinds)
                if kept and self._spec(point, kinds).content_hash() == run:
                    found.add(run)
        return found

    def _is_point(self, point: Mapping[str, Any]) -> bool:
        """Whether the axes have these values, zipped ones together."""
        return all(point[name] in values for name, values in self.axes.items()) and all(
            tuple(point[name] for name in group) in set(zip(*group.values(), strict=True)) for group in self.zipped
        )

    def _kept(self, point: dict[str, Any], kinds: Kinds) -> bool:
        """Calculate the derived fields of a point, and say whether no rule skips it."""
        if not self.derived and not self.skip:
            return True
        fields = self._base_fields(*kinds) | point
        for name in self._order:
            fields[name] = point[name] = _whole(calculate(self.derived[name], fields))
        return not any(calculate(rule, fields) for rule in self.skip)

    def _spec(self, point: dict[str, Any], kinds: Kinds) -> RunSpec:
        """The run at a point."""
        fields: Fields = {part: dict(self.base.get(part, {})) for part in PARTS}
        fields["seed"] = self.base.get("seed", 0)
        where = ", ".join(f"{name}={value!r}" for name, value in point.items()) or "of the grid"
        for name, value in point.items():
            path = path_of(name, *kinds)
            if path is None:
                raise ValueError(
                    f"the cell {where} is not a run: it has no field {name!r}. {suggestion(name, _all_fields(kinds))}"
                )
            (fields[path[0]] if path[0] else fields)[path[1]] = value
        try:
            return RunSpec.model_validate(fields)
        except ValidationError as error:
            raise ValueError(f"the cell {where} is no run: {in_sentences(error)}") from error

    def _kinds_at(self, point: Mapping[str, Any]) -> Kinds:
        task, model = (point.get(part, self.base.get(part, {}).get("kind")) for part in ("task", "model"))
        return self._classes(task, model)

    @cached_property
    def _classes(self) -> Callable[..., Kinds]:
        return lru_cache(_classes)

    @cached_property
    def _order(self) -> list[str]:
        return _in_order(self.derived)

    @cached_property
    def _base_fields(self) -> Callable[..., dict[str, Any]]:
        """What formulas may use besides the axes, by the kinds of task and model."""
        return lru_cache(lambda *kinds: self._fields_of_base(kinds))

    def _fields_of_base(self, kinds: Kinds) -> dict[str, Any]:
        """The base's fields, and the defaults of those it leaves out."""
        fields: dict[str, Any] = {"seed": self.base.get("seed", 0)}
        for part, owner in _owners(kinds).items():
            defaults = {name: info.default for name, info in owner.model_fields.items() if not info.is_required()}
            for name, value in (defaults | self.base.get(part, {})).items():
                fields.setdefault(part if name == "kind" else name, value)
                fields[f"{part}.{name}"] = value
        return fields


def _classes(task: Any, model: Any) -> Kinds:
    """The spec classes of two kinds; a run that names none is of the kinds that RunSpec takes."""
    return TASKS.find(str(task or "mqar")), find_architecture(str(model or "linear_mamba"))


def _owners(kinds: Kinds) -> dict[str, type[Spec]]:
    """The spec classes of a run's parts; where two have a field of one name, the first has the name."""
    return {"train": TrainSpec, "task": kinds[0], "model": kinds[1]}


def _all_fields(kinds: Kinds) -> list[str]:
    """All fields of runs of these kinds."""
    fields = [(part, name) for part, owner in _owners(kinds).items() for name in owner.model_fields if name != "kind"]
    flat = [name if path_of(name, *kinds) == (part, name) else f"{part}.{name}" for part, name in fields]
    return ["task", "model", *flat, "seed"]


def _value(fields: Fields, path: tuple[str, str]) -> Any:
    """A field of a run, by its part and name; None if there is none."""
    part, name = path
    return (fields.get(part, {}) if part else fields).get(name)


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


def read_grid(path: Path) -> Grid:
    """Parse the grid of a TOML file; ValueError says what is wrong with it and where."""
    try:
        text = path.read_bytes().decode("utf-8")
        fields = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}. examples/tiny_grid.toml is one.") from error
    try:
        return grid_from_fields(fields, name=path.stem)
    except GridFieldError as error:
        raise ValueError(f"{path}{line_of(text, error.part, error.name)}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def line_of(text: str, table: str, name: str) -> str:
    """ ", line 12": where a field of a table stands in a TOML text; empty if it is written in another way."""
    here = ""
    for number, line in enumerate(text.splitlines(), 1):
        here = line.strip().strip("[]").strip() if line.lstrip().startswith("[") else here
        if here == table and line.partition("=")[0].strip() == name:
            return f", line {number}"
    return ""


def grid_from_fields(fields: dict[str, Any], *, name: str = "grid") -> Grid:
    """The grid that a TOML file's tables describe."""
    unknown = [key for key in fields if key not in KEYS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not part of a grid. {suggestion(unknown[0], KEYS)}")
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
        raise ValueError(f"{name!r} is not a published experiment. {suggestion(name, PRESETS)}")
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
