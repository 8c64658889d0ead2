"""Grids as TOML files: what may stand in one, and what is said to one who wrote something else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from recallscope.presets import PRESETS, merged
from recallscope.store.words import unknown_word
from recallscope.sweeps.grids import MOST_CELLS, Grid

KEYS = ("name", "preset", "seed", "skip", "task", "model", "train", "axes", "zip", "derived")


def read_grid(path: Path) -> Grid:
    """The grid of a TOML file, or a ValueError that says what is wrong with it and where."""
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
        raise ValueError(f"{unknown_word(unknown[0], KEYS).replace('field of a run', 'part of a grid')}")
    base: dict[str, Any] = {part: dict(_table(fields, part)) for part in ("task", "model", "train")}
    if "preset" in fields:
        base = _with_preset(fields["preset"], base)
    base["seed"] = fields.get("seed", 0)
    groups = fields.get("zip", [])
    groups = [groups] if isinstance(groups, dict) else groups
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("zip is a table, [zip], or several, [[zip]], of lists that walk together.")
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


def _with_preset(name: Any, base: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(unknown_word(name, tuple(PRESETS)).replace("field of a run", "published experiment"))
    preset = PRESETS[name]
    return {part: merged(getattr(preset, part), base[part]) for part in ("task", "model", "train")}


def _table(fields: dict[str, Any], name: str) -> dict[str, Any]:
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
