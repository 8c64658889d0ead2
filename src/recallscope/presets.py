"""Presets: published runs with a name, as starting points for `train --preset` and for grids; any field may be changed.

A preset is defined by the experiment it belongs to (`recallscope.studies`). They are imported when a preset
is first asked for, so importing this module is cheap.

Paper: Tab. 9 (`tab:hyperparams`); where the text is silent, the settings released with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from recallscope.registry import suggestion
from recallscope.specs import RunSpec, find_architecture

Fields = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """Fields of a RunSpec, by part, and how many seeds the paper spends on a cell."""

    title: str
    task: Fields
    model: Fields
    train: Fields = field(default_factory=dict)
    seeds: int = 1

    def fields(
        self, *, task: Fields | None = None, model: Fields | None = None, train: Fields | None = None, seed: int = 0
    ) -> Fields:
        """The fields of a whole run, with some changed."""
        return {
            "task": merged(self.task, task or {}),
            "model": merged(self.model, model or {}),
            "train": self.train | (train or {}),
            "seed": seed,
        }


class _Presets(Mapping[str, Preset]):
    """The presets of all experiments by name, in the order of the experiments."""

    def _all(self) -> dict[str, Preset]:
        experiments = import_module("recallscope.studies.experiment").experiments()
        return {name: preset for experiment in experiments for name, preset in experiment.presets.items()}

    def __getitem__(self, name: str) -> Preset:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


PRESETS: Mapping[str, Preset] = _Presets()


def find_preset(name: str) -> Preset:
    """The preset of that name, or a ValueError that offers the nearest ones."""
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} is not one of the published experiments. {suggestion(name, PRESETS)}")
    return PRESETS[name]


def preset_run(
    name: str, *, task: Fields | None = None, model: Fields | None = None, train: Fields | None = None, seed: int = 0
) -> RunSpec:
    """The preset's run with some fields changed; a task whose facts change gets the length that follows from them."""
    return RunSpec.model_validate(find_preset(name).fields(task=task, model=model, train=train, seed=seed))


def merged(base: Fields, changes: Fields) -> Fields:
    """Changes on top of a base; of a model of another `kind` only the dimensions that it has, too, are kept."""
    if "kind" in changes and "kind" in base and changes["kind"] != base["kind"] and "embed_dim" in base:
        known = find_architecture(changes["kind"]).model_fields
        base = {name: base[name] for name in ("embed_dim", "state_dim") if name in known}
    return base | changes
