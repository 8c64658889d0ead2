"""MQAR: every fact is asked once."""

from recallscope.specs import task
from recallscope.tasks.associative_recall import AssociativeRecall


@task("mqar")
class MQARSpec(AssociativeRecall):
    """Multi-query associative recall: N_f facts, then every one of them is asked, filler in between.

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`).
    """
