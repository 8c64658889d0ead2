"""The figures of docs/LAWS.md and docs/BANKS.md: `python docs/generate/law_figures.py` draws them again, in two minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from law_pages import runs_for_laws, spec_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtri

from recallscope.circuits.bank import bank_circuit
from recallscope.figures.banks import banks_figure
from recallscope.figures.style import BLUE, GUESS, ORANGE, PAGE, VERMILION, figure_files, figure_style, new_figure
from recallscope.interp.banks import channel_masks, picture_masks, surgery
from recallscope.specs import ModelSpec, find_architecture, parse_task
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.law import find_law
from recallscope.train.weights import read_weights

ROOT = Path(__file__).resolve().parents[2]
V, TARGET = 512, 0.9
FACTS = np.round(np.geomspace(2, 80, 14)).astype(int)
SHAPES = [(4 * N, N) for N in (3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24)]
PANELS = {  # architecture: its name, and the laws that are drawn
    "linear_mamba": ("linear Mamba", ("trained-sharing",)),
    "retnet": ("RetNet: fades", ("retention",)),
    "mlstm": ("mLSTM: a write gate", ("gated",)),
    "delta_net": ("DeltaNet: replaces", ("delta",)),
    "mesa_net": ("MesaNet: least squares", ("least-squares",)),
    "mamba": ("full Mamba", ("full-mask", "full-bank")),
}
BANK = {"vocab_size": 256, "num_facts": 8}
BANK_SHAPE = {"embed_dim": 24, "state_dim": 4}
TRAINED = ROOT / "results" / "mechanism" / "bank" / "weights.safetensors"
SEQUENCES = 200


def figures() -> Iterator[tuple[str, Figure]]:
    """Name and figure."""
    yield "facts-per-entry", facts_per_entry()
    task = parse_task(BANK)
    designed = bank_circuit(BANK["vocab_size"], **BANK_SHAPE, generator=torch.Generator().manual_seed(0))
    yield "bank-switch", switch(designed)
    for name, model in (("written down", designed), ("trained", read_weights(TRAINED)[0])):
        found = surgery(model, sample_batch(task, SEQUENCES, 1))
        yield f"banks-{name.replace(' ', '-')}", banks_figure(picture_masks(model), found, name)


def spec_at(kind: str, D: int, N: int) -> ModelSpec:
    """The architecture as it is by default, at these sizes."""
    return find_architecture(kind).model_validate({"embed_dim": D, "state_dim": N})


def facts_held(law: str) -> np.ndarray:
    """For every shape the number of facts at which the law gives the target; nan where that lies outside of `FACTS`."""
    D, N = (np.array(sizes)[:, None] for sizes in zip(*SHAPES, strict=True))
    with np.errstate(all="ignore"):
        p = find_law(law)(vocab_size=V, num_facts=FACTS, embed_dim=D, state_dim=N)
        x = ndtri(np.clip(p, 1e-9, 1 - 1e-9))
    held = [np.interp(-ndtri(TARGET), -row, np.log(FACTS), left=np.nan, right=np.nan) for row in x]
    return np.exp(held)


def per_entry(kind: str, law: str) -> tuple[np.ndarray, np.ndarray]:
    """State entries of every shape, and the facts per entry that the law says it holds."""
    entries = np.array([spec_at(kind, D, N).state_entries for D, N in SHAPES])
    return entries, facts_held(law) / entries


def facts_per_entry() -> Figure:
    """A panel for each architecture: its law over the size of the state, and every stored training."""
    lines = {(kind, law): per_entry(kind, law) for kind, (_, laws) in PANELS.items() for law in laws}
    figure = new_figure(PAGE, 4.6)
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for ax, (kind, (title, laws)) in zip(axes.flat, PANELS.items(), strict=True):
        for (other, _), line in lines.items():
            if other != kind:
                ax.plot(*line, color="#dddddd", linewidth=0.8, zorder=1)
        for law, style in zip(laws, ("-", "--"), strict=False):
            ax.plot(*lines[kind, law], style, color=BLUE, label=law, zorder=2)
        _dots(ax, kind)
        ax.set(title=title, xscale="log", ylim=(0, 0.135))
        ax.set_xticks([64, 256, 1024], labels=["64", "256", "1,024"])
        ax.minorticks_off()
        ax.legend(loc="upper right", fontsize=6)
    figure.supxlabel("state entries (lines: D = 4 N)", fontsize=8)
    figure.supylabel(f"facts per state entry, recalled at {TARGET}", fontsize=8)
    return figure


def _dots(ax: Axes, kind: str) -> None:
    """Trainings of this architecture on V = 512: filled if they recall enough."""
    rows = [
        row
        for row in runs_for_laws()
        if (row["model"], row["task"], row["vocab_size"], row["num_layers"]) == (kind, "mqar", V, 1)
        and spec_of(row).own_law == spec_of(row).law
        and row["length"] == 4 * row["num_facts"]
    ]
    for enough, face in ((False, "none"), (True, VERMILION)):
        chosen = [row for row in rows if (row["test_accuracy"] >= TARGET) == enough]
        x = [spec_of(row).state_entries for row in chosen]
        y = [row["num_facts"] / entries for row, entries in zip(chosen, x, strict=True)]
        ax.scatter(x, y, s=12, facecolors=face, edgecolors=VERMILION, linewidths=0.6, zorder=3)


def switch(model: torch.nn.Module) -> Figure:
    """What one key writes, what another does, and what a query of the first bank reads."""
    masks = channel_masks(model)
    read = masks.read / masks.read.abs().max()
    write = (masks.write - masks.write.amax(dim=0)).exp()
    side = read[:, 0] > read[:, -1]
    channels = (read[side].mean(dim=0) - read[~side].mean(dim=0)).argsort(descending=True)
    first, second = int(side.nonzero()[0]), int((~side).nonzero()[0])
    figure = new_figure(PAGE, 2.6)
    axes = figure.subplots(3, 1, sharex=True)
    for ax, values, colour, name in (
        (axes[0], write[first], BLUE, "key A writes"),
        (axes[1], write[second], ORANGE, "key B writes"),
        (axes[2], read[first], GUESS, "query A reads"),
    ):
        ax.bar(np.arange(len(channels)), values[channels], width=0.9, color=colour)
        ax.set(ylim=(0, 1.05), yticks=[])
        ax.set_ylabel(name, rotation=0, ha="right", va="center")
    axes[2].set_xlabel("channel: the first bank, the channels of the key, the second bank")
    return figure


if __name__ == "__main__":
    torch.set_num_threads(1)
    with figure_style():
        for name, figure in figures():
            picture = figure_files(figure)[".png"]
            (ROOT / "docs" / "figures" / f"{name}.png").write_bytes(picture)
            print(name, len(picture), flush=True)
