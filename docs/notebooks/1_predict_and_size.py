# %% [markdown]
# # Predict and size
#
# A law says how likely it is that a model with given dimensions recalls a fact. No torch is needed here.

# %%
import matplotlib.pyplot as plt

import recallscope as rs

law = rs.find_law("trained-sharing")
law

# %% [markdown]
# ## Predict
#
# A law takes numbers or arrays. Sixteen facts out of 512 tokens, for three widths:

# %%
law(vocab_size=512, num_facts=16, embed_dim=[32, 48, 64], state_dim=16).round(3)

# %% [markdown]
# Where was the law compared with trained models? Elsewhere its answer is extrapolated.

# %%
far = {"vocab_size": 512, "num_facts": 16, "embed_dim": 1024, "state_dim": 16}
law.extrapolated(**far), law.limits(**far)

# %% [markdown]
# ## A grid of D and N

# %%
from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.figures.accuracy_panels import draw_grid

axes = {"embed_dim": [16, 32, 48, 64], "state_dim": [4, 8, 16, 32]}
cells = AccuracyGrid.over(axes, rs.MQARSpec(vocab_size=512, num_facts=16))
grid = AccuracyGrid.from_law(law, cells)
figure, ax = plt.subplots(figsize=(3.6, 3.2))
draw_grid(grid, ax, title=law.name)
plt.show()

# %% [markdown]
# ## Size
#
# The least state for 99% at a width of 64, and the most facts that a model of 64 x 16 holds at 90%:

# %%
rs.solve(law=law, target=0.99, vocab_size=512, num_facts=16, embed_dim=64)

# %%
rs.solve(law=law, target=0.9, vocab_size=512, embed_dim=64, state_dim=16)

# %% [markdown]
# All minimal pairs of D and N, with what they cost:

# %%
for point in rs.frontier(law=law, target=0.9, vocab_size=128, num_facts=8, max_points=6):
    print(
        f"D = {point.embed_dim:3}  N = {point.state_dim:2}  state {point.state_entries:4} numbers  recall {point.probability:.3f}"
    )
