"""Every score of one model in one report, ready for JSON: what `recallscope inspect` writes.

The report is a list of sections. Each is one function that names the capabilities it needs; a model that lacks one gets
the sections it can have, and a sentence for each that is left out.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from recallscope.architectures.capabilities import (
    HasAttention,
    HasKeys,
    HasMasks,
    HasOperators,
    HasRates,
    HasState,
    Operators,
    StepsState,
    WritesFacts,
    one_hot_tokens,
)
from recallscope.architectures.model import RecallModel
from recallscope.interp.attention import (
    AttentionScores,
    Dominance,
    attribution_hit_rate,
    copy_dominance,
    joint_attention,
    score_attention,
    shift_dominance,
)
from recallscope.interp.banks import BankScores, measure_banks
from recallscope.interp.decoders import Behaviour, ProbeScores, ShiftScores, measure_behaviour, probe_facts, shift_test
from recallscope.interp.hash_table import FillCurve, TableScores, fill_curve, hash_tables, score_tables
from recallscope.interp.interventions import (
    AblationScores,
    OverwriteScores,
    ProjectionScores,
    ablate_blocks,
    overwrite_facts,
    project_on_facts,
)
from recallscope.interp.operators import (
    block_masses,
    circuit_closeness,
    effective_operators,
    mean_diagonals,
    nearest_circuit,
    operators_by_layer,
    read_through,
    strength,
)
from recallscope.interp.rates import RateScores, measure_rates
from recallscope.interp.selectivity import (
    LawScores,
    MeasuredCodes,
    Selectivity,
    VarianceCheck,
    check_variances,
    law_predictions,
    measure_codes,
    measure_selectivity,
)
from recallscope.interp.states import share, starts_with_facts
from recallscope.interp.stored_states import HeadBits, measure_heads
from recallscope.ops.linear_scan import at_positions
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import answered
from recallscope.tasks.drawing import sample_batch

TABLE_ENTRIES = 2**23  # of all decoded tables alive at a time
ATTENTION_SEQUENCES = 32  # a model may have a map per channel
FILL_SEQUENCES = 30


@dataclass(frozen=True)
class PartScores:
    """One head of one layer by itself."""

    layer: int
    head: int
    g_vv_blocks: list[float]
    g_kq_blocks: list[list[float]]
    strength: float
    closeness: float


@dataclass(frozen=True)
class OperatorScores:
    """The operators of all heads as one: where they live, how strong, and how near to the circuit's."""

    g_vv_block_mass: float
    g_kq_block_mass: float
    closeness: float
    strength: float
    mean_diagonals: dict[str, float]
    parts: list[PartScores]


@dataclass(frozen=True)
class CircuitScores:
    """Answers of the circuit that is nearest to the model."""

    accuracy: float
    agreement: float
    """share of queries that it answers as the model does"""


