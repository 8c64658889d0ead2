"""Every experiment of the paper as grids of runs, in three scales.

`quick` takes seconds to two minutes: the same questions on tasks small enough for a demonstration. `small` is for two
cores and an evening: the paper's tasks and recipes on coarser axes with fewer seeds; where a batch, a schedule or a
size had to be cut as well, the part says so. `paper` has the axes, seeds and steps of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recallscope.runs.grid import Grid, grid_from_fields
from recallscope.specs import TaskSpec

Scale = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Fields = dict[str, Any]

# Tab. 1's letters, by the row of Fig. 7 (`app-fig:scaling-laws-2d-dims`)
REGIMES: dict[str, Fields] = {
    "i": {"vocab_size": 1024, "num_facts": 16},
    "ii": {"vocab_size": 512, "num_facts": 32},
    "iii": {"vocab_size": 512, "num_facts": 16},
}
PATTERNS = ("MQA", "MKA", "MVA", "MHA")
_THREE = {"embed_dim": [32, 32, 64], "state_dim": [8, 16, 8]}  # cells of the full model in the transition
_WIDE = ["state_dim > embed_dim"]  # the D-N grids leave these cells empty


@dataclass(frozen=True)
class Part:
    """One grid of an experiment; `cut` says what else than axes and seeds is less than the paper's."""

    label: str
    grid: Grid
    keep_weights: bool = False
    cut: str = ""


@dataclass(frozen=True)
class DesignedPart:
    """Circuits written down and measured, not trained: a task and the D and N they are written for."""

    label: str
    task: TaskSpec
    embed_dims: tuple[int, ...]
    state_dims: tuple[int, ...]
    draws: int
    num_sequences: int


@dataclass(frozen=True)
class PaperExperiment:
    """What the paper shows, the claims it stands for, and the runs that show it at each scale."""

    name: str
    says: str
    claims: tuple[str, ...]  # keys of paper.py
    parts: Mapping[Scale, tuple[Part, ...]]
    designed: Mapping[Scale, tuple[DesignedPart, ...]]

    def runs(self, scale: Scale) -> int:
        """How many trainings that scale asks for."""
        return len({cell.run for part in self.parts[scale] for cell in part.grid.cells()})


def find_experiment(name: str) -> PaperExperiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"{name!r} is no experiment of the paper. There are: {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def part_label(model: str, task: str, regime: str) -> str:
    """How parts of the D-N grids are named, such as `linear MQAR (iii)`."""
    return f"{model} {task.upper()} ({regime})"


EXAMPLE = "the authors' small example, linear"
FULL_EXAMPLE = part_label("full", "mqar", "iii")
LARGE_BATCH = "linear AR (iii), batch 512"
VOCABULARIES, REPEATS, LADDER, INSIDE = "large vocabularies", "repeated keys", "ladder", "mechanism"


def _part(label: str, preset: str, *, keep_weights: bool = False, cut: str = "", **fields: Any) -> Part:
    grid = grid_from_fields({"name": label, "preset": preset, **fields})
    return Part(label, grid, keep_weights, cut)


def _seeds(count: int) -> list[int]:
    return list(range(count))


def _dn(
    model: str,
    task: str,
    regime: str,
    axes: Fields,
    *,
    zipped: Fields | None = None,
    cut: str = "",
    train: Fields | None = None,
) -> Part:
    return _part(
        part_label(model, task, regime),
        "dn-full" if model == "full" else "dn-linear",
        task={"kind": task, **REGIMES[regime]},
        train=train or {},
        axes=axes,
        zip=[zipped] if zipped else [],
        skip=_WIDE,
        cut=cut,
    )


def _example() -> Part:
    return _part(
        EXAMPLE,
        "dn-linear",
        train={"batch_size": 32, "eval_size": 1000},
        axes={"embed_dim": [16, 32, 48, 64], "state_dim": [8, 16, 24, 32], "seed": [0]},
        skip=_WIDE,
        cut="batch 32 and test sets of 1000, as published with the paper",
    )


