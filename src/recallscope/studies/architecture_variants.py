"""The architectures that are compared, as they are trained, and what the runs of a store say of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, log2, nan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import stdtrit

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.seed_noise import Ends, seed_noise
from recallscope.measuring.measurement import Information, linear_by_state, linear_curve
from recallscope.presets import Fields, Preset
from recallscope.records import RunRecord
from recallscope.specs import TaskSpec, find_architecture
from recallscope.studies.experiment import Part, part
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.bounds import most_recall
from recallscope.theory.law import DIMENSIONS, find_law
from recallscope.theory.problem import Array

Rule = Literal["adds", "fades", "replaces", "solves", "keeps all"]
Cell = tuple[int, int, int, int]  # V, N_f, D, N


@dataclass(frozen=True, eq=False)
class Variant:
    """An architecture as it is trained here; `rate` is the best of `RATES` in the search."""

    label: str
    rule: Rule  # what happens to the state as a fact comes in
    update: str  # the same as a formula
    model: Fields
    rate: float = 0.01
    published: bool = False

    @property
    def fields(self) -> Fields:
        """Of the model's spec, those of the published layer included."""
        layer = getattr(find_architecture(self.model["kind"]), "PUBLISHED", {}) if self.published else {}
        return {**layer, **self.model}


_UNGATED = {"norm": "none", "residual": False, "skip": False, "conv_width": 2}
NEW = (  # of 2025 and 2026, with predictions that were written down first: the study new-architectures runs them
    Variant("Gated DeltaNet-2", "replaces", "diag(α) S, then S + k (w∘v - Sᵀ (b∘k))ᵀ", {"kind": "gated_delta_net2"}),
    Variant("Comba", "replaces", "α S, then S + β k (v - s Sᵀ k)ᵀ", {"kind": "comba"}),
    Variant("DeltaProduct", "replaces", "DeltaNet's update, twice per token", {"kind": "delta_product"}),
    Variant(
        "Preconditioned", "replaces", "α S, then S + β (m∘k) (v - Sᵀ k)ᵀ, m(Σ k²)", {"kind": "preconditioned_delta_net"}
    ),
    Variant("Mamba-3", "fades", "α S + β k' v'ᵀ + γ k vᵀ, k and q turning", {"kind": "mamba3"}),
    Variant("routed memories", "adds", "S_j + β k vᵀ for the one j of 4 that k is sent to", {"kind": "routed_memory"}),
    Variant("window attention", "keeps all", "the last 32 keys and values", {"kind": "window_attention", "window": 32}),
)
MINIMAL = (
    Variant("linear Mamba", "adds", "S + B xᵀ, values of 2 D channels", {"kind": "linear_mamba"}),
    Variant("linear attention", "adds", "S + k vᵀ", {"kind": "linear_attention"}),
    Variant(
        "Based",
        "adds",
        "S + f(k) vᵀ, f the Taylor map of exp, normalised",
        {"kind": "linear_attention", "feature_map": "taylor", "normaliser": True},
    ),
    Variant("RetNet", "fades", "γ S + k vᵀ, γ = 31/32", {"kind": "retnet"}),
    Variant("GLA", "fades", "diag(α) S + k vᵀ", {"kind": "gla"}),
    Variant("mLSTM", "fades", "f S + i k vᵀ, normalised", {"kind": "mlstm"}),
    Variant("DeltaNet", "replaces", "S + β k (v - Sᵀ k)ᵀ", {"kind": "delta_net"}),
    Variant("Gated DeltaNet", "replaces", "α S, then S + β k (v - Sᵀ k)ᵀ", {"kind": "gated_delta_net"}, 0.003),
    Variant("KDA", "replaces", "diag(α) S, then S + β k (v - Sᵀ k)ᵀ", {"kind": "kda"}),
    Variant("RWKV-7", "replaces", "diag(w) S - (a∘κ) (κᵀ S) + k vᵀ", {"kind": "rwkv7"}),
    Variant("MesaNet", "solves", "S + k vᵀ, H + k kᵀ; read Sᵀ (H + λ)⁻¹ q", {"kind": "mesa_net"}),
    Variant("attention", "keeps all", "every key and value is kept", {"kind": "attention"}),
    Variant(
        "Mamba without gate", "fades", "exp(Δ A) S + Δ B xᵀ, Δ per channel", {"kind": "mamba", "gate": False} | _UNGATED
    ),
    Variant(
        "Mamba-2 without norm", "fades", "exp(Δ a) S + Δ B xᵀ, one Δ", {"kind": "mamba2", "num_heads": 1} | _UNGATED
    ),
    *NEW,
)
_BY_LABEL = {variant.label: variant for variant in MINIMAL}
PUBLISHED = tuple(
    Variant(f"{label} (published)", _BY_LABEL[like].rule, "as above, two published layers",
         {"num_layers": 2, **model}, rate, published=True)
    for label, like, model, rate in (
        ("DeltaNet", "DeltaNet", {"kind": "delta_net"}, 0.01),
        ("Gated DeltaNet", "Gated DeltaNet", {"kind": "gated_delta_net"}, 0.003),
        ("GLA", "GLA", {"kind": "gla"}, 0.01),
        ("RWKV-7", "RWKV-7", {"kind": "rwkv7"}, 0.01),
        ("Mamba-2", "Mamba-2 without norm", {"kind": "mamba2", "num_heads": 1, "conv_width": 4}, 0.01),
        ("attention", "attention", {"kind": "attention", "rotary": False}, 0.01),
    )
)  # fmt: skip
VARIANTS = (*MINIMAL, *PUBLISHED)
RATES, SEARCH_SEED = (0.01, 0.003, 0.001), 100  # of the search; no measurement has its seed
RULES: tuple[Rule, ...] = ("adds", "fades", "replaces", "solves", "keeps all")
QUESTIONS = ("recall", "repeated", "by age")  # the measurements; "rates" is the search


