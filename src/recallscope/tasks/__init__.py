"""The tasks: drawing batches of associative recall, and scoring the answers."""

from recallscope.tasks.batch import NOTHING_ASKED, Batch
from recallscope.tasks.draw import draw_batch
from recallscope.tasks.scoring import Score, accuracy, answered, score
from recallscope.tasks.zoology import zoology_batch

__all__ = ["NOTHING_ASKED", "Batch", "Score", "accuracy", "answered", "draw_batch", "score", "zoology_batch"]
