"""Models to look into, trained for a second or two."""

from recallscope.specs import RunSpec, parse_task
from recallscope.train.loop import train_run

SMALL = parse_task({"kind": "mqar", "vocab_size": 64, "num_facts": 4})
FULL_TASK = parse_task({"kind": "mqar", "vocab_size": 32, "num_facts": 3})
STEPS = {"batch_size": 64, "warmup_steps": 50, "flat_steps": 350, "decay_steps": 400, "eval_every": 400}
FULL_STEPS = {"batch_size": 16, "warmup_steps": 50, "flat_steps": 500, "decay_steps": 450, "eval_every": 500}
# each recalls, a second or two after it was drawn; the last with all nonlinearities of a full Mamba
TRAINED = {
    "trained": (SMALL, {}, STEPS),
    "trained_wide": (SMALL, {"conv_width": 4}, STEPS),
    "trained_heads": (SMALL, {"kind": "multihead", "state_dim": 8, "num_heads": 2, "head_pattern": "MHA"}, STEPS),
    "trained_deep": (SMALL, {"state_dim": 8, "num_layers": 2}, STEPS),
    "trained_full": (FULL_TASK, {"kind": "mamba", "embed_dim": 24, "state_dim": 12}, FULL_STEPS | {"clip_norm": 0.75}),
}


def quickly_trained(name: str):
    task, model, steps = TRAINED[name]
    fields = {"kind": "linear_mamba", "embed_dim": 32, "state_dim": 16} | model
    run = {"task": task.model_dump(), "model": fields, "train": steps | {"eval_size": 200}, "seed": 0}
    return train_run(RunSpec.model_validate(run)).model, task
