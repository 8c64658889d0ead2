"""Every score of one model in one report, ready for JSON: what `recallscope inspect` writes."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from recallscope.architectures.layered import LayeredModel
from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.mamba import FullSpec
from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.architectures.mamba_model import FullMamba
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.interp.ablation import ablate_blocks
from recallscope.interp.attention import copy_dominance, joint_attention, score_attention, shift_dominance
from recallscope.interp.block_masses import block_masses
from recallscope.interp.closeness import circuit_closeness, nearest_circuit
from recallscope.interp.full_probe import attribution_hit_rate, probe_facts, shift_test
from recallscope.interp.full_surgery import overwrite_in_full
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.operators import Operators, mean_diagonals, read_through, token_operators
from recallscope.interp.scale import effective_operators, strength
from recallscope.interp.selectivity import MeasuredCodes, check_variances, measure_codes, measure_selectivity
from recallscope.interp.surgery import overwrite_facts, project_on_facts
from recallscope.interp.table_scores import fill_curve, score_tables
from recallscope.interp.vocabulary import one_hot_tokens
from recallscope.ops import at_positions
from recallscope.specs import TaskSpec
from recallscope.tasks import Batch, answered, draw_batch
from recallscope.theory.laws import unified_law
from recallscope.theory.sharing import recall_given_variances, sharing_law

TABLE_ENTRIES = 2**23  # of all decoded tables alive at a time
ATTENTION_SEQUENCES = 32  # of full Mamba, which has a map per channel
FILL_SEQUENCES = 30


def inspect_model(
    model: LayeredModel, task: TaskSpec, generator: torch.Generator, *, num_sequences: int = 200
) -> dict[str, Any]:
    """All scores, on fresh sequences of the task. What a model has no operators for is None.

    Paper: Sec. 3.2 (`subsec:mech-interp`), as numbers.
    """
    if num_sequences < 2:
        raise ValueError(f"num_sequences={num_sequences}: scores are averages. Use num_sequences >= 2.")
    look = _inspect_full if isinstance(model, FullMamba | Full2Mamba) else _inspect_linear
    return {name: _plain(score) for name, score in look(model, task, generator, num_sequences).items()}


def _plain(score: Any) -> Any:
    """JSON knows neither infinity nor not-a-number: both become None."""
    if isinstance(score, float):
        return score if math.isfinite(score) else None
    if isinstance(score, dict):
        return {name: _plain(item) for name, item in score.items()}
    if isinstance(score, list | tuple):
        return [_plain(item) for item in score]
    return score


def _inspect_linear(model: Any, task: TaskSpec, generator: torch.Generator, num_sequences: int) -> dict[str, Any]:
    ops, spec = effective_operators(model), model.spec
    if strength(ops) == 0:
        raise ValueError(
            f"a stored fact moves no logit (conv_width={ops.conv_width}): with windows of one token, or with weights "
            f"0, there is no table to look into. Use conv_width >= 2 and a trained model or a circuit."
        )
    batch = draw_batch(task, num_sequences, generator)
    masses, codes = block_masses(ops), measure_codes(ops)
    D, N = spec.embed_dim, ops.Pi_k_in.shape[0]
    tabled = draw_batch(task, max(2, min(num_sequences, TABLE_ENTRIES // task.vocab_size**2)), generator)
    table = score_tables(hash_tables(model, tabled), strength(ops), codes)
    overwrite = overwrite_facts(model, batch, generator)
    key_variance, value_variance = check_variances(codes, task, embed_dim=D, state_dim=min(N, D))
    attention = joint_attention(model, batch.tokens)
    return {
        "g_vv_block_mass": masses.g_vv,
        "g_kq_block_mass": masses.g_kq,
        "decoded_hit_rate": table.hit_rate,
        "auc": table.auc,
        "overwrite_success": overwrite.success,
        "closeness": circuit_closeness(ops),
        "nearest_circuit": _compare_with_circuit(model, ops, batch, D, N),
        "strength": strength(ops),
        "mean_diagonals": dict(zip(("g_vv", "g_kq"), mean_diagonals(ops), strict=True)),
        "parts": _parts(model),
        "table": dataclasses.asdict(table),
        "fill": dataclasses.asdict(
            fill_curve(model, fill_counts(task), num_sequences=FILL_SEQUENCES, generator=generator)
        ),
        "attention": dataclasses.asdict(score_attention(attention, batch, delay=ops.delay)),
        "copy": dataclasses.asdict(copy_dominance(ops, batch.tokens)),
        "shift": dataclasses.asdict(shift_dominance(ops, batch.tokens)),
        "codes": dataclasses.asdict(codes) | {"leak": codes.leak},
        "key_variance": dataclasses.asdict(key_variance) | {"nearest": key_variance.nearest},
        "value_variance": dataclasses.asdict(value_variance) | {"nearest": value_variance.nearest},
        "selectivity": dataclasses.asdict(measure_selectivity(ops, embed_dim=D, state_dim=N)),
        "laws": law_predictions(task, spec, codes),
        "overwrite": dataclasses.asdict(overwrite),
        "projection": dataclasses.asdict(project_on_facts(model, batch)),
        "ablation": dataclasses.asdict(ablate_blocks(model, batch))
        if len(model.layers) == 1 and ops.conv_width > 1
        else None,
        "probe": dataclasses.asdict(probe_facts(model, batch, tabled, generator)),
    }


def _inspect_full(model: Any, task: TaskSpec, generator: torch.Generator, num_sequences: int) -> dict[str, Any]:
    batch, fresh = (draw_batch(task, num_sequences, generator) for _ in range(2))
    pairwise = isinstance(model, FullMamba) and len(model.layers) == 1 and model.spec.conv_width == 2
    overwrite = overwrite_in_full(model, batch, generator) if pairwise else None
    few = draw_batch(task, min(num_sequences, ATTENTION_SEQUENCES), generator)
    return {
        "g_vv_block_mass": None,
        "g_kq_block_mass": None,
        "decoded_hit_rate": None,
        "auc": None,
        "overwrite_success": overwrite.factored_write if overwrite else None,
        "attribution_hit_rate": attribution_hit_rate(model, few),
        "probe": dataclasses.asdict(probe_facts(model, batch, fresh, generator)),
        "shift_test": dataclasses.asdict(shift_test(model, batch)),
        "overwrite": dataclasses.asdict(overwrite) if overwrite else None,
    }


def _parts(model: LayeredModel) -> list[dict[str, Any]]:
    """Every head of every layer by itself."""
    rows: list[dict[str, Any]] = []
    for l in range(len(model.layers)):
        for h, part in enumerate(token_operators(model, layer=l)):
            masses = block_masses(part)
            rows.append(
                {
                    "layer": l,
                    "head": h,
                    "g_vv_blocks": masses.value.tolist(),
                    "g_kq_blocks": masses.match.tolist(),
                    "strength": strength(part),
                    "closeness": circuit_closeness(part),
                }
            )
    return rows


def _compare_with_circuit(model: LayeredModel, ops: Operators, batch: Batch, D: int, N: int) -> dict[str, float]:
    """Answers of the circuit that is nearest to the model, beside the model's own."""
    circuit = nearest_circuit(ops, embed_dim=D, state_dim=N).operators
    x = one_hot_tokens(batch.tokens, model.vocab_size, dtype=model.E.dtype)
    with torch.no_grad():
        said = at_positions(read_through([circuit], x), batch.query_positions)
        own = model.answer(batch.tokens, batch.query_positions)
    return {
        "accuracy": float(answered(said, batch).double().mean()),
        "agreement": float((said.argmax(dim=-1) == own.argmax(dim=-1)).double().mean()),
    }


