# %% [markdown]
# # From records to a figure for a paper
#
# Every run leaves a record. This page draws a figure from those that are stored with the repository; nothing is trained, and torch is
# not needed.

# %%
import matplotlib.pyplot as plt
import numpy as np

import recallscope as rs
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions

conditions = parse_conditions(
    [
        "model=linear_mamba",
        "task=mqar",
        "vocab_size=512",
        "num_facts=16",
        "batch_size=32",
        "eval_size=1000",
        "length=64",
    ]
)
rows = find_runs(RunStore("results/paper"), conditions)
print(len(rows), "runs")

# %% [markdown]
# Put them on a grid, one cell per pair of sizes; several seeds would be averaged:

# %%
from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.figures.accuracy_panels import draw_grid

grid = AccuracyGrid.from_runs(rows, ["embed_dim", "state_dim"])
figure, ax = plt.subplots(figsize=(3.4, 3))
draw_grid(grid, ax, title="measured")
plt.show()

# %% [markdown]
# Measured dots and what the law says, with the style of our own figures: one column wide, fonts that survive print, colours that stay
# apart for colour-blind readers.

# %%
from recallscope.figures.accuracy_panels import shades
from recallscope.figures.style import figure_style

law = rs.find_law("trained-sharing")
states = sorted({row["state_dim"] for row in rows})
widths = np.arange(8, 68, 4)
with figure_style():
    figure, ax = plt.subplots(figsize=(3.4, 2.5), layout="constrained")
    for state, colour in zip(states, shades(len(states)), strict=True):
        ax.plot(
            widths,
            law(vocab_size=512, num_facts=16, embed_dim=widths, state_dim=state),
            color=colour,
            label=f"N = {state}",
        )
        here = [(row["embed_dim"], row["test_accuracy"]) for row in rows if row["state_dim"] == state]
        ax.scatter(*zip(*here, strict=True), color=colour, s=14, zorder=3)
    ax.set(xlabel="embedding D", ylabel="recall", ylim=(0, 1.03))
    ax.legend()
    plt.show()

# %% [markdown]
# How far off is the law, in numbers for the caption?

# %%
words = ("vocab_size", "num_facts", "embed_dim", "state_dim")
errors = [abs(row["test_accuracy"] - float(law(**{name: row[name] for name in words}))) for row in rows]
print(f"mean error {np.mean(errors):.3f}, largest {max(errors):.3f}, {len(errors)} runs")

# %% [markdown]
# `save_figure(figure, Path("figure-1"))` writes PNG and SVG; the same figure gives the same bytes, so that a figure in version control
# changes only if its data do. `recallscope plot`, `fit --figure` and `draw` make many figures without any code.
