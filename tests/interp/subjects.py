"""Models to look into, trained for a second or two."""

import torch

from recallscope.architectures.layered import LayeredModel
from recallscope.specs import RunSpec, parse_task
from recallscope.train.loop import train_run

SMALL = parse_task({"kind": "mqar", "vocab_size": 64, "num_facts": 4})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quickly_trained(**model: object) -> LayeredModel:
    """A small model that recalls, a second or two after it was drawn."""
    run = RunSpec.model_validate(
        {
            "task": SMALL.model_dump(),
            "model": {"embed_dim": 32, "state_dim": 16, **model},
            "train": {
                "batch_size": 64,
                "warmup_steps": 50,
                "flat_steps": 350,
                "decay_steps": 400,
                "eval_every": 400,
                "eval_size": 200,
            },
            "seed": 0,
        }
    )
    return train_run(run).model


FULL_TASK = parse_task({"kind": "mqar", "vocab_size": 32, "num_facts": 3})


def quickly_trained_full() -> LayeredModel:
    """A small full Mamba that recalls, with all its nonlinearities."""
    run = RunSpec.model_validate(
        {
            "task": FULL_TASK.model_dump(),
            "model": {"kind": "mamba", "embed_dim": 24, "state_dim": 12},
            "train": {
                "batch_size": 16,
                "warmup_steps": 50,
                "flat_steps": 500,
                "decay_steps": 450,
                "eval_every": 500,
                "eval_size": 200,
                "clip_norm": 0.75,
            },
            "seed": 0,
        }
    )
    return train_run(run).model
