"""A law of one's own in one file."""

import numpy as np

from recallscope import Law


def my_law(problem):
    return np.clip(1 - problem.N_f / (problem.N * problem.D), 0, 1)


LAWS = [Law("my-law", my_law, summary="one minus the load of the state", reference="mine", holds="N D > N_f")]
