"""The pictures of `recallscope inspect`: what is read off a model, handed to the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from recallscope.figures.mechanism import (
    attention_figure,
    copy_shift_figure,
    fill_figure,
    hash_table_figure,
    operators_figure,
)
from recallscope.figures.style import save_figure
from recallscope.interp.attention import copy_map, ideal_attention, joint_attention, shift_map
from recallscope.interp.full_probe import attention_strength
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.operators import mean_diagonals
from recallscope.interp.scale import effective_operators, strength
from recallscope.models import FullMamba, RecallModel
from recallscope.specs import TaskSpec
from recallscope.tasks import Batch, draw_batch

MOST_TOKENS = 512  # a table of more has entries smaller than a dot of the picture


def draw_pictures(model: RecallModel, task: TaskSpec, scores: dict[str, Any], out: Path, seed: int) -> list[Path]:
    """Every picture this model has, of one fresh sequence, as PNG and SVG."""
    batch = draw_batch(task, 1, torch.Generator().manual_seed(seed))
    D, N = model.spec.embed_dim, model.spec.state_dim
    label = f"$D={D}$, $N={N}$, $V={task.vocab_size}$, $N_f={task.num_facts}$"
    if isinstance(model, FullMamba):
        figures = _pictures_of_full(model, batch, task, f"full Mamba, {label}")
    else:
        figures = _pictures_of_linear(model, batch, task, scores["fill"], label)
    return [path for name, figure in figures.items() for path in save_figure(figure, out / name)]


def _pictures_of_linear(
    model: RecallModel, batch: Batch, task: TaskSpec, fill: dict[str, Any], label: str
) -> dict[str, Figure]:
    ops, tokens, context = effective_operators(model), batch.tokens, task.context_length
    value, match = mean_diagonals(ops)
    shown = tokens_to_show(batch, task.vocab_size)
    tables, few = hash_tables(model, batch, tokens=shown), ops.restricted(shown)
    facts = list(zip(tables.values[0].tolist(), tables.keys[0].tolist(), strict=True))
    some = label if len(shown) == task.vocab_size else f"{label}, {len(shown)} of the tokens"
    return {
        "hash_table": hash_table_figure(
            tables.ideal[0], tables.hashed[0], tables.decoded[0] / strength(ops), facts=facts, label=some
        ),
        "attention": attention_figure(
            ideal_attention(tokens, delay=ops.delay)[0],
            joint_attention(model, tokens)[0],
            context_length=context,
            label=label,
        ),
        "copy_and_shift": copy_shift_figure(
            copy_map(ops, tokens)[0] / value, shift_map(ops, tokens)[0] / match, context_length=context, label=label
        ),
        "operators": operators_figure(
            few.value_operator / value, few.match_operator / match, delay=ops.delay, label=some
        ),
        "fill": fill_figure(
            fill["num_facts"], fill["hit_rate"], fill["predicted"], num_facts=task.num_facts, label=label
        ),
    }


def _pictures_of_full(model: FullMamba, batch: Batch, task: TaskSpec, label: str) -> dict[str, Figure]:
    ideal, actual = ideal_attention(batch.tokens)[0], attention_strength(model, batch.tokens)[0]
    figure = attention_figure(
        ideal,
        actual / actual[ideal > 0].mean(),
        context_length=task.context_length,
        symbol=r"\|\alpha'_{\tau t}\|",  # over all channels
        label=label,
    )
    return {"attention": figure}


def tokens_to_show(batch: Batch, vocab_size: int) -> torch.Tensor:
    """All tokens, or of a large vocabulary as many keys as values, the facts' among them; ascending."""
    if vocab_size <= MOST_TOKENS:
        return torch.arange(vocab_size)
    half = vocab_size // 2
    each = min(half, max(MOST_TOKENS // 2, batch.all_values.numel()))

    def chosen(used: torch.Tensor) -> torch.Tensor:
        of_facts = torch.zeros(half, dtype=torch.bool)
        of_facts[used.flatten() % half] = True
        others = (~of_facts).nonzero()[: each - int(of_facts.sum()), 0]
        return torch.cat((of_facts.nonzero()[:, 0], others)).sort().values

    return torch.cat((chosen(batch.keys), chosen(batch.all_values) + half))
