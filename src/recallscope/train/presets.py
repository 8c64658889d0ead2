"""The published experiments as starting points: task, model and training of each, any field of which may be changed.

Paper: Tab. 9 (`tab:hyperparams`), App. I.1 (`app:mqar_ablation_impl_details`), App. I.2
    (`app-subsec:repeated-keys-queries`), App. A.2
(`app-subsec:large-vocab`); where the text is silent, the settings released with it.
"""

from dataclasses import dataclass, field
from typing import Any

from recallscope.specs import RunSpec


@dataclass(frozen=True)
class Preset:
    """Fields of a RunSpec, by part, and how many seeds the paper spends on a cell."""

    says: str
    task: dict[str, Any]
    model: dict[str, Any]
    train: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1


_REGIME_III = {"kind": "mqar", "vocab_size": 512, "num_facts": 16}
_LADDER: dict[str, Any] = {
    "kind": "full",
    "embed_dim": 64,
    "state_dim": 16,
    "norm": "none",
    "skip": False,
    "delta_rank": "full",
    "conv_width": 4,
}
_LADDER_TRAIN = {
    "flat_steps": 1400,
    "decay_steps": 2500,
    "weight_decay": 0.1,
    "clip_norm": 1.5,
    "stop_accuracy": 0.999,
    "eval_every": 250,
}
_LADDER_TASK = {"kind": "mqar", "vocab_size": 128, "num_facts": 16}

LADDER: dict[str, dict[str, Any]] = {
    "base": _LADDER,
    "a": _LADDER | {"transition": "identity"},
    "b": _LADDER | {"transition": "identity", "gate": False},
    "c": _LADDER | {"transition": "identity", "gate": False, "activation": "none"},
    "d": _LADDER | {"transition": "identity", "gate": False, "activation": "none", "conv_width": 2},
    "e": _LADDER | {"transition": "identity", "gate": False, "activation": "none", "conv_width": 1},
}

PRESETS: dict[str, Preset] = {
    "dn-linear": Preset(
        "D-N grids of the linear model (Fig. 1 c), regime (iii)",
        _REGIME_III,
        {"kind": "linear", "embed_dim": 32, "state_dim": 16},
        {},
        seeds=3,
    ),
    "dn-full": Preset(
        "D-N grids of full Mamba (Fig. 1 d), regime (iii)",
        _REGIME_III,
        {"kind": "full", "embed_dim": 32, "state_dim": 16},
        {"flat_steps": 5900, "decay_steps": 14000, "clip_norm": 0.75, "stop_accuracy": 0.999, "eval_every": 1000},
        seeds=5,
    ),
    "layers": Preset(
        "N-Lambda grids with residuals (Fig. 5), MQAR",
        {"kind": "mqar", "vocab_size": 512, "num_facts": 80},
        {"kind": "linear", "embed_dim": 64, "state_dim": 6, "num_layers": 2, "residual": True},
        {"flat_steps": 1400, "decay_steps": 2500, "clip_norm": 2.5, "eval_every": 1000},
        seeds=3,
    ),
    "layers-ar": Preset(
        "N-Lambda grids with residuals (Fig. 10), AR",
        {"kind": "ar", "vocab_size": 512, "num_facts": 80},
        {"kind": "linear", "embed_dim": 64, "state_dim": 6, "num_layers": 2, "residual": True},
        {
            "batch_size": 750,
            "warmup_steps": 250,
            "flat_steps": 2250,
            "decay_steps": 7500,
            "clip_norm": 2.5,
            "eval_every": 1000,
        },
        seeds=3,
    ),
    "heads": Preset(
        "N-M grids of the head patterns (Fig. 6)",
        _REGIME_III,
        {"kind": "multihead", "embed_dim": 60, "state_dim": 4, "num_heads": 3, "head_pattern": "MVA"},
        {"flat_steps": 1400, "decay_steps": 2500, "clip_norm": 5.0, "eval_every": 1000},
        seeds=3,
    ),
    "large-vocab": Preset(
        "long contexts, large vocabularies (Fig. 11)",
        {"kind": "mqar", "vocab_size": 10_000, "num_facts": 250},
        {"kind": "linear", "embed_dim": 150, "state_dim": 75},
        {
            "batch_size": 5,
            "accumulate": 4,
            "learning_rate": 0.003,
            "warmup_steps": 500,
            "flat_steps": 3500,
            "decay_steps": 8000,
            "clip_norm": 2.5,
            "stop_accuracy": 0.999,
            "eval_every": 1000,
        },
    ),
    "repeated-keys": Preset(
        "keys written N_k times (Fig. 18)",
        {"kind": "repeated", "vocab_size": 512, "num_facts": 10, "length": 128, "key_repeats": 2},
        {"kind": "linear", "embed_dim": 100, "state_dim": 30, "num_layers": 2, "residual": True},
        {
            "batch_size": 32,
            "learning_rate": 0.003,
            "weight_decay": 0.1,
            "warmup_steps": 500,
            "flat_steps": 2000,
            "decay_steps": 5000,
            "clip_norm": 1.0,
            "eval_every": 250,
        },
        seeds=3,
    ),
    "mechanism": Preset(
        "the models whose states are decoded (Fig. 3, Fig. 13-16)",
        {"kind": "mqar", "vocab_size": 256, "num_facts": 16},
        {"kind": "linear", "embed_dim": 64, "state_dim": 32},
    ),
    "minimality": Preset(
        "ablation ladder, rung Base (Tab. 8); minimality-a .. minimality-e are the others",
        _LADDER_TASK,
        LADDER["base"],
        _LADDER_TRAIN,
        seeds=5,
    ),
    **{
        f"minimality-{rung}": Preset(
            f"ablation ladder, rung {rung.upper()} (Tab. 8)", _LADDER_TASK, model, _LADDER_TRAIN, seeds=5
        )
        for rung, model in LADDER.items()
        if rung != "base"
    },
}


def preset_run(
    name: str,
    *,
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    seed: int = 0,
) -> RunSpec:
    """The preset's run with some fields changed; a task whose facts change gets the length that follows from them."""
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} is not one of {', '.join(PRESETS)}.")
    preset = PRESETS[name]
    return RunSpec.model_validate(
        {
            "task": merged(preset.task, task or {}),
            "model": merged(preset.model, model or {}),
            "train": preset.train | (train or {}),
            "seed": seed,
        }
    )


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Changes on top of a base; another `kind` of model brings nothing of the base but its dimensions."""
    if "kind" in changes and "kind" in base and changes["kind"] != base["kind"] and "embed_dim" in base:
        base = {name: base[name] for name in ("embed_dim", "state_dim")}
    return base | changes
