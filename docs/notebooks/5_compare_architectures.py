# %% [markdown]
# # Compare five architectures
#
# Equal task, equal sizes, equal training; small enough for a minute. For differences that you want to believe use several seeds and
# longer trainings, as [the architecture comparison](../ARCHITECTURE_COMPARISON.md) does.

# %%
import tempfile

import matplotlib.pyplot as plt

import recallscope as rs
from recallscope.runs.store import RunStore
from recallscope.specs import ARCHITECTURES

task = rs.MQARSpec(vocab_size=64, num_facts=8)
recipe = rs.TrainSpec(
    batch_size=16, learning_rate=0.01, warmup_steps=50, flat_steps=250, decay_steps=300, eval_size=500
)
store = RunStore(tempfile.mkdtemp() + "/store", create=True)
for kind in ("linear_mamba", "linear_attention", "gla", "delta_net", "attention"):
    model = ARCHITECTURES.find(kind)(embed_dim=16, state_dim=8)
    trained = rs.train_run(rs.RunSpec(task=task, model=model, train=recipe), progress=False)
    store.put(trained.record)
print(f"{len(list(store.records()))} trainings")

# %%
runs = rs.load_runs(store.root).sort_values("test_accuracy")
runs["state"] = runs["effective_entries"].astype("string").fillna("grows")
figure, ax = plt.subplots(figsize=(5, 2.4), layout="constrained")
ax.barh(runs["model"], runs["test_accuracy"])
for place, run in enumerate(runs.itertuples()):
    ax.text(run.test_accuracy + 0.01, place, f"{run.test_accuracy:.2f}, state {run.state}", va="center")
ax.set(xlabel="recall", xlim=(0, 1.25))
plt.show()

# %% [markdown]
# `linear_mamba` and `linear_attention` add what they read to the state; `gla` lets it fade; `delta_net` replaces what a key held;
# `attention` keeps every token, so its state grows with the text. [Ideas in pictures](../ideas.md) says why that matters.
