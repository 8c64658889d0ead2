"""The commands behind a report, to be pasted."""

from __future__ import annotations

from shlex import quote

from recallscope.report.facts import RunFacts
from recallscope.sweeps.paper_grids import EXPERIMENTS


def rerun_commands(facts: RunFacts) -> tuple[tuple[str, str], ...]:
    """Every command with what it does; the runs first, then what is made of them."""
    store, scale = quote(facts.store), facts.scale
    flags = "" if scale == "small" else f" --scale {scale}"
    return (
        *(
            (f"recallscope reproduce {name} --scale {scale} --store {store}", experiment.says)
            for name, experiment in EXPERIMENTS.items()
        ),
        (f"recallscope store list {store}", "what the store holds"),
        (f"recallscope fit {store}", "a and b of every grid with intervals, and every law against it"),
        (f"recallscope draw all --store {store} --out figures{flags}", "the figures alone"),
        (f"recallscope report {store} --out report.html{flags}", "this page"),
        ("recallscope claims", "every statement of the paper, with function and test"),
    )