COMPARISON = Preset(
    "the architecture comparison: minimal architectures at equal D and N",
    {"kind": "mqar", "vocab_size": 512, "num_facts": 16},
    {"kind": "delta_net", "embed_dim": 32, "state_dim": 8},
    {"batch_size": 32, "eval_size": 1600, "eval_every": 500},
    seeds=2,
)
CELLS: tuple[Cell, ...] = (  # in the transition of the linear law
    (512, 16, 32, 8), (512, 16, 32, 16), (512, 16, 16, 16), (512, 16, 64, 4), (512, 8, 16, 8), (256, 16, 24, 12),
)  # fmt: skip
QUARTER = {"warmup_steps": 25, "flat_steps": 100, "decay_steps": 375, "eval_every": 500}
LONGER = {"warmup_steps": 100, "flat_steps": 700, "decay_steps": 2200}  # for deep models
REPEATED = {"kind": "repeated", "vocab_size": 512, "num_facts": 8, "key_repeats": 2}
WANTED = {"delta": 0.012}  # mean error of a law that holds; of others .01
WITH_LAWS = tuple(variant for variant in MINIMAL if variant.label in ("mLSTM", "DeltaNet", "Gated DeltaNet", "MesaNet"))
TINY: tuple[Cell, ...] = ((64, 4, 16, 4),)  # for a demonstration


def label_of(what: str, variant: Variant) -> str:
    """How parts are named: what is asked, and of which variant."""
    return f"{what}, {variant.label}"


def compared_parts(variant: Variant, seeds: Sequence[int]) -> Iterator[Part]:
    """The search of its learning rate, the cells, and of minimal variants keys that are written twice."""
    model, rate = variant.fields, {"learning_rate": variant.rate}
    steps = LONGER if variant.published else {}  # deep layers do not start to recall in a quarter of the steps
    yield part(label_of("rates", variant), COMPARISON, model=model, train=steps or QUARTER,
               axes={"learning_rate": RATES, "seed": [SEARCH_SEED]}, turn=-1)  # fmt: skip
    cells = CELLS[:1] if variant.published else CELLS
    zipped = dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True))
    yield part(
        label_of("recall", variant), COMPARISON, model=model, train=steps | rate, axes={"seed": seeds}, zipped=zipped
    )
    if not variant.published:
        wide = model | {"embed_dim": 64, "state_dim": 16}
        yield part(
            label_of("repeated", variant), COMPARISON, task=REPEATED, model=wide, train=rate, axes={"seed": seeds}
        )
        square = model | {"embed_dim": 16, "state_dim": 16}  # one of the cells, its weights kept
        yield part(label_of("by age", variant), COMPARISON, model=square, train=rate, axes={"seed": seeds[:1]},
                   keep_weights=True)  # fmt: skip


