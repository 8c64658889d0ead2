# %% [markdown]
# # Predict and size
#
# Recall of a trained linear Mamba from its dimensions, and the dimensions for a target.

# %%
import numpy as np

import recallscope as rs

law = rs.find_law("trained-sharing")
law
