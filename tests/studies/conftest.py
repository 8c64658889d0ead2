"""A small report with all that can go wrong in it."""

import pytest

from recallscope.studies.claims import Check, Finding
from recallscope.studies.law_table import LawEntry, LawTable
from recallscope.studies.report import PartFacts, Picture, Report, RunFacts

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000000000500010d0a2db40000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><rect width="4" height="4"/></svg>'
NASTY = "<script>alert('x')</script> & \"a|b\" `c` [d](http://e.f) *g* _h_ $i$ N_f ~~j~~ \\| <!-- k -->"


def on_fig_7(question, ours, verdict, evidence):
    return Finding("fig-7", question, "they agree", ours, verdict, "up to 0.02", evidence, "fig-7")


@pytest.fixture
def findings():
    return {
        "dn-grid": [
            on_fig_7("Theory against trained", "off by 0.01 [0.00, 0.02]", "holds", "50 runs"),
            on_fig_7("Designed against theory", "off by 0.09", "does not hold", "9 cells"),
            Finding("rem-4.4", NASTY, NASTY, NASTY, "holds approximately", NASTY, NASTY, "fig-1", missing=3),
        ],
        "layers": [Check("fig-10", "Depth", "Lambda N alone", "fig-10").untested("no runs yet", missing=1)],
        "heads": [Finding("fig-6", "Heads", "MHA is best", "MHA is best", "holds", "all", "36 runs", "heads-figure")],
    }


@pytest.fixture
def laws():
    return LawTable(
        groups=("linear | MQAR", "designed"),
        laws=("unified", "trained-sharing", "narrow", "silent"),
        entries={
            ("unified", "linear | MQAR"): LawEntry(0.08, 0.3, -0.05, 25),
            ("trained-sharing", "linear | MQAR"): LawEntry(0.006, 0.02, 0.001, 25),
            ("narrow", "linear | MQAR"): LawEntry(0.0001, 0.001, 0.0, 3),
            ("unified", "designed"): LawEntry(0.02, 0.1, 0.0, 10),
            ("trained-sharing", "designed"): LawEntry(float("nan"), float("nan"), float("nan"), 10),
        },
        notes=("The printed law fails below 1/sigma = 2.", "1. <b>not bold</b>"),
    )


@pytest.fixture
def facts():
    return RunFacts(
        scale="small", runs=51, asked=410, core_seconds=12345.0, store="my runs/paper",
        environment={"device": ("cpu",), "torch": ("2.12.0", "2.13.0+cpu")},
        parts={"dn-grid": (PartFacts("linear MQAR (iii)", 14, 25, "batch 32 | less"),)},
    )  # fmt: skip


@pytest.fixture
def report(findings, laws, facts):
    pictures = [
        Picture("fig-7", f"Accuracy over D and N {NASTY}", "dn-grid", PNG),
        Picture("heads-figure", "Four patterns", "heads", SVG),
        Picture("nobody's", "nobody's", "", PNG),
        Picture("homeless", "homeless", "seeds", SVG),
        Picture("fig-10", "layers", "layers", why_not="no runs of layers"),
    ]
    return Report(findings, laws, facts, pictures)