# What was measured


@dataclass(frozen=True)
class Measured:
    """All seeds of a variant in one cell."""

    variant: Variant
    task: TaskSpec
    seeds: tuple[float, ...]
    interval: Ends  # 95 %, of the mean; nan if nothing tells the noise of seeds
    state_entries: int | None  # effective
    parameters: int | None
    seconds: float  # of one training

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.seeds))

    @property
    def bits_per_entry(self) -> float:
        """Bits about the values that the recall proves were held, per effective state entry; nan if unknown."""
        held = Information.of(self.mean, self.task, self.state_entries)
        return nan if held is None or held.per_entry is None else held.per_entry


def measured(runs: PaperRuns, what: str, variant: Variant) -> dict[Cell, Measured]:
    """Every cell that has runs. Noise of seeds is pooled over a variant's cells, or over all published variants."""
    peers = PUBLISHED if variant.published else (variant,)
    noise = seed_noise(runs.rows(*(label_of(what, one) for one in peers for what in ("recall", "repeated"))))
    cells: dict[Cell, list[RunRecord]] = {}
    for record in runs.records(label_of(what, variant)):
        V, N_f, D, N = (record.fields[name] for name in DIMENSIONS)
        cells.setdefault((V, N_f, D, N), []).append(record)  # type: ignore[arg-type]
    found = {}
    for cell, records in cells.items():
        seeds = tuple(record.test_accuracy for record in records)
        mean = float(np.mean(seeds))
        deviation = float(noise.deviations(np.array([mean]), np.array([len(seeds)]))[0])
        half = deviation * float(stdtrit(noise.degrees, 0.975)) if noise.degrees else nan
        ends = (max(mean - half, 0.0), min(mean + half, 1.0)) if noise.degrees else (nan, nan)
        first, seconds = records[0], float(np.mean([record.seconds for record in records]))
        task = first.spec.task
        found[cell] = Measured(
            variant, task, seeds, ends, first.spec.model.effective_entries, first.parameters, seconds
        )
    return found


def linear_by_parameters(vocab_size: int) -> Callable[[Array, Array], Array]:
    """D of a linear Mamba with so many parameters, 4 D² + (V + 4 + 4 N) D, from them and N."""

    def embed_dim(parameters: Array, state_dim: Array) -> Array:
        half = (vocab_size + 4 + 4 * state_dim) / 8
        return np.asarray(np.sqrt(half**2 + parameters / 4) - half)

    return embed_dim


Size = Literal["state_entries", "parameters"]


@cache
def linear_at(task: TaskSpec, size: Size, value: float) -> float:
    """Recall of the best linear Mamba of that size, by its law, which takes a tenth of a second."""
    embed_dim = {"state_entries": linear_by_state, "parameters": linear_by_parameters(task.vocab_size)}[size]
    return float(linear_curve(task, np.array([value]), embed_dim)[0])


CURVES = "best linear Mamba (law)", "information bound, 1 bit per entry"


def size_curves(cell: Cell, members: Sequence[Measured], size: Size) -> dict[str, tuple[Array, Array]]:
    """What the variants of one cell are drawn over: the law of the linear Mamba, and what the bound allows, by size.

    Sizes are powers of the root of 2 from below the smallest variant to above the largest, the same for all cells of a
    task.
    """
    known = [float(getattr(one, size)) for one in members]
    sizes = 2.0 ** (np.arange(floor(2 * log2(min(known))) - 1, ceil(2 * log2(max(known))) + 2) / 2)
    (V, N_f, _, _), task = cell, members[0].task
    curves = {CURVES[0]: (sizes, np.array([linear_at(task, size, float(x)) for x in sizes]))}
    if size == "state_entries":
        curves[CURVES[1]] = (sizes, most_recall(sizes, N_f, V))
    return curves


