"""The pictures of `recallscope inspect`: what is read off a model, handed to the figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recallscope.architectures.capabilities import HasAttention
from recallscope.architectures.model import RecallModel
from recallscope.figures.mechanism import attention_figure, banks_figure, draw_curve, inside_figures
from recallscope.figures.style import COLUMN, figure_style, save_figure
from recallscope.interp.attention import attention_strength, ideal_attention, picture_arrays
from recallscope.interp.banks import picture_masks
from recallscope.interp.decoders import Behaviour
from recallscope.interp.inspection import Inspection
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.law import DIMENSIONS
from recallscope.theory.problem import SIZES


def draw_pictures(
    model: RecallModel, task: TaskSpec, found: Inspection, out: Path, seed: int, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Every picture this model has, of one fresh sequence, as PNG and SVG."""
    batch = sample_batch(task, 1, torch.Generator().manual_seed(seed))
    label = _sizes(model, task)
    figures = {"behaviour": behaviour_figure(found.behaviour, label)}
    if found.table is not None and found.fill is not None:
        arrays = picture_arrays(model, batch, task)
        figures |= inside_figures(arrays, task.model_dump(), dataclasses.asdict(found.fill), label)
    elif model.capability(HasAttention) is not None:
        figures["attention"] = _attention_strength_figure(model, batch, f"{model.spec.kind}, {label}")
    if found.banks is not None:
        figures["banks"] = banks_figure(picture_masks(model), found.banks.ablations, f"{model.spec.kind}, {label}")
    return [path for name, figure in figures.items() for path in save_figure(figure, out / name, kinds)]


def _sizes(model: RecallModel, task: TaskSpec) -> str:
    """The sizes that model and task have, in the paper's letters."""
    known: dict[str, Any] = model.spec.model_dump() | task.model_dump()
    return ", ".join(f"${SIZES[name]['letter']}={known[name]}$" for name in DIMENSIONS if name in known)


def behaviour_figure(seen: Behaviour, label: str) -> Figure:
    """Recall against the place of the fact in the context."""
    with figure_style():
        figure = Figure(figsize=(COLUMN * 1.1, 2.6), layout="constrained")
        places = range(1, len(seen.recall_by_place) + 1)
        draw_curve(
            places,
            seen.recall_by_place,
            axes := figure.subplots(),
            predicted=None,
            xlabel="place of the fact in the context, oldest first",
            ylabel="recall",
            title="Which facts are recalled?",
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 1.02)
        figure.supxlabel(label, fontsize=7)
    return figure


def _attention_strength_figure(model: RecallModel, batch: Batch, label: str) -> Figure:
    ideal, strength = ideal_attention(batch.tokens)[0], attention_strength(model, batch.tokens)[0]
    return attention_figure(
        ideal,
        strength / strength[ideal > 0].mean(),
        context_length=2 * batch.all_values[0].numel(),
        symbol=r"\|\alpha'_{\tau t}\|",  # over all heads and channels
        label=label,
    )
