"""Flags that several verbs share: the task, spelled like the fields of TaskSpec."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from recallscope.specs import TaskSpec

# flags that may be left out; help shows what they take, not the None they start from
OptionalInt = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
OptionalFloat = Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="")]
OptionalText = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Unset = arg(help_behavior_hint="")


@dataclass(kw_only=True)
class TaskFlags:
    """The recall task."""

    vocab_size: int
    """V, even: half keys, half values."""
    num_facts: int
    """N_f, key-value pairs in the context."""
    task: Literal["ar", "mqar"] = "mqar"
    """ar: one query; mqar: every fact is asked once."""
    length: OptionalInt = None
    """L, tokens in a sequence; 4 N_f for mqar, 2 N_f + 1 for ar."""

    def spec(self) -> TaskSpec:
        """The checked task."""
        return make_task(kind=self.task, vocab_size=self.vocab_size, num_facts=self.num_facts, length=self.length)


def make_task(**fields: Any) -> TaskSpec:
    """A TaskSpec from flags, leaving out those not given."""
    return TaskSpec.model_validate({name: value for name, value in fields.items() if value is not None})


def print_json(value: Any) -> None:
    """One JSON object on stdout and nothing else; not-a-number becomes null."""
    json.dump(_finite(value), sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
