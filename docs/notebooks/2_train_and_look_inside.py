# %% [markdown]
# # Train and look inside
#
# A small linear Mamba learns to recall four facts, in a few seconds on one core. Then we read its memory.

# %%
import matplotlib.pyplot as plt
import torch

import recallscope as rs

task = rs.MQARSpec(vocab_size=64, num_facts=4)
run = rs.RunSpec(
    task=task,
    model=rs.LinearMambaSpec(embed_dim=16, state_dim=8),
    train=rs.TrainSpec(batch_size=32, warmup_steps=50, flat_steps=400, decay_steps=400, eval_every=100, eval_size=1000),
)
trained = rs.train_run(run, progress=False)
print(f"test accuracy {trained.record.test_accuracy:.3f} after {trained.record.steps} steps")

# %% [markdown]
# What the law predicted, and what came out:

# %%
predicted = float(rs.find_law("trained-sharing")(vocab_size=64, num_facts=4, embed_dim=16, state_dim=8))
print(f"predicted {predicted:.3f}, measured {trained.record.test_accuracy:.3f}")

# %%
history = trained.record.history
figure, ax = plt.subplots(figsize=(4, 2.2))
ax.plot([point.step for point in history], [point.accuracy for point in history], "o-")
ax.axhline(predicted, color="gray", linestyle="--")
ax.set(xlabel="step", ylabel="recall", ylim=(0, 1.03))
plt.show()

# %% [markdown]
# ## The state is a table
#
# After the facts are read, the state is decoded into a table of values by keys. Left, what was said; right, what the state means;
# facts are ringed.

# %%
from recallscope.figures.mechanism import draw_table
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.operators import effective_operators, strength

batch = rs.sample_batch(task, 1, 3)
tables = hash_tables(trained.model, batch)
facts = list(zip(tables.values[0].tolist(), tables.keys[0].tolist(), strict=True))
unit = strength(effective_operators(trained.model))
figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.2), layout="constrained")
draw_table(tables.ideal[0], left, title="what was said", facts=facts, filled=True)
draw_table(tables.decoded[0].detach() / unit, right, title="what the state means", facts=facts)
plt.show()

# %% [markdown]
# ## Scores
#
# How near is it to the recall circuit, and does an answer follow when its fact is changed in the state?

# %%
from recallscope.interp.inspection import inspect_model

scores = inspect_model(trained.model, task, torch.Generator().manual_seed(0), num_sequences=50).to_dict()
for name in ("closeness", "g_vv_block_mass", "g_kq_block_mass", "decoded_hit_rate", "overwrite_success"):
    print(f"{name:20} {scores[name]:.3f}")

# %% [markdown]
# What these numbers mean is in the [glossary](../glossary.md#inspect).
