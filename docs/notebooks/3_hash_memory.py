# %% [markdown]
# # The state as a hash table
#
# `HashMemory` uses the state of a one-layer model as what it is. Here the model is a circuit: weights that are written down, not
# learned.

# %%
import matplotlib.pyplot as plt
import torch

import recallscope as rs

generator = torch.Generator().manual_seed(0)
memory = rs.HashMemory(rs.designed_circuit(vocab_size=256, embed_dim=64, state_dim=32, generator=generator))
memory.store(key=7, value=200)
memory.store(key=9, value=141)
memory.recall(7)

# %% [markdown]
# A score of 1 is one stored fact; a key that was never stored scores about 0:

# %%
memory.recall(50).score, memory.recall(50).found

# %% [markdown]
# Replace a value, erase a key, and list what is there. Nobody tells it which keys to try:

# %%
memory.overwrite(key=7, value=255)
memory.forget(9)
memory.facts()

# %% [markdown]
# ## Until it is full
#
# Facts share the same numbers. How many fit?

# %%
memory.clear()
order = torch.randperm(127, generator=generator) + 1
counts, right = [], []
for number, key in enumerate(order.tolist(), start=1):
    memory.store(key, 128 + key)
    if number in (1, 2, 4, 8, 16, 32, 64, 127):
        stored = order[:number].tolist()
        counts.append(number)
        right.append(sum(memory.recall(one).value == 128 + one for one in stored) / number)
figure, ax = plt.subplots(figsize=(4, 2.4))
ax.plot(counts, right, "o-")
ax.set(xscale="log", xlabel="facts stored", ylabel="recalled", ylim=(0, 1.03))
plt.show()

# %% [markdown]
# What the law says of an empty table: how many facts fit before one in a hundred is recalled wrongly.

# %%
memory.clear()
memory.load

# %% [markdown]
# ## A trained model's memory

# %%
model, task = rs.read_weights("results/paper/runs/801db16e587643d876809e85/weights.safetensors")
memory = rs.HashMemory(model)
batch = rs.sample_batch(task, 1, 0)
context = batch.tokens[0, : 2 * task.num_facts]
memory.read(context)
truth = dict(context.reshape(-1, 2).tolist())
read = {fact.key: fact.value for fact in memory.facts()}
print(f"{sum(truth.get(key) == value for key, value in read.items())} of {len(truth)} facts read off the state alone")
