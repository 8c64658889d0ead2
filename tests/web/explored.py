"""Made-up runs for the explorer, and the name it is called by."""

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import Evaluation, RunRecord
from recallscope.specs import RunSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.law import find_law

HOST = "127.0.0.1:8000"


def made_up(embed_dim, state_dim, seed=0):
    """A run whose accuracy is what a law says."""
    task, model = MQARSpec(vocab_size=512, num_facts=16), LinearMambaSpec(embed_dim=embed_dim, state_dim=state_dim)
    p = float(find_law("unified-mv")(vocab_size=512, num_facts=16, embed_dim=embed_dim, state_dim=state_dim))
    spec = RunSpec(task=task, model=model, seed=seed)
    history = [Evaluation(step=250 * k, loss=4.0 / k, accuracy=p * k / 8) for k in range(1, 9)]
    return RunRecord(
        run=spec.content_hash(), spec=spec, test_accuracy=p, val_accuracy=p, test_queries=160_000, best_step=2000,
        steps=2000, seconds=8.25, state_entries=model.state_entries, history=history,
    )  # fmt: skip
