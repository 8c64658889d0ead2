"""The pictures of ideas.md, drawn from real weights, laws and stored runs when the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from recallscope.circuits.linear import designed_circuit
from recallscope.figures.accuracy_panels import shades
from recallscope.figures.style import (
    BLUE,
    GUESS,
    ORANGE,
    PAGE,
    SIGNED,
    VERMILION,
    figure_files,
    figure_style,
    new_figure,
)
from recallscope.interp.memory import HashMemory
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.theory.law import find_law

ROOT = Path(__file__).resolve().parents[2]
V, N_f = 512, 16


def pictures() -> Iterator[tuple[str, bytes]]:
    """Path below docs/ and bytes of every picture."""
    for draw in (hash_table, interference, trade, selectivity, delta_rule):
        with figure_style():
            yield f"pictures/{draw.__name__}.png", figure_files(draw())[".png"]


def _memory(embed_dim: int, state_dim: int, vocab_size: int = 64) -> HashMemory:
    generator = torch.Generator().manual_seed(1)
    return HashMemory(
        designed_circuit(vocab_size=vocab_size, embed_dim=embed_dim, state_dim=state_dim, generator=generator)
    )


def _scores(memory: HashMemory, key: int) -> np.ndarray:
    """What the memory answers for every value token."""
    asked = memory._ask(memory._state, memory._keys[key - 1 : key])[0]
    return asked[memory._values].numpy()


def hash_table() -> Figure:
    """Three facts as matrices, their sum, and the answer to one question."""
    memory, facts = _memory(12, 12), ((5, 40), (9, 58), (22, 47))
    figure = new_figure(PAGE, 2.3)
    axes = figure.subplots(1, 6, width_ratios=[1, 1, 1, 1, 0.35, 1.9])
    written = []
    for key, value in facts:
        memory.clear()
        memory.store(key, value)
        written.append(memory.state[0, -12:].numpy())  # the channels above carry nothing in this circuit
    most = max(abs(one).max() for one in written)
    names = [f"key {key}, value {value}" for key, value in facts]
    for ax, matrix, name, sign in zip(
        axes, [*written, sum(written)], [*names, "the state"], ["+", "+", "=", ""], strict=False
    ):
        ax.imshow(matrix, cmap=SIGNED, vmin=-most, vmax=most)
        ax.set(title=name, xticks=[], yticks=[])
        ax.title.set_fontsize(7)
        ax.text(1.14, 0.5, sign, transform=ax.transAxes, ha="center", va="center", fontsize=14)
    axes[4].axis("off")
    axes[4].annotate("", (1, 0.5), (0, 0.5), xycoords="axes fraction", arrowprops={"arrowstyle": "->"})
    axes[4].text(0.5, 0.58, "ask\nkey 9", ha="center", fontsize=7, transform=axes[4].transAxes)
    memory.clear()
    for key, value in facts:
        memory.store(key, value)
    scores = _scores(memory, 9)
    first = memory.vocab_size // 2
    colours = [VERMILION if first + index == 58 else GUESS for index in range(len(scores))]
    axes[5].bar(first + np.arange(len(scores)), scores, color=colours)
    axes[5].set(xlabel="value token", ylabel="score", title="one read: 58 stands out")
    axes[5].title.set_fontsize(7)
    return figure


def interference() -> Figure:
    """More facts in the same state: the right score stays, the others spread, and one day one of them wins."""
    memory = _memory(48, 24, vocab_size=256)
    draw = np.random.default_rng(0)
    keys, values = draw.permutation(np.arange(1, 128))[:64], draw.permutation(np.arange(128, 256))[:64]
    figure = new_figure(PAGE, 2.4)
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.2])
    counts = (4, 16, 64)
    right: dict[int, float] = {}
    for count in (1, 2, *counts, 8, 32):
        memory.clear()
        for key, value in zip(keys[:count].tolist(), values[:count].tolist(), strict=True):
            memory.store(key, value)
        asked = [
            (_scores(memory, key), value - 128)
            for key, value in zip(keys[:count].tolist(), values[:count].tolist(), strict=True)
        ]
        right[count] = float(np.mean([scores.argmax() == value for scores, value in asked]))
        if count in counts:
            ax = axes[counts.index(count)]
            wrong = np.concatenate([np.delete(scores, value) for scores, value in asked])
            best = [scores[value] for scores, value in asked]
            bins = np.linspace(-1.5, 2.5, 41)
            ax.hist(wrong, bins=bins, density=True, color=GUESS, label="other values")
            ax.hist(best, bins=bins, density=True, color=VERMILION, alpha=0.8, label="the right one")
            ax.set(title=f"{count} facts", xlabel="score", yticks=[], ylim=(0, 4.5))
    axes[0].legend(loc="upper right", fontsize=6)
    axes[3].plot(sorted(right), [right[count] for count in sorted(right)], "o-", color=BLUE)
    axes[3].set(
        xscale="log", xticks=sorted(right), xlabel="facts stored", ylabel="answered rightly", ylim=(-0.03, 1.03)
    )
    axes[3].set_xticks(sorted(right), labels=[str(count) for count in sorted(right)])
    axes[3].minorticks_off()
    return figure


def trade() -> Figure:
    """Lines of equal recall in the plane of D and N, beside lines of equal product."""
    D, N = np.meshgrid(np.arange(8, 97, 8), np.array([2, 4, 6, 8, 10, 13, 16, 20, 24, 32, 40]))
    p = find_law("trained-sharing")(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=np.minimum(N, D))
    figure = new_figure(PAGE * 0.62, 2.8)
    ax = figure.subplots()
    levels = (0.3, 0.5, 0.7, 0.9, 0.99)
    lines = ax.contour(D, N, p, levels=levels, colors=shades(len(levels)))
    ax.clabel(lines, fmt=lambda level: f"{level:g}", fontsize=7)
    for product in (256, 512, 1024):
        ax.plot(np.arange(8, 97), product / np.arange(8, 97), "--", color=GUESS, linewidth=0.8)
        ax.text(
            82, product / 82, f"N D = {product}", fontsize=6, color="#555555", ha="center", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    ax.plot([8, 40], [8, 40], color=GUESS, linewidth=0.5)
    ax.text(37, 38.5, "N = D", fontsize=6, color="#555555", ha="right")
    ax.set(xlabel="embedding D", ylabel="state N", ylim=(2, 40), xlim=(8, 96))
    return figure


def selectivity() -> Figure:
    """The same sizes with weights that write every pair, and with trained weights that write (key, value) pairs."""
    D = np.arange(16, 97, 4)
    figure = new_figure(PAGE * 0.62, 2.6)
    ax = figure.subplots()
    for name, label, colour in (
        ("trained-sharing", "trained: writes what stands after a key", BLUE),
        ("designed-improved", "designed: writes every pair of neighbours", ORANGE),
    ):
        for N, style in ((8, ":"), (16, "-")):
            p = find_law(name)(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N)
            ax.plot(D, p, style, color=colour, label=f"{label}, N = {N}")
    ax.set(xlabel="embedding D", ylabel="recall", ylim=(-0.03, 1.03))
    ax.legend(loc="lower right", fontsize=6)
    return figure


def delta_rule() -> Figure:
    """Stored runs: the same task and sizes, a state that adds and a state that replaces."""
    rows = [
        row
        for row in find_runs(RunStore(ROOT / "results" / "paper"))
        if row["norm"] == "none" and row["steps"] == 2000 and row["model"] in ("linear_attention", "delta_net")
        and row["feature_map"] in (None, "identity")
    ]  # fmt: skip
    sizes = ("task", "vocab_size", "num_facts", "embed_dim", "state_dim")
    cells = sorted({tuple(row[name] for name in sizes) for row in rows}, key=lambda cell: (cell[0], cell[1:]))
    figure = new_figure(PAGE, 2.5)
    ax = figure.subplots()
    for model, label, colour, shift in (
        ("linear_attention", "adds: S + k vᵀ", ORANGE, -0.12),
        ("delta_net", "replaces: S + β k (v - Sᵀ k)ᵀ", BLUE, 0.12),
    ):
        found = [(index, row["test_accuracy"]) for index, cell in enumerate(cells) for row in rows
                 if row["model"] == model and tuple(row[name] for name in sizes) == cell]  # fmt: skip
        ax.scatter(
            [index + shift for index, _ in found], [p for _, p in found], color=colour, s=22, label=label, zorder=3
        )
    names = [
        f"{'keys written twice' if task == 'repeated' else f'V = {vocab}'}\n{facts} facts\nD = {D}, N = {N}"
        for task, vocab, facts, D, N in cells
    ]
    ax.set_xticks(range(len(cells)), labels=names)
    ax.set(ylabel="recall", ylim=(-0.03, 1.03))
    ax.grid(axis="y", color="#eeeeee")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure
