"""recallscope: how much can a recurrent sequence model remember, and why?

The public names, loaded when first used: looking at a law does not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0"

_HOMES = {
    "ARSpec": "recallscope.tasks.associative_recall",
    "CapacityQuery": "recallscope.measuring.capacity",
    "Mamba2Spec": "recallscope.architectures.mamba",
    "MambaSpec": "recallscope.architectures.mamba",
    "HashMemory": "recallscope.interp.memory",
    "LAWS": "recallscope.theory.law",
    "Law": "recallscope.theory.law",
    "LinearMambaSpec": "recallscope.architectures.mamba",
    "MQARDataset": "recallscope.tasks.dataset",
    "MQARSpec": "recallscope.tasks.associative_recall",
    "ModelSpec": "recallscope.specs",
    "MultiHeadSpec": "recallscope.architectures.mamba",
    "Problem": "recallscope.theory.problem",
    "SizeQuery": "recallscope.theory.solve",
    "RecallDataset": "recallscope.tasks.dataset",
    "RecallModel": "recallscope.architectures.model",
    "RecallStream": "recallscope.tasks.dataset",
    "RepeatedSpec": "recallscope.tasks.associative_recall",
    "RunRecord": "recallscope.records",
    "RunSpec": "recallscope.specs",
    "RunStore": "recallscope.runs.store",
    "TaskSpec": "recallscope.specs",
    "TrainSpec": "recallscope.specs",
    "architecture": "recallscope.specs",
    "build_model": "recallscope.architectures.model",
    "compressive_circuit": "recallscope.circuits.linear",
    "designed_circuit": "recallscope.circuits.linear",
    "sample_batch": "recallscope.tasks.drawing",
    "evaluate": "recallscope.train.evaluate",
    "capacity": "recallscope.measuring.measure",
    "find_capacity": "recallscope.measuring.capacity",
    "find_law": "recallscope.theory.law",
    "from_pretrained": "recallscope.architectures.pretrained",
    "frontier": "recallscope.theory.solve",
    "ideal_circuit": "recallscope.circuits.linear",
    "load_runs": "recallscope.analysis.table",
    "measure": "recallscope.measuring.measure",
    "user_module": "recallscope.architectures.user_module",
    "probe": "recallscope.measuring.checkpoints.probe",
    "read_weights": "recallscope.train.weights",
    "register_law": "recallscope.theory.law",
    "solve": "recallscope.theory.solve",
    "store_trainer": "recallscope.measuring.training_runs",
    "task": "recallscope.specs",
    "train_run": "recallscope.train.loop",
    "zoology_batch": "recallscope.tasks.zoology",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 (the keys are strings)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