def gains(cells: Iterable[Measured], size: Size) -> list[float]:
    """Recall less that of the best linear Mamba of the same size, in every cell whose size is known."""
    known = [one for one in cells if getattr(one, size)]
    return [one.mean - linear_at(one.task, size, float(getattr(one, size))) for one in known]


def ranking(runs: PaperRuns, size: Size, variants: Sequence[Variant] = MINIMAL) -> list[tuple[str, float]]:
    """Variants by their mean gain over the cells, best first: those that have as many of them as any."""
    by_variant = {variant.label: measured(runs, "recall", variant) for variant in variants}
    most = max(map(len, by_variant.values()))
    means = {
        label: float(np.mean(found))
        for label, cells in by_variant.items()
        if len(cells) == most and (found := gains(cells.values(), size))
    }
    return sorted(means.items(), key=lambda item: -item[1])


def losses(runs: PaperRuns, variant: Variant) -> dict[float, float]:
    """The search: loss at the end of a training run by learning rate."""
    found = runs.losses(label_of("rates", variant))
    return {record.spec.train.learning_rate: loss for record, loss in found}


def flagged(runs: PaperRuns, variants: Sequence[Variant] = VARIANTS) -> dict[str, str]:
    """Measurements (not those of the search) whose accuracy should not be taken at face value: name, and why."""
    records = {
        record.run: (variant, record)
        for variant in variants
        for what in QUESTIONS
        for record in runs.records(label_of(what, variant))
        if record.flag
    }
    return {run: _flag(variant, record) for run, (variant, record) in records.items()}


def _flag(variant: Variant, record: RunRecord) -> str:
    fields = record.fields
    where = f"{fields['task']}, (V, N_f, D, N) = ({', '.join(str(fields[name]) for name in DIMENSIONS)})"
    return f"{variant.label} at {where}, seed {record.spec.seed}: {record.flag} ({record.test_accuracy:.3f})"


# Recall by the age of the fact


AGES = "ages"  # what `PaperRuns.inside` keeps


def ages(runs: PaperRuns, variants: Sequence[Variant] = MINIMAL) -> dict[str, list[float]]:
    """Recall by the fact's place in the context, oldest first, of every variant of which it was measured."""
    kept = runs.inside(AGES)
    return {
        variant.label: kept[record.run]["recall_by_place"]
        for variant in variants
        for record in runs.records(label_of("by age", variant))
        if record.run in kept
    }


def age_gap(oldest_first: Sequence[float]) -> float:
    """Recall of the newest quarter of the facts less that of the oldest."""
    quarter = max(len(oldest_first) // 4, 1)
    return float(np.mean(oldest_first[-quarter:]) - np.mean(oldest_first[:quarter]))


def named(values: Mapping[str, Any] | Iterable[tuple[str, Any]], digits: int = 3, sign: str = "") -> str:
    """Labels with their numbers, as text."""
    return ", ".join(f"{label} {value:{sign}.{digits}f}" for label, value in dict(values).items()) or "none"


# Laws


def law_errors(
    runs: PaperRuns, what: str = "recall", variants: Sequence[Variant] = MINIMAL
) -> dict[str, dict[Variant, NDArray[np.float64]]]:
    """Measured minus predicted, by law and minimal variant, in every cell that has runs of `what`; mean of seeds."""
    found: dict[str, dict[Variant, NDArray[np.float64]]] = {}
    for variant in variants:
        fields = variant.fields | {"embed_dim": 1, "state_dim": 1}
        own = find_architecture(variant.model["kind"]).model_validate(fields).own_law
        cells = measured(runs, what, variant)
        if own and cells:
            flat = DataFrame(list(cells), columns=DIMENSIONS).assign(task="mqar")
            seen = np.array([one.mean for one in cells.values()])
            found.setdefault(own, {})[variant] = seen - law_on_cells(find_law(own), flat)
    return found
