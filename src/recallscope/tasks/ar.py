"""AR: one fact is asked."""

from recallscope.specs import task
from recallscope.tasks.associative_recall import AssociativeRecall


@task("ar")
class ARSpec(AssociativeRecall):
    """Associative recall: N_f facts, then one query. It is MQAR at L = 4 N_f, cut after its first query.

    Paper: Sec. 2 (`par:mqar-definition`).
    """

    @classmethod
    def shortest_length(cls, num_facts: int, key_repeats: int) -> int:
        """2 N_f + 1."""
        return 2 * num_facts + 1

    def _check_length(self) -> None:
        N_f = self.num_facts
        if self.length != 2 * N_f + 1:
            raise ValueError(
                f"length={self.length} does not fit kind='ar': one query after {N_f} facts makes "
                f"2 N_f + 1 = {2 * N_f + 1} tokens (Sec. 2). Leave length out, or use kind='mqar'."
            )

    @property
    def num_slots(self) -> int:
        """The query stands in one place."""
        return 1

    @property
    def num_queries(self) -> int:
        """One."""
        return 1

    @property
    def drawn_slots(self) -> int:
        """All N_f, of which the first is kept."""
        return self.num_facts
