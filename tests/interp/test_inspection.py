"""The whole report: exact on circuits, unchanged by rotations, telling for trained models, honest for untrained."""

import copy
import json
import re

import pytest
from subjects import FULL_TASK, SMALL

from closeness import seeded
from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.architectures.model import build_model
from recallscope.circuits.linear import designed_circuit, ideal_circuit
from recallscope.interp.hash_table import fill_curve
from recallscope.interp.inspection import fill_counts, inspect_model
from recallscope.interp.operators import rotate_model
from recallscope.specs import parse_task


def test_every_score_of_the_ideal_circuit_is_the_exact_one():
    task = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "values"})
    scores = inspect_model(ideal_circuit(32), task, seeded(), num_sequences=30).to_dict()
    ones = ("g_vv_block_mass", "g_kq_block_mass", "decoded_hit_rate", "overwrite_success", "strength")
    assert [scores[name] for name in ones] == [1] * 5
    assert scores["closeness"] == pytest.approx(1, abs=1e-12)
    assert scores["auc"] == pytest.approx(1 - 3 / 2 / (32**2 - 4), abs=1e-12)
    assert scores["nearest_circuit"] == {"accuracy": 1.0, "agreement": 1.0}
    assert scores["attention"]["hit_rate"] == 1
    assert scores["copy"] == scores["shift"] == {"hit_rate": 1.0, "contrast": None}  # infinite: nothing else is there
    assert scores["projection"]["facts_only"] == 1
    assert scores["projection"]["without_facts"] == 0
    assert scores["ablation"] == {"circuit_only": 1.0, "without_value_block": 0.0, "without_match_block": 0.0}
    assert scores["fill"]["hit_rate"] == [1.0] * len(scores["fill"]["num_facts"])
    assert scores["fill"]["predicted"] == pytest.approx(scores["fill"]["hit_rate"], abs=1e-12)
    assert scores["overwrite"]["others_changed"] == scores["overwrite"]["others_changed_control"] == 0
    assert scores["laws"]["measured_variances"] == pytest.approx(1, abs=1e-12)


def numbers(value, path=""):
    if isinstance(value, dict):
        return [pair for name, item in value.items() for pair in numbers(item, f"{path}.{name}")]
    if isinstance(value, list):
        return [pair for i, item in enumerate(value) for pair in numbers(item, f"{path}[{i}]")]
    return [(path, value)] if isinstance(value, float) else []


SLOW = [pytest.param(which, marks=pytest.mark.slow) for which in ("trained_wide", "trained_deep")]


@pytest.mark.parametrize("which", ["designed", "trained", "trained_heads", *SLOW])
def test_no_score_depends_on_the_rotation(which, request):
    """All of them, to 1e-5, but for four kinds: the mean diagonals, which say what the free factor is; angles, as an
    angle of 0 loses half of its digits (their mean cosine is compared); the probe, whose ridge knows the size of
    the state; and the bits of the state, whose largest number depends on the axes."""
    if which == "designed":
        model = designed_circuit(64, 32, 16, seeded()).double()
    else:
        model = copy.deepcopy(request.getfixturevalue(which)).double()
    rotated = rotate_model(model, seeded(7))
    found = (inspect_model(m, SMALL, seeded(1), num_sequences=20) for m in (model, rotated))
    before, after = (dict(numbers(scores.to_dict())) for scores in found)
    assert before.keys() == after.keys()
    for name, score in before.items():
        if not re.search(r"mean_diagonals|angles|probe|state_bits", name):
            assert after[name] == pytest.approx(score, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize("which", ["trained", "trained_wide", "trained_heads"])
def test_a_quickly_trained_model_is_the_circuit(which, request):
    scores = inspect_model(request.getfixturevalue(which), SMALL, seeded(1), num_sequences=100).to_dict()
    assert scores["g_vv_block_mass"] > 0.8
    assert scores["g_kq_block_mass"] > 0.8
    assert scores["decoded_hit_rate"] > 0.97
    assert scores["auc"] > 0.99
    assert scores["overwrite_success"] >= 0.95
    assert scores["nearest_circuit"]["agreement"] > 0.85
    json.dumps(scores, allow_nan=False)


def test_a_wide_convolution_may_write_late_and_is_read_where_it_writes(trained_wide):
    """Width 4 leaves three places; the blocks are looked for at the one used."""
    scores = inspect_model(trained_wide, SMALL, seeded(1), num_sequences=50).to_dict()
    (part,) = scores["parts"]
    assert len(part["g_vv_blocks"]) == 4
    assert scores["g_vv_block_mass"] == max(part["g_vv_blocks"])
    assert scores["g_kq_block_mass"] == max(max(row) for row in part["g_kq_blocks"])


def test_an_untrained_model_is_called_nothing():
    model = build_model(LinearMambaSpec(embed_dim=16, state_dim=8), 64, seeded())
    scores = inspect_model(model, SMALL, seeded(1), num_sequences=20).to_dict()
    assert scores["closeness"] < 0.1
    assert scores["overwrite_success"] < 0.3
    json.dumps(scores, allow_nan=False)


def test_full_mamba_gets_what_carries_over(trained_full):
    scores = inspect_model(trained_full, FULL_TASK, seeded(1), num_sequences=100).to_dict()
    assert scores["g_vv_block_mass"] is scores["decoded_hit_rate"] is scores["auc"] is None
    assert scores["attribution_hit_rate"] > 0.9
    assert {item["section"] for item in scores["left_out"]} >= {"operators", "table", "laws"}
    assert all("SiLU" in item["why"] for item in scores["left_out"])
    assert scores["probe"]["accuracy"] > 0.8
    json.dumps(scores, allow_nan=False)


def test_windows_of_one_token_hold_no_table():
    """What is left are its answers and what needs no table; the report says what to do."""
    model = build_model(LinearMambaSpec(embed_dim=16, state_dim=8, conv_width=1), 64, seeded())
    found = inspect_model(model, SMALL, seeded(), num_sequences=4)
    assert found.operators is found.table is found.overwrite is found.ablation is None
    others = ("shift_test", "rates", "banks")  # a linear model has none of these, whatever its windows
    assert all("conv_width >= 2" in item.why for item in found.left_out if item.section not in others)
    assert found.behaviour.queries == 16
    with pytest.raises(ValueError, match="num_sequences"):
        inspect_model(model, SMALL, seeded(), num_sequences=1)


def test_a_table_fills_up_as_predicted():
    """Against the law with this model's own variances. It is for trained codes, where only values compete: a
    designed circuit, where all tokens do, stays up to .15 below."""
    model = designed_circuit(128, 32, 16, seeded())
    curve = fill_curve(model, [1, 16, 32, 63], num_sequences=40, generator=seeded(1))
    assert curve.hit_rate[0] == 1
    assert list(curve.hit_rate) == sorted(curve.hit_rate, reverse=True)
    assert curve.hit_rate[-1] < 0.9
    for measured, predicted in zip(curve.hit_rate, curve.predicted, strict=True):
        assert predicted - 0.2 < measured < predicted + 0.02


def test_a_table_cannot_hold_more_facts_than_keys():
    with pytest.raises(ValueError, match="1 <= n <= 31"):
        fill_curve(ideal_circuit(64), [32], num_sequences=2, generator=seeded())
    assert fill_counts(64, 4)[-1] == 31
    assert SMALL.num_facts in fill_counts(64, 4)
