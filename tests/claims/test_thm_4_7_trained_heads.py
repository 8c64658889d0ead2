"""Thm 4.7 and trained models: the order of the patterns holds, the sizes do not; counted in channels they do.

On the committed records of `recallscope reproduce heads --scale small`. Exact files, so no false alarms: the bounds
are what was measured, with room for a retraining on another machine.
"""

from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame

from recallscope.analysis.table import accuracies, cells_of, rows_of
from recallscope.runs.store import RunStore
from recallscope.studies.law_table import counted
from recallscope.studies.paper.heads import PATTERNS
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.laws.sharing import sharing_law

STORE = Path(__file__).resolve().parents[2] / "results" / "paper"


@pytest.fixture(scope="module")
def cells() -> dict[str, DataFrame]:
    runs = PaperRuns(RunStore(STORE), "small")
    return {name: cells_of(rows[rows["num_heads"] > 1]) for name in PATTERNS if len(rows := runs.rows(name))}


@pytest.mark.parametrize(("pattern", "most"), [("MQA", 0.02), ("MKA", 0.02), ("MVA", 0.01), ("MHA", 0.02)])
def test_counting_channels_predicts_trained_heads(cells: dict[str, DataFrame], pattern: str, most: float) -> None:
    measured = accuracies(cells[pattern])
    predicted = counted(cells[pattern])
    assert len(measured) == 9
    assert np.abs(measured - predicted).mean() < most


def test_values_are_not_squeezed_into_d_over_m_dimensions(cells: dict[str, DataFrame]) -> None:
    """Lem H.3 and H.4 say single[D/M, N]; two heads lose nothing at all."""
    for cell in (*rows_of(cells["MQA"]), *rows_of(cells["MKA"])):
        D, N, M = cell["embed_dim"], cell["state_dim"], cell["num_heads"]
        printed, single = (
            float(sharing_law(vocab_size=512, num_facts=16, embed_dim=d, state_dim=N)) for d in (D / M, D)
        )
        assert cell["test_accuracy"] > printed + 0.03
        if M == 2:
            assert cell["test_accuracy"] == pytest.approx(single, abs=0.02)


def test_mha_stays_below_the_upper_bound_of_the_theorem(cells: dict[str, DataFrame]) -> None:
    """Lem H.5: at most single[D, M N]; reached for M = 2 only."""
    for cell in rows_of(cells["MHA"]):
        M, N = cell["num_heads"], cell["state_dim"]
        bound = float(sharing_law(vocab_size=512, num_facts=16, embed_dim=cell["embed_dim"], state_dim=M * N))
        assert cell["test_accuracy"] < bound + 0.01