def law_predictions(
    task: TaskSpec, spec: LinearSpec | MultiHeadSpec | FullSpec, codes: MeasuredCodes
) -> dict[str, float] | None:
    """Recall by three roads: from the variances measured in this model, from those predicted, and as printed.

    Paper: Rem 4.3 (`rem:practical-scaling-law`) is the printed one.   Holds for: one linear layer, AR and MQAR.
    """
    if task.kind == "repeated" or not isinstance(spec, LinearSpec) or spec.num_layers > 1:
        return None
    kind = "ar" if task.kind == "ar" else "mqar"
    about: dict[str, Any] = {"vocab_size": task.vocab_size, "num_facts": task.num_facts, "task": kind}
    about["length"] = task.length if kind == "mqar" else None
    dims: dict[str, Any] = {"embed_dim": spec.embed_dim, "state_dim": spec.state_dim}
    measured = recall_given_variances(
        key_variance=codes.key_variance, value_variance=codes.value_variance, leak=codes.leak, **about
    )
    return {
        "measured_variances": float(measured),
        "trained_sharing": float(sharing_law(**about, **dims)),
        "unified": float(unified_law(**about, **dims)),
    }


def fill_counts(task: TaskSpec, points: int = 12) -> Sequence[int]:
    """Numbers of facts from 1 to as many as there are keys, 128 at most, with N_f among them."""
    most = min(task.vocab_size // 2 - 1, 128)
    spread = {round(1 + (most - 1) * i / (points - 1)) for i in range(points)}
    return sorted(spread | ({task.num_facts} if task.num_facts <= most else set()))
