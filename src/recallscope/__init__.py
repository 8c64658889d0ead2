"""recallscope: how much can a recurrent sequence model remember, and why?

The public names, loaded when first used: looking at a law does not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "TaskSpec": "recallscope.specs",
    "LinearSpec": "recallscope.specs",
    "MultiHeadSpec": "recallscope.specs",
    "FullSpec": "recallscope.specs",
    "TrainSpec": "recallscope.specs",
    "RunSpec": "recallscope.specs",
    "RunRecord": "recallscope.records",
    "Problem": "recallscope.theory.problem",
    "LAWS": "recallscope.theory.law",
    "Law": "recallscope.theory.law",
    "law": "recallscope.theory.law",
    "find_law": "recallscope.theory.law",
    "Question": "recallscope.theory.solve",
    "solve": "recallscope.theory.solve",
    "frontier": "recallscope.theory.solve",
    "draw_batch": "recallscope.tasks",
    "zoology_batch": "recallscope.tasks",
    "build_model": "recallscope.models",
    "compressive_circuit": "recallscope.circuits",
    "designed_circuit": "recallscope.circuits",
    "ideal_circuit": "recallscope.circuits",
    "train_run": "recallscope.train.loop",
    "evaluate": "recallscope.train.evaluate",
    "read_weights": "recallscope.train.weights",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 (the keys are strings)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'recallscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
