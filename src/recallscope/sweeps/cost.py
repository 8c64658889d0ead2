"""How long a run will take, roughly: enough to start long cells first and to guess the time left."""

from __future__ import annotations

from recallscope.specs import RunSpec

STEP_OVERHEAD = 2e7  # multiplications' worth of fixed work per step: some tens of small tensor operations


def estimated_cost(run: RunSpec) -> float:
    """Work of a run in multiplications, up to a factor that is the same for all runs of a kind.

    Scores of V tokens at every query, the mixer at every token, and the evaluations at their share.
    """
    task, model, train = run.task, run.model, run.train
    V, L, D, N = task.vocab_size, task.length, model.embed_dim, model.state_dim
    layers = model.num_layers if model.kind != "multihead" else 1
    heads = model.num_heads if model.kind == "multihead" else 1
    mixer = L * model.inner_dim * (D + 4 * N * heads) * layers
    if model.kind == "full":
        mixer *= 3  # no shortcut through the table of V rows, and a scan with a decay
    head = task.num_queries * V * D
    per_sequence = mixer + head
    trained = 3 * train.total_steps * (train.batch_size * train.accumulate * per_sequence + STEP_OVERHEAD)
    evaluations = 1 + -(-train.total_steps // train.eval_every)
    return float(trained + evaluations * train.eval_size * per_sequence)
