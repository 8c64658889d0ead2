"""Every field of a RunSpec under one word: what grids vary, tables show and filters ask for.

Words are the fields' own names, which are unique but for `kind`: a task's is `task`, a model's is `model`.
"""

from __future__ import annotations

import difflib
from typing import Any

from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.mamba import FullSpec
from recallscope.architectures.mamba2 import Full2Spec
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.specs import RunSpec, TaskSpec, TrainSpec


def _words() -> dict[str, tuple[str, ...]]:
    words: dict[str, tuple[str, ...]] = {"task": ("task", "kind"), "model": ("model", "kind")}
    parts = (
        ("task", (TaskSpec,)),
        ("model", (LinearSpec, MultiHeadSpec, FullSpec, Full2Spec)),
        ("train", (TrainSpec,)),
    )
    for part, specs in parts:
        for spec in specs:
            words |= {name: (part, name) for name in spec.model_fields if name != "kind"}
    return words | {"seed": ("seed",)}


WORDS: dict[str, tuple[str, ...]] = _words()
TASK_WORDS = tuple(word for word, path in WORDS.items() if path[0] == "task")
MODEL_WORDS = tuple(word for word, path in WORDS.items() if path[0] == "model")
TRAIN_WORDS = tuple(word for word, path in WORDS.items() if path[0] == "train")

Value = int | float | str | bool | None


def in_words(spec: RunSpec) -> dict[str, Value]:
    """A run's fields by word; those its model does not have are left out."""
    fields: dict[str, Any] = spec.model_dump(mode="json")
    values: dict[str, Value] = {}
    for word, path in WORDS.items():
        place = fields if len(path) == 1 else fields[path[0]]
        if path[-1] in place:
            values[word] = place[path[-1]]
    return values


def unknown_word(word: object, known: tuple[str, ...] = ()) -> str:
    """The sentence for a word that is none, with the nearest that are."""
    choices = known or tuple(WORDS)
    near = difflib.get_close_matches(str(word), choices, n=3, cutoff=0.5)
    return f"{word!r} is no field of a run. " + (
        f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(choices)}."
    )
