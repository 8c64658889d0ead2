"""Fresh cells: no law was compared with them before, and their errors are apart from those of the other cells."""

from pathlib import Path

import numpy as np
from made_up import fill

from recallscope.runs.store import RunStore
from recallscope.studies.architecture_variants import WITH_LAWS as VARIANTS
from recallscope.studies.architecture_variants import label_of, law_errors
from recallscope.studies.own.architectures import CELLS as COMPARISON_CELLS
from recallscope.studies.own.fresh_cells import CELLS, fresh_cells
from recallscope.studies.paper_runs import PaperRuns

STORE = Path(__file__).resolve().parents[3] / "results" / "paper"


def test_no_cell_is_one_of_the_comparison() -> None:
    assert len(VARIANTS) == 4
    assert not set(CELLS) & set(COMPARISON_CELLS)
    for V, N_f, D, N in CELLS:
        assert V >= 256
        assert N < min(N_f, D)


def test_findings_are_apart_from_the_comparison(tmp_path: Path) -> None:
    """Runs as `unified-mv` has them are far from the laws of these memories; no other run is there."""
    runs = fill(tmp_path, "quick", [label_of("fresh", variant) for variant in VARIANTS], designed=False, inside=False)
    *memories, frozen = fresh_cells.find(runs)
    found = {finding.question.split()[3]: finding for finding in memories}
    assert list(found) == ["gated", "delta", "least-squares"]
    assert frozen.evidence == "the store has no predictions of the first commit"
    assert {finding.verdict for finding in found.values()} == {"does not hold"}
    assert found["delta"].ours.count("(comparison not run)") == 2
    empty, _ = fresh_cells.find(PaperRuns(RunStore(tmp_path / "none", create=True), "quick"))
    assert empty.verdict == "not tested"


def test_the_committed_fresh_cells_are_as_near_as_the_support_lines_say() -> None:
    found = law_errors(PaperRuns(RunStore(STORE), "small"), "fresh", VARIANTS)
    errors = {variant.label: np.abs(size) for variants in found.values() for variant, size in variants.items()}
    admitted = {"mLSTM": (0.0115, 0.03), "MesaNet": (0.0105, 0.025)}
    admitted |= {"DeltaNet": (0.0105, 0.02), "Gated DeltaNet": (0.03, 0.05)}
    assert set(errors) == set(admitted)
    for label, (mean, largest) in admitted.items():
        assert len(errors[label]) == len(CELLS)
        assert errors[label].mean() <= mean
        assert errors[label].max() <= largest


def test_the_law_as_first_committed_is_as_near_as_the_page_says() -> None:
    """Its predictions were not touched since, and are those of today's law to 0.002."""
    *_, found = fresh_cells.find(PaperRuns(RunStore(STORE), "small"))
    assert found.ours.startswith("mean absolute error 0.01")
    assert "MQAR (i) and (ii) 0.005" in found.ours
    assert float(found.evidence.split("by at most ")[1].split(".", 2)[1][:4]) <= 20, "in units of 1e-4"
