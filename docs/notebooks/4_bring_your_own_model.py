# %% [markdown]
# # Bring your own model
#
# Any `torch.nn.Module` whose constructor takes `vocab_size` and whose `forward(tokens)` returns logits can be measured. It needs no
# import of recallscope. This one is `examples/my_memory.py`:

# %%
from pathlib import Path

print(Path("examples/my_memory.py").read_text())

# %%
import tempfile

import recallscope as rs

mine = rs.user_module("examples/my_memory.py:Model", width=16, keys=4)
task = rs.MQARSpec(vocab_size=64, num_facts=4)
recipe = rs.TrainSpec(
    batch_size=32, learning_rate=0.01, warmup_steps=50, flat_steps=450, decay_steps=500, eval_size=500
)
folder = tempfile.TemporaryDirectory()
measured = rs.measure(mine, task, train=recipe, store=folder.name + "/store")
print(
    f"recall {measured.accuracy.mean:.3f} with {measured.state_entries} numbers of state, {measured.parameters} parameters"
)

# %% [markdown]
# Guessing among the four values of the context would give 0.25. The same task and recipe, a linear Mamba with an equally large state:

# %%
ours = rs.measure(rs.LinearMambaSpec(embed_dim=8, state_dim=4), task, train=recipe, store=folder.name + "/store")
for one in (measured, ours):
    low, high = one.accuracy.interval
    print(
        f"{one.name:24} recall {one.accuracy.mean:.3f} [{low:.3f}, {high:.3f}]  state {one.state_entries} ({one.state_how})"
    )

# %% [markdown]
# Its state was not declared but measured: the rank of what later answers owe to earlier tokens. How many bits does it hold?

# %%
for one in (measured, ours):
    print(
        f"{one.name:24} {one.information.held:.1f} bits of {one.information.of_task:.1f}, {one.information.per_entry:.2f} per number"
    )

# %% [markdown]
# A linear Mamba stores 2 D N numbers and reads D N of them; this module reads all of its numbers. Several seeds and the search for a
# learning rate are in [Benchmark your model](../YOUR_MODEL.md).
