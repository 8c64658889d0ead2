"""Runs on disk: a folder of plain files that no crash can spoil. Reading needs no torch."""

from recallscope.store.attempts import Failure, note_attempt, read_attempts
from recallscope.store.claims import Claim
from recallscope.store.columns import COLUMNS
from recallscope.store.damaged import Fault
from recallscope.store.filters import Condition, parse_conditions
from recallscope.store.index import extend_index, find_runs, rebuild_index
from recallscope.store.marker import StoreError
from recallscope.store.reading import NewerRecordError, read_record
from recallscope.store.run_store import RunStore
from recallscope.store.upkeep import Health, collect_garbage, verify
from recallscope.store.words import WORDS, in_words

__all__ = [
    "COLUMNS",
    "WORDS",
    "Claim",
    "Condition",
    "Failure",
    "Fault",
    "Health",
    "NewerRecordError",
    "RunStore",
    "StoreError",
    "collect_garbage",
    "extend_index",
    "find_runs",
    "in_words",
    "note_attempt",
    "parse_conditions",
    "read_attempts",
    "read_record",
    "rebuild_index",
    "verify",
]
