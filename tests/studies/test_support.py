"""What a law's support line says of its errors is what the committed runs give."""

import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from recallscope.records import row_of
from recallscope.runs.store import RunStore
from recallscope.theory.law import find_law
from recallscope.theory.problem import Problem

STORE = Path(__file__).parents[2] / "results" / "paper"
STEPS = 1500  # a whole training, not one of a search for a learning rate
CELL = ("task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim", "head_pattern", "num_heads")


@pytest.fixture(scope="module")
def rows():
    """Committed runs of one plain layer that no flag speaks against."""
    found = [record for record in RunStore(STORE).records() if not record.flag]
    return [
        row
        for record in found
        if (row := row_of(record))["task"] in ("ar", "mqar")
        and row.get("conv_width") == 2
        and row["flat_steps"] + row["decay_steps"] > STEPS
    ]


def errors(rows, law, kind):
    """Mean of seeds less the law, by task, of every cell of this kind of model inside what the law was compared to."""
    cells = defaultdict(list)
    for row in rows:
        if row["model"] == kind and not law.extrapolated(Problem.from_fields(row)).any():
            cells[tuple(row.get(name) for name in CELL), row["batch_size"]].append(row["test_accuracy"])
    off = defaultdict(list)
    for (cell, _), accuracies in cells.items():
        problem = Problem.from_fields(dict(zip(CELL, cell, strict=True)))
        off[problem.task].append(abs(np.mean(accuracies) - float(law(problem))))
    return off


def rounded_up(error):
    return math.ceil(100 * error) / 100


@pytest.mark.parametrize(
    ("name", "kind"), [("trained-sharing", "linear_mamba"), ("trained-sharing-heads", "multihead")]
)
def test_the_support_line_says_what_the_committed_runs_give(rows, name, kind):
    law = find_law(name)
    mean, *most = (float(number) for number in re.findall(r"\.\d+", law.support.partition("(")[0]))
    off = errors(rows, law, kind)
    assert round(np.mean(np.concatenate(list(off.values()))), 2) == mean
    assert [rounded_up(max(off[task])) for task in ("mqar", "ar") if task in off] == most
