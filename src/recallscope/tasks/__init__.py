"""The tasks: one file each for its spec; drawing batches of associative recall, and scoring the answers."""

from recallscope.lazy import lazy_names

_NAMES = {
    "batch": "NOTHING_ASKED Batch",
    "dataset": "MQARDataset RecallDataset RecallStream",
    "drawing": "draw_batch",
    "scoring": "Score accuracy answered score",
    "zoology": "zoology_batch",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
