"""Records without training, as many as a test wants."""

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import Evaluation, RunRecord, record_text
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, parse_task


def spec(embed_dim=32, state_dim=8, seed=0, **task):
    fields = {"vocab_size": 512, "num_facts": 16} | task
    return RunSpec(task=parse_task(fields), model=LinearMambaSpec(embed_dim=embed_dim, state_dim=state_dim), seed=seed)


def record(run=None, accuracy=0.5, **fields):
    run = run or spec(**fields)
    history = [Evaluation(step=250 * k, loss=1.0 / k, accuracy=accuracy * k / 8) for k in range(1, 9)]
    return RunRecord(
        run=run.content_hash(), spec=run, test_accuracy=accuracy, val_accuracy=accuracy, test_queries=160_000,
        best_step=2000, steps=2000, seconds=8.25, history=history, environment={"torch": "none"},
    )  # fmt: skip


def fill(store: RunStore, count: int):
    """Write records as fast as the disk allows, past the care of `put`; returns them in order of making."""
    made = []
    for number in range(count):
        D, N, seed = 16 * (1 + number % 4), 4 * (1 + number // 4 % 5), number // 20
        found = record(embed_dim=D, state_dim=N, seed=seed, accuracy=(number % 97) / 97)
        folder = store.folder(found.run)
        folder.mkdir(parents=True)
        (folder / "record.json").write_bytes(record_text(found))
        made.append(found)
    return made
