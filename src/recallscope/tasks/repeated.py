"""Repeated keys: the facts are written several times, with other values each time."""

from recallscope.specs import task
from recallscope.tasks.associative_recall import AssociativeRecall


@task("repeated")
class RepeatedSpec(AssociativeRecall):
    """MQAR whose block of facts is written N_k times with the same keys and fresh values; the last value is asked.

    Paper: App. I.2 (`app-subsec:repeated-keys-queries`).
    Departs: the facts fill 2 N_f N_k tokens, so L >= 2 N_f (N_k + 1), where the text takes L >= 4 N_f for granted.
    """

    def _check_repeats(self) -> None:
        """Any number of repeats."""
