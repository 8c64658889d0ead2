"""The tasks: one file each for its spec; drawing batches of associative recall, and scoring the answers."""

from recallscope.lazy import lazy_names

_HOMES = {
    "NOTHING_ASKED": "recallscope.tasks.batch",
    "Batch": "recallscope.tasks.batch",
    "Score": "recallscope.tasks.scoring",
    "accuracy": "recallscope.tasks.scoring",
    "answered": "recallscope.tasks.scoring",
    "draw_batch": "recallscope.tasks.drawing",
    "score": "recallscope.tasks.scoring",
    "zoology_batch": "recallscope.tasks.zoology",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
