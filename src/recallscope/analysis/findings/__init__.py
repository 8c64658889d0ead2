"""What the runs say about the paper, claim by claim: its number, ours with its error, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recallscope.analysis.findings.curves import curve_findings
from recallscope.analysis.findings.finding import Finding, Verdict
from recallscope.analysis.findings.grids import grid_findings
from recallscope.analysis.findings.heads import head_findings
from recallscope.analysis.findings.inside import inside_findings
from recallscope.analysis.findings.layers import layer_findings
from recallscope.analysis.findings.minimality import ladder_findings
from recallscope.analysis.findings.repeated import repeated_findings
from recallscope.analysis.findings.seeds import seed_findings
from recallscope.analysis.findings.vocabulary import vocabulary_findings
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import EXPERIMENTS, PaperExperiment

MAKERS: Mapping[str, Callable[[PaperRuns], list[Finding]]] = {
    "dn-grid": grid_findings,
    "curves": curve_findings,
    "layers": layer_findings,
    "heads": head_findings,
    "large-vocab": vocabulary_findings,
    "repeated-keys": repeated_findings,
    "minimality": ladder_findings,
    "mechanism": inside_findings,
    "seeds": seed_findings,
}


def findings_of(runs: PaperRuns, experiment: PaperExperiment) -> list[Finding]:
    """What one experiment says."""
    return MAKERS[experiment.name](runs)


def all_findings(runs: PaperRuns) -> dict[str, list[Finding]]:
    """All experiments, in their order."""
    return {name: findings_of(runs, experiment) for name, experiment in EXPERIMENTS.items()}


__all__ = ["MAKERS", "Finding", "Verdict", "all_findings", "findings_of"]
