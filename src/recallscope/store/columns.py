"""The index's table: one row per run, one column per word of its spec and per number of its result."""

from __future__ import annotations

from recallscope.records import RunRecord
from recallscope.specs import RunSpec
from recallscope.store.attempts import Failure
from recallscope.store.words import WORDS, Value, in_words

RESULTS = ("test_accuracy", "val_accuracy", "test_queries", "best_step", "steps", "seconds")
COLUMNS: tuple[str, ...] = ("run", "status", *WORDS, *RESULTS)
TEXT_COLUMNS = frozenset(
    ("run", "status", "task", "model", "filler", "head_pattern", "norm", "activation", "transition", "delta_rank")
)
SHOWN = (
    "run", "task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim", "num_layers", "seed",
    "test_accuracy", "seconds",
)  # fmt: skip

CREATE = "CREATE TABLE runs (run TEXT PRIMARY KEY, {}) WITHOUT ROWID".format(
    ", ".join(f"{name} {'TEXT' if name in TEXT_COLUMNS else 'NUMERIC'}" for name in COLUMNS[1:])
)
INSERT = f"INSERT OR REPLACE INTO {{table}} VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 (our own names)

Row = tuple[Value, ...]


def row_of(found: RunRecord | Failure) -> Row:
    """The row of a finished or of a failed run."""
    done = isinstance(found, RunRecord)
    results = tuple(getattr(found, name) for name in RESULTS) if done else (None,) * len(RESULTS)
    return (found.run, "done" if done else "failed", *_spec_values(found.spec), *results)


def _spec_values(spec: RunSpec) -> Row:
    words = in_words(spec)
    return tuple(words.get(word) for word in WORDS)