def _linear_grids(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        return (_example(),)
    axes = {
        "small": {"embed_dim": [8, 16, 32, 48, 64], "state_dim": [2, 4, 8, 16, 32], "seed": [0]},
        "paper": {"embed_dim": list(range(2, 65, 2)), "state_dim": list(range(2, 33)), "seed": _seeds(3)},
    }[scale]
    grids = tuple(_dn("linear", task, regime, axes) for task in ("mqar", "ar") for regime in REGIMES)
    if scale == "paper":
        return grids
    ours = _part(  # one question a sequence: does AR lack recall, or training?
        LARGE_BATCH,
        "dn-linear",
        task={"kind": "ar", **REGIMES["iii"]},
        train={"batch_size": 512},
        axes=axes,
        skip=_WIDE,
        cut="our own part, with batch 512",
    )
    return (_example(), *grids, ours)


def _full_grids(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        return ()
    if scale == "paper":
        axes = {"embed_dim": list(range(2, 65, 2)), "state_dim": list(range(2, 33)), "seed": _seeds(5)}
        return tuple(_dn("full", "mqar", regime, axes) for regime in REGIMES)
    less = {"batch_size": 32, "eval_size": 1000}
    example = {"embed_dim": [16, 32, 48, 64], "state_dim": [8, 16, 24, 32], "seed": _seeds(2)}
    cut = "batch 32 and test sets of 1000, as in the authors' small example"
    return (
        _dn("full", "mqar", "iii", example, train=less, cut=cut),
        *(
            _dn("full", "mqar", regime, {"seed": _seeds(2)}, zipped=_THREE, train=less, cut=cut)
            for regime in ("i", "ii")
        ),
    )


def _designed(scale: Scale) -> tuple[DesignedPart, ...]:
    D, N, draws, sequences = {
        "quick": ((16, 32, 48, 64), (8, 16, 24, 32), 4, 125),
        "small": ((8, 16, 32, 48, 64), (2, 4, 8, 16, 32), 40, 1600),
        "paper": (tuple(range(2, 65, 2)), tuple(range(2, 33)), 20, 500),
    }[scale]
    regimes = {"quick": ("iii",)}.get(scale, tuple(REGIMES))
    return tuple(
        DesignedPart(
            part_label("designed", "mqar", regime), TaskSpec(kind="mqar", **REGIMES[regime]), D, N, draws, sequences
        )
        for regime in regimes
    )


def _layers(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        tiny = {"vocab_size": 128, "num_facts": 8}
        train = {"batch_size": 32, "flat_steps": 400, "decay_steps": 500, "eval_size": 1000, "eval_every": 500}
        axes = {"state_dim": [2, 4], "num_layers": [1, 2], "seed": [0]}
        return (
            _part("layers MQAR", "layers", task=tiny, model={"embed_dim": 16}, train=train, axes=axes, cut="tiny task"),
        )
    if scale == "paper":
        axes = {"state_dim": list(range(2, 17)), "num_layers": [1, 2, 3, 4, 5], "seed": _seeds(3)}
        return (_part("layers MQAR", "layers", axes=axes), _part("layers AR", "layers-ar", axes=axes))
    return (
        _part(
            "layers MQAR",
            "layers",
            train={"batch_size": 32, "eval_size": 1000},
            axes={"seed": [0]},
            zip={"state_dim": [12, 6, 4, 3, 6, 3, 3, 12], "num_layers": [1, 2, 3, 4, 1, 1, 2, 2]},
            cut="batch 32, test sets of 1000",
        ),
        _part(
            "layers AR",
            "layers-ar",
            task={"num_facts": 20},
            model={"embed_dim": 32},
            train={"batch_size": 256, "warmup_steps": 100, "flat_steps": 1400, "decay_steps": 2500},
            axes={"seed": [0]},
            zip={"state_dim": [8, 4, 2, 4, 2, 2, 8, 6], "num_layers": [1, 2, 4, 1, 1, 2, 2, 2]},
            cut="N_f = 20, D = 32, batch 256, 4000 steps",
        ),
    )


def _heads(scale: Scale) -> tuple[Part, ...]:
    fields: dict[Scale, Fields] = {
        "quick": {
            "task": {"vocab_size": 128, "num_facts": 8},
            "model": {"embed_dim": 12},
            "train": {"batch_size": 32, "flat_steps": 400, "decay_steps": 500, "eval_size": 1000, "eval_every": 500},
            "axes": {"state_dim": [2, 4], "num_heads": [1, 3], "seed": [0]},
            "cut": "tiny task",
        },
        "small": {
            "train": {"batch_size": 32, "eval_size": 1000},
            "axes": {"state_dim": [2, 4, 8], "num_heads": [1, 2, 3, 6], "seed": [0]},
            "cut": "batch 32, test sets of 1000",
        },
        "paper": {"axes": {"state_dim": list(range(2, 11)), "num_heads": list(range(1, 7)), "seed": _seeds(3)}},
    }
    chosen = fields[scale]
    model = chosen.pop("model", {})
    return tuple(_part(name, "heads", model={**model, "head_pattern": name}, **chosen) for name in PATTERNS)


def _large_vocab(scale: Scale) -> tuple[Part, ...]:
    if scale == "paper":
        V = [2 * round(500 * 50 ** (i / 9)) for i in range(10)]
        axes: Fields = {"vocab_size": V, "num_facts": [250, 500, 750, 1000], "seed": [0]}
        full = ["num_facts >= vocab_size / 2"]  # more facts than keys
        return (_part(VOCABULARIES, "large-vocab", axes=axes, skip=full),)
    if scale == "small":
        return (
            _part(
                VOCABULARIES,
                "large-vocab",
                model={"embed_dim": 32, "state_dim": 16},
                train={
                    "batch_size": 20,
                    "accumulate": 1,
                    "warmup_steps": 100,
                    "flat_steps": 1400,
                    "decay_steps": 2500,
                    "eval_size": 1000,
                },
                axes={"vocab_size": [512, 1024, 2048, 4096], "num_facts": [16, 32, 64], "seed": [0]},
                cut="scaled down to D = 32, N = 16, L = 64 .. 256, V = 512 .. 4096, 4000 steps",
            ),
        )
    return (
        _part(
            VOCABULARIES,
            "large-vocab",
            model={"embed_dim": 16, "state_dim": 8},
            train={
                "batch_size": 20, "accumulate": 1, "learning_rate": 0.01, "warmup_steps": 100, "flat_steps": 400,
                "decay_steps": 500, "eval_size": 1000, "eval_every": 500,
            },
            axes={"vocab_size": [128, 256, 512], "num_facts": [8, 16], "seed": [0]},
            cut="tiny",
        ),
    )  # fmt: skip


def _repeated_keys(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        return (
            _part(
                REPEATS,
                "repeated-keys",
                task={"vocab_size": 64, "num_facts": 4, "length": 32},
                model={"embed_dim": 24},
                train={
                    "learning_rate": 0.01, "warmup_steps": 100, "flat_steps": 900, "decay_steps": 1000,
                    "eval_size": 1000, "eval_every": 500,
                },
                axes={"num_layers": [1, 2], "key_repeats": [1, 2, 3], "seed": [0]},
                derived={"state_dim": "12 / num_layers"},
                cut="tiny task",
            ),
        )  # fmt: skip
    if scale == "small":
        return (
            _part(
                REPEATS,
                "repeated-keys",
                model={"embed_dim": 64},
                train={"eval_size": 1000},
                axes={"seed": [0]},
                zip={"num_layers": [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2], "key_repeats": [1, 1, 1, 2, 2, 2, 3, 3, 3, 5, 5]},
                derived={"state_dim": "36 / num_layers"},
                cut="D = 64, Lambda N = 36, test sets of 1000",
            ),
        )
    axes = {"num_layers": [1, 2, 3, 4, 5], "key_repeats": [1, 2, 3, 4, 5], "seed": _seeds(3)}
    return (_part(REPEATS, "repeated-keys", axes=axes, derived={"state_dim": "60 / num_layers"}),)


def _minimality(scale: Scale) -> tuple[Part, ...]:
    rungs: dict[str, list[Any]] = {
        "transition": ["selective", *["identity"] * 5],
        "gate": [True, True, *[False] * 4],
        "activation": ["silu", "silu", "silu", "none", "none", "none"],
        "conv_width": [4, 4, 4, 4, 2, 1],
    }
    if scale == "quick":
        last = {name: values[-3:] for name, values in rungs.items()}
        less = {"flat_steps": 400, "decay_steps": 500, "batch_size": 64, "eval_size": 1000}
        return (_part(LADDER, "minimality", axes={"seed": [0]}, zip=last, train=less, cut="rungs C, D, E; 1000 steps"),)
    return (_part(LADDER, "minimality", axes={"seed": _seeds(5)}, zip=rungs),)


def _mechanism(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        return (
            _part(
                INSIDE,
                "mechanism",
                task={"vocab_size": 64, "num_facts": 8},
                model={"embed_dim": 32, "state_dim": 16},
                train={"batch_size": 32, "eval_size": 1000},
                axes={"seed": [0]},
                keep_weights=True,
                cut="one small model",
            ),
        )
    pairs = {"embed_dim": [64, 64, 48], "state_dim": [32, 24, 32]}
    return (_part(INSIDE, "mechanism", axes={"seed": [0]}, zip=pairs, keep_weights=True),)


def _seed_grids(scale: Scale) -> tuple[Part, ...]:
    if scale == "quick":
        return (
            _part(
                part_label("full", "mqar", "iii"),
                "dn-full",
                task={"vocab_size": 64, "num_facts": 4},
                train={
                    "batch_size": 32, "flat_steps": 900, "decay_steps": 1000, "eval_size": 1000, "eval_every": 500,
                },
                axes={"embed_dim": [8, 16], "state_dim": [4, 8], "seed": _seeds(3)},
                cut="tiny task",
            ),
        )  # fmt: skip
    return _full_grids(scale)[:1] if scale == "small" else _full_grids(scale)[-1:]


def _experiment(name: str, says: str, claims: tuple[str, ...], parts: Any, designed: Any = lambda scale: ()) -> None:
    EXPERIMENTS[name] = PaperExperiment(
        name, says, claims, {scale: parts(scale) for scale in SCALES}, {scale: designed(scale) for scale in SCALES}
    )


EXPERIMENTS: dict[str, PaperExperiment] = {}
_experiment(
    "dn-grid",
    "accuracy over D and N: designed, predicted, trained linear, trained full; three regimes",
    ("sec-5.1", "fig-1", "fig-7"),
    lambda scale: _linear_grids(scale) + _full_grids(scale),
    _designed,
)
_experiment(
    "curves",
    "the same runs against 1/sigma: do they fall on one curve, and with which a and b?",
    ("fig-4", "fig-8", "fig-9"),
    lambda scale: _linear_grids(scale) + _full_grids(scale),
)
_experiment("layers", "N-Lambda grids: recall depends on Lambda N", ("sec-5.3", "fig-5", "fig-10"), _layers)
_experiment("heads", "N-M grids of the four head patterns", ("sec-5.4", "fig-6"), _heads)
_experiment("large-vocab", "V-L grid, and slopes against m_V", ("fig-11", "fig-12"), _large_vocab)
_experiment("repeated-keys", "keys written N_k times: guessing, and what depth does", ("fig-18",), _repeated_keys)
_experiment("minimality", "the ablation ladder Base, A .. E", ("tab-8", "fig-17"), _minimality)
_experiment(
    "mechanism",
    "inside three trained models: tables, attention, convolution, operators",
    ("fig-3", "fig-13", "fig-14", "fig-15", "fig-16"),
    _mechanism,
)
_experiment(
    "seeds", "one grid of the full model seed by seed, and how many seeds converge", ("fig-19", "fig-20"), _seed_grids
)