class LeftOut(NamedTuple):
    """A section that a model has not."""

    section: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """All scores of a model; a section that was left out is None, and `left_out` says why."""

    behaviour: Behaviour
    operators: OperatorScores | None = None
    nearest_circuit: CircuitScores | None = None
    table: TableScores | None = None
    fill: FillCurve | None = None
    attention: AttentionScores | None = None
    attribution_hit_rate: float | None = None
    copy: Dominance | None = None
    shift: Dominance | None = None
    shift_test: ShiftScores | None = None
    codes: MeasuredCodes | None = None
    key_variance: VarianceCheck | None = None
    value_variance: VarianceCheck | None = None
    selectivity: Selectivity | None = None
    laws: LawScores | None = None
    overwrite: OverwriteScores | None = None
    projection: ProjectionScores | None = None
    ablation: AblationScores | None = None
    probe: ProbeScores | None = None
    rates: RateScores | None = None
    state_bits: list[HeadBits] | None = None
    banks: BankScores | None = None
    left_out: tuple[LeftOut, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the scores of the operators, and three others that sum a model up, stand at the top level."""
        sections = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        ops = _plain(sections.pop("operators")) or {field.name: None for field in dataclasses.fields(OperatorScores)}
        summary = {
            "decoded_hit_rate": self.table and self.table.hit_rate,
            "auc": self.table and self.table.auc,
            "overwrite_success": self.overwrite and self.overwrite.success,
        }
        left_out = [item._asdict() for item in sections.pop("left_out")]
        return ops | _plain(summary) | _plain(sections) | {"left_out": left_out}


def _plain(score: Any) -> Any:
    """Dataclasses as tables, their properties included; JSON knows neither infinity nor not-a-number: None."""
    if dataclasses.is_dataclass(score):
        names = [field.name for field in dataclasses.fields(score)]
        names += [name for name, member in vars(type(score)).items() if isinstance(member, property)]
        return {name: _plain(getattr(score, name)) for name in names}
    if isinstance(score, float):
        return score if math.isfinite(score) else None
    if isinstance(score, dict):
        return {name: _plain(item) for name, item in score.items()}
    if isinstance(score, list | tuple):
        return [_plain(item) for item in score]
    return score


class _NotShownError(ValueError):
    """Why a section says nothing about this model."""


class _Subject:
    """A model, sequences to ask it about, and what several sections need of it."""

    def __init__(self, model: RecallModel, task: TaskSpec, generator: torch.Generator, num_sequences: int) -> None:
        self.model, self.generator = model, generator
        self.task: Any = task  # of facts and queries, once `check` has passed
        self.batch = sample_batch(task, num_sequences, generator)
        fresh = num_sequences
        if model.capability(HasOperators) is not None:  # tables of V x V entries are decoded from these
            fresh = max(2, min(num_sequences, TABLE_ENTRIES // task.vocab_size**2))
        self.fresh = sample_batch(task, fresh, generator)

    @cached_property
    def ops(self) -> Operators:
        """All heads as one."""
        return effective_operators(self.model)

    @cached_property
    def codes(self) -> MeasuredCodes:
        """Variances of the codes."""
        return measure_codes(self.ops)

    @cached_property
    def dims(self) -> dict[str, int]:
        """D, and N of all heads together."""
        stream = self.model.require(HasOperators).operators("stream")
        return {"embed_dim": stream[0][0].size, "state_dim": self.ops.Pi_k_in.shape[0]}

    def check(self, needs: tuple[type, ...]) -> None:
        """Raise the reason for which a section with these needs is left out, if there is one."""
        for protocol in needs:
            why = self.model.why_not(protocol)
            if why is not None:
                raise _NotShownError(why)
        if not (hasattr(self.task, "num_facts") and starts_with_facts(self.batch)):
            raise _NotShownError("the sequences of this task do not begin with their facts, key and value by turns")
        if HasOperators in needs and strength(self.ops) == 0:
            raise _NotShownError(
                f"a stored fact moves no logit (conv_width={self.ops.conv_width}): with windows of one token, or with "
                f"weights 0, there is no table to look into. Use conv_width >= 2 and a trained model or a circuit"
            )

    @cached_property
    def variances(self) -> tuple[VarianceCheck, VarianceCheck]:
        """Of keys and of values."""
        D, N = self.dims["embed_dim"], self.dims["state_dim"]
        return check_variances(self.codes, self.task, embed_dim=D, state_dim=min(N, D))


def inspect_model(
    model: RecallModel, task: TaskSpec, generator: torch.Generator, *, num_sequences: int = 200
) -> Inspection:
    """All scores the model can have, on fresh sequences of the task.   Paper: Sec. 3.2 (`subsec:mech-interp`)."""
    if num_sequences < 2:
        raise ValueError(f"num_sequences={num_sequences}: scores are averages. Use num_sequences >= 2.")
    found: dict[str, Any] = {}
    left_out: list[LeftOut] = []
    training = model.training
    model.eval()
    try:
        subject = _Subject(model, task, generator, num_sequences)
        for section in SECTIONS:
            try:
                subject.check(section.needs)
                found[section.name] = section.look(subject)
            except _NotShownError as why:
                left_out.append(LeftOut(section.name, f"{why}."))
        return Inspection(behaviour=measure_behaviour(model, subject.batch), **found, left_out=tuple(left_out))
    finally:
        model.train(training)


def _operators(subject: _Subject) -> OperatorScores:
    masses, ops = block_masses(subject.ops), subject.ops
    layers = enumerate(operators_by_layer(subject.model))
    return OperatorScores(
        g_vv_block_mass=masses.g_vv,
        g_kq_block_mass=masses.g_kq,
        closeness=circuit_closeness(ops),
        strength=strength(ops),
        mean_diagonals=dict(zip(("g_vv", "g_kq"), mean_diagonals(ops), strict=True)),
        parts=[_part(l, h, part) for l, heads in layers for h, part in enumerate(heads)],
    )


def _part(layer: int, head: int, part: Operators) -> PartScores:
    at = block_masses(part)
    return PartScores(layer, head, at.value.tolist(), at.match.tolist(), strength(part), circuit_closeness(part))


@torch.no_grad()
def _nearest_circuit(subject: _Subject) -> CircuitScores:
    circuit, batch = nearest_circuit(subject.ops, **subject.dims).operators, subject.batch
    x = one_hot_tokens(batch.tokens, subject.model.vocab_size, dtype=circuit.Pi_v_in.dtype)
    output = at_positions(read_through([circuit], x), batch.query_positions)
    own = subject.model.answer(batch.tokens, batch.query_positions)
    return CircuitScores(
        accuracy=share(answered(output, batch)), agreement=share(output.argmax(dim=-1) == own.argmax(dim=-1))
    )


def _fill(subject: _Subject) -> FillCurve:
    counts = fill_counts(subject.task.vocab_size, subject.task.num_facts)
    return fill_curve(subject.model, counts, num_sequences=FILL_SEQUENCES, generator=subject.generator)


def _attention(subject: _Subject) -> AttentionScores:
    maps = joint_attention(subject.model, subject.batch.tokens)
    return score_attention(maps, subject.batch, delay=subject.ops.delay)


def _attribution(subject: _Subject) -> float:
    few = sample_batch(subject.task, min(len(subject.batch), ATTENTION_SEQUENCES), subject.generator)
    return attribution_hit_rate(subject.model, few)


def _shift_test(subject: _Subject) -> ShiftScores:
    if subject.model.capability(HasOperators) is not None:
        raise _NotShownError("the sign of keys and queries is free in this model; `shift` says the same without it")
    return shift_test(subject.model, subject.batch)


def _laws(subject: _Subject) -> LawScores:
    heads = sum(map(len, operators_by_layer(subject.model)))
    if heads > 1:
        raise _NotShownError(f"the laws are for one layer with one head, and this model has {heads} heads in all")
    if subject.task.key_repeats > 1:
        raise _NotShownError("the recall laws are for keys that are written once (Thm 4.2)")
    return law_predictions(subject.codes, subject.task, **subject.dims)


def _ablation(subject: _Subject) -> AblationScores:
    layers = len(operators_by_layer(subject.model))
    if layers > 1:
        raise _NotShownError(f"blocks are cut out of a single layer, and this model has {layers}")
    return ablate_blocks(subject.model, subject.batch)


class Section(NamedTuple):
    """One part of the report: the field of `Inspection` it fills, what it needs of the model, and how to fill it."""

    name: str
    needs: tuple[type, ...]
    look: Callable[[_Subject], Any]


# in this order, which is also the order in which they draw random numbers
SECTIONS = (
    Section("operators", (HasOperators,), _operators),
    Section("nearest_circuit", (HasOperators,), _nearest_circuit),
    Section(
        "table",
        (HasOperators, HasState),
        lambda of: score_tables(hash_tables(of.model, of.fresh), strength(of.ops), of.codes),
    ),
    Section("overwrite", (WritesFacts,), lambda of: overwrite_facts(of.model, of.batch, of.generator)),
    Section("fill", (HasOperators, HasState), _fill),
    Section("attention", (HasOperators, HasAttention), _attention),
    Section("attribution_hit_rate", (HasAttention,), _attribution),
    Section("copy", (HasOperators,), lambda of: copy_dominance(of.ops, of.batch.tokens)),
    Section("shift", (HasOperators,), lambda of: shift_dominance(of.ops, of.batch.tokens)),
    Section("shift_test", (HasKeys,), _shift_test),
    Section("codes", (HasOperators,), lambda of: of.codes),
    Section("key_variance", (HasOperators,), lambda of: of.variances[0]),
    Section("value_variance", (HasOperators,), lambda of: of.variances[1]),
    Section("selectivity", (HasOperators,), lambda of: measure_selectivity(of.ops, **of.dims)),
    Section("laws", (HasOperators,), _laws),
    Section("projection", (HasOperators, HasState, WritesFacts), lambda of: project_on_facts(of.model, of.batch)),
    Section("ablation", (HasOperators,), _ablation),
    Section("probe", (HasState, HasKeys), lambda of: probe_facts(of.model, of.batch, of.fresh, of.generator)),
    Section("rates", (HasRates,), lambda of: measure_rates(of.model, of.batch, of.task)),
    Section("state_bits", (StepsState,), lambda of: measure_heads(of.model, of.batch)),
    Section("banks", (HasMasks,), lambda of: measure_banks(of.model, of.batch, of.generator)),
)


def fill_counts(vocab_size: int, num_facts: int, points: int = 12) -> Sequence[int]:
    """Numbers of facts from 1 to as many as there are keys, 128 at most, with N_f among them."""
    most = min(vocab_size // 2 - 1, 128)
    spread = {round(1 + (most - 1) * i / (points - 1)) for i in range(points)}
    return sorted(spread | ({num_facts} if num_facts <= most else set()))
