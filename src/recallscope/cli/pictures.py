"""The pictures of `recallscope inspect`: what is read off a model, handed to the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.architectures.mamba_model import FullMamba
from recallscope.architectures.model import RecallModel
from recallscope.figures import attention_figure, inside_figures, save_figure
from recallscope.interp.attention import ideal_attention
from recallscope.interp.full2_probe import head_attention_strength
from recallscope.interp.full_probe import attention_strength
from recallscope.interp.picture_arrays import picture_arrays
from recallscope.specs import TaskSpec
from recallscope.tasks import Batch, draw_batch


def draw_pictures(model: RecallModel, task: TaskSpec, scores: dict[str, Any], out: Path, seed: int) -> list[Path]:
    """Every picture this model has, of one fresh sequence, as PNG and SVG."""
    batch = draw_batch(task, 1, torch.Generator().manual_seed(seed))
    D, N = model.spec.embed_dim, model.spec.state_dim
    label = f"$D={D}$, $N={N}$, $V={task.vocab_size}$, $N_f={task.num_facts}$"
    if isinstance(model, FullMamba):
        strength = attention_strength(model, batch.tokens)[0]
        figures = {"attention": _attention_of_full(strength, batch, task, f"full Mamba, {label}")}
    elif isinstance(model, Full2Mamba):
        strength = head_attention_strength(model, batch.tokens)[0]
        figures = {"attention": _attention_of_full(strength, batch, task, f"full Mamba-2, {label}")}
    else:
        figures = inside_figures(picture_arrays(model, batch, task), task, scores["fill"], label)
    return [path for name, figure in figures.items() for path in save_figure(figure, out / name)]


def _attention_of_full(strength: torch.Tensor, batch: Batch, task: TaskSpec, label: str) -> Figure:
    ideal = ideal_attention(batch.tokens)[0]
    return attention_figure(
        ideal,
        strength / strength[ideal > 0].mean(),
        context_length=task.context_length,
        symbol=r"\|\alpha'_{\tau t}\|",  # over all channels
        label=label,
    )
