"""Golden outputs: numbers that no refactoring may change. golden.json has them, outputs.py computes and writes them.

Laws, fields and scores may be renamed: what is found under another name has to be the same number.
"""

import json
import math

import outputs
import pytest
import torch

from recallscope.specs import RunSpec

GOLDEN = json.loads(outputs.GOLDEN.read_text(encoding="utf-8"))
SPREAD = 0.03  # rounding changes a run less than another seed does: nine seeds of ten are within 0.015 of this one


def assert_same_numbers(found, golden, *, rel=0.0, within=0.0, where=""):
    """Equal by name, up to rounding; those under names that only one side has are compared in order of size."""
    renamed = sorted(found.keys() - golden.keys()), sorted(golden.keys() - found.keys())
    assert len(renamed[0]) == len(renamed[1]), f"{where} new: {renamed[0]}, gone: {renamed[1]}"
    pairs = [(name, found[name], golden[name]) for name in golden if name in found]
    sizes = [sorted(values, key=lambda p: (p is None, p or 0)) for values in _values(found, golden, renamed)]
    pairs += [("renamed", *pair) for pair in zip(*sizes, strict=True)]
    for name, new, old in pairs:
        same = new is old if new is None or old is None else math.isclose(new, old, rel_tol=rel, abs_tol=within)
        assert same, f"{where} {name}: {new}, and it was {old}"


def _values(found, golden, renamed):
    return [found[name] for name in renamed[0]], [golden[name] for name in renamed[1]]


def test_every_committed_run_keeps_its_name():
    for name, spec in outputs.committed_specs().items():
        assert RunSpec.model_validate(spec).content_hash() == name, spec
    assert set(GOLDEN["run_names"]) <= set(outputs.run_names())  # runs are added, none goes


def test_laws_predict_what_they_predicted():
    """To 1e-10: quadrature nodes are eigenvalues, accurate to eps times the largest node, and laws use ratios of nodes.

    AVX-512 moves `full-mask` by 2.2e-12, all others by less than 2e-14. The quadratures themselves are good to 1e-6.
    """
    found = {entry["setting"]: entry for entry in outputs.predictions()}
    assert list(found) == [entry["setting"] for entry in GOLDEN["predictions"]]
    assert len(found) == 50
    for entry in GOLDEN["predictions"]:
        for side in ("laws", "upper"):
            assert_same_numbers(found[entry["setting"]][side], entry[side], rel=1e-10, where=entry["setting"])


def test_the_committed_store_lists_the_same_rows():
    found, golden = outputs.store_rows(GOLDEN["run_names"]), GOLDEN["store"]
    assert found["rows"] == golden["rows"]
    for new, old in zip(found["examples"], golden["examples"], strict=True):
        seen, kept = ([str(value) for value in row.values() if value is not None] for row in (new, old))
        assert seen == kept
    changed = [name for name, seen in found["columns"].items() if seen not in golden["columns"].values()]
    gone = [name for name, seen in golden["columns"].items() if seen not in found["columns"].values()]
    assert not changed, f"columns with other values: {changed}; before: {gone}"
    assert not gone, f"columns that are no longer there: {gone}"


def test_runs_draw_the_same_batches():
    assert outputs.batches() == GOLDEN["batches"]


def test_training_starts_from_the_same_weights():
    """To 1e-6: the normal numbers of torch differ in their last digit between instruction sets."""
    found = {f"{name}.{i}": x for name, values in outputs.initial_weights().items() for i, x in enumerate(values)}
    golden = {f"{name}.{i}": x for name, values in GOLDEN["initial_weights"].items() for i, x in enumerate(values)}
    assert_same_numbers(found, golden, within=1e-6)


def test_training_is_repeatable_and_ends_where_it_did():
    first, second = outputs.training(), outputs.training()
    weights = second.model.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in first.model.state_dict().items())
    assert first.record.history == second.record.history
    assert first.record.test_accuracy == second.record.test_accuracy
    assert first.record.run == GOLDEN["training"]["run"]
    assert first.record.test_accuracy == pytest.approx(GOLDEN["training"]["test_accuracy"], abs=SPREAD)


def test_inspection_finds_the_same_scores():
    """Angles by their cosines: near 0 the arc cosine turns one rounding of 1 into a millionth of a degree."""

    def comparable(scores):
        return {name: math.cos(math.radians(x)) if ".angles." in name else x for name, x in scores.items()}

    assert_same_numbers(comparable(outputs.inspection()), comparable(GOLDEN["inspection"]), rel=1e-6, within=1e-6)
