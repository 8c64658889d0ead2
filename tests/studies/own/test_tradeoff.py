"""The trade-off study's tables, figures and findings from made-up runs, some of which are missing."""

import numpy as np
import pytest

from made_records import made
from recallscope.runs.store import RunStore
from recallscope.studies.own.tradeoff import (
    formula,
    label_of,
    learning_shares,
    predicted,
    results_table,
    tradeoff_figure,
    trained,
    zoology_table,
)
from recallscope.studies.paper_runs import PaperRuns

FACTS = (2, 4, 8, 16, 32)


def record(cell, accuracy, facts=FACTS):
    """Of a run that recalls so well for n facts; the rate 0.0316 never learns."""
    lost = cell.spec.train.learning_rate > 0.03
    by_facts = {str(n): 1 / n if lost else accuracy(n) for n in facts}
    p = by_facts[str(facts[-1])]
    bound = {"in_context": 1.0, "binding": 0.0 if lost else 0.5}
    return made(cell.spec, p, test_queries=8000, steps=707, by_facts=by_facts, **bound)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Linear attention follows the law, attention is perfect; of DeltaNet a run is missing."""
    store = RunStore(tmp_path_factory.mktemp("tradeoff"), create=True)
    parts = PaperRuns(store, "small", ["tradeoff"]).parts
    for cell in parts[label_of("linear attention", 0)].cells:
        size = np.array([float(cell.spec.model.effective_entries)])
        store.put(record(cell, lambda n, size=size: float(predicted(size, n, 128)[0])))
    for seed in range(2):
        for cell in parts[label_of("attention", seed)].cells:
            store.put(record(cell, lambda n: 1.0))
    for cell in parts[label_of("DeltaNet", 0)].cells[:-1]:
        store.put(record(cell, lambda n: 0.5))
    full = PaperRuns(store, "paper", ["tradeoff"]).parts[label_of("GLA", 0)].cells
    (gla,) = (c for c in full if c.spec.model.embed_dim == 64 and c.spec.train.learning_rate == 0.001)
    store.put(record(gla, lambda n: 0.9, (4, 256)))
    return PaperRuns(store, "small", ["tradeoff"])


def test_only_complete_seeds_count_and_only_rates_that_learn(runs):
    assert [(one.rival.label, len(one.records)) for one in trained(runs)] == [
        *[("attention", 6)] * 3,
        *[("linear attention", 3)] * 3,
    ]
    assert learning_shares(runs) == {"attention": pytest.approx(2 / 3), "linear attention": pytest.approx(2 / 3)}
    figure, _, rates, _, *lines = results_table(runs)
    assert "figures/tradeoff.png" in figure
    assert "figures/tradeoff-rates.png" in rates
    assert len(lines) == 2 + 6
    assert lines[2].startswith("| attention, D = 16 | 3,072 | 1.000 | 1.000 |")
    assert lines[2].endswith("| 1.000, 1.000 | 0.0032 | 4 of 6 | 0.0032, 0.01 |")


def test_the_formula_is_held_against_linear_states(runs):
    (found,) = formula(runs)
    assert found.ours.startswith("mean absolute error 0.000")
    assert found.missing == 324 - 9 * 3 - 8


def test_the_figure_has_a_panel_for_two_numbers_of_facts(runs):
    few, many = tradeoff_figure(runs).axes
    assert (few.get_title(), many.get_title()) == ("8 facts", "32 facts")
    assert [text.get_text() for text in many.get_legend().get_texts()][3:] == ["attention", "linear attention"]


def test_what_did_not_learn_is_marked_and_held_against_no_law(runs, tmp_path):
    store = RunStore(tmp_path, create=True)
    for cell in runs.parts[label_of("GLA", 0)].cells:
        done = record(cell, lambda n: 1 / n)
        store.put(done.model_copy(update={"binding": 0.0}))
    failed = PaperRuns(store, "small", ["tradeoff"])
    assert "| *0.500* | *0.250* |" in list(results_table(failed))[6]
    (found,) = formula(failed)
    assert (found.tested, found.evidence) == (False, "no seed is complete yet, or none learned")
    hollow = [line for line in tradeoff_figure(failed).axes[0].lines if line.get_markerfacecolor() == "white"]
    assert len(hollow[0].get_xdata()) == 3


def test_our_runs_of_the_full_protocol_stand_below_theirs(runs):
    lines = list(zoology_table(runs))
    (place,) = (index for index, line in enumerate(lines) if line.startswith("| **ours**"))
    assert lines[place - 1].startswith("| gla | 64 | 0.001 | 0.998")
    assert lines[place] == "| **ours**, seed 0, 707 steps | 64 | 0.001 | 0.900 |  |  |  |  |  | 0.900 |"
    assert lines[-1] == "Ours differ from theirs by 0.490 on average, by 0.883 at most."
