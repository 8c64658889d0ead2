"""Masks of gated models: one bit, several or none; on masks made up, on a circuit, and on models that learnt theirs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from closeness import assert_near, seeded
from recallscope.architectures.capabilities import HasMasks
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.circuits.bank import bank_circuit
from recallscope.figures.mechanism import banks_figure
from recallscope.interp.banks import channel_masks, mask_scores, measure_banks, picture_masks
from recallscope.specs import parse_task
from recallscope.tasks.batch import answered
from recallscope.tasks.drawing import sample_batch
from recallscope.train.weights import read_weights

TASK = parse_task({"kind": "mqar", "vocab_size": 64, "num_facts": 4})
TRAINED = Path(__file__).parents[2] / "results" / "mechanism" / "full" / "weights.safetensors"


@pytest.fixture(scope="module")
def circuit():
    return bank_circuit(64, 12, 3, seeded())


@pytest.fixture(scope="module")
def scores(circuit):
    return measure_banks(circuit, sample_batch(TASK, 100, seeded(1)), seeded(2))


@pytest.mark.parametrize("count", [2, 20, 50])
def test_a_bit_is_two_valued_however_many_keys_have_it(count):
    """The 4th moment of a bit is 1 / (p (1 - p)) - 3: 1 for half of the keys, that of a Gaussian for a fifth."""
    bit = (torch.arange(100) < count).float()
    mask = torch.outer(bit, torch.rand(8, generator=seeded())) + 1
    found, z = mask_scores(mask)
    p = count / 100
    assert found.share == pytest.approx(1, abs=1e-6)
    assert found.two_valued == pytest.approx(1, abs=1e-6)
    assert found.fourth_moment == pytest.approx(1 / (p * (1 - p)) - 3, rel=1e-6)
    assert found.in_one_bank == pytest.approx(p)
    assert abs(float(torch.corrcoef(torch.stack((z, bit.double())))[0, 1])) == pytest.approx(1, abs=1e-6)


def test_several_bits_are_several_directions_and_a_constant_is_none():
    bits = (torch.rand(2000, 5, generator=seeded()) < 0.5).float()
    found, _ = mask_scores(bits @ torch.eye(5).repeat(1, 4))
    assert found.share < 0.3
    assert found.directions == pytest.approx(5, abs=0.2)
    assert mask_scores(torch.ones(10, 4))[0].share == 0


def test_the_circuit_has_exactly_one_bit(scores):
    assert scores.read.share == pytest.approx(1, abs=1e-6)
    assert scores.write.share > 0.97  # the channels of the key differ from key to key as well
    for mask in (scores.read, scores.write):
        assert mask.fourth_moment == pytest.approx(1, abs=0.01)
        assert mask.two_valued == pytest.approx(1, abs=1e-4)
    assert scores.correlation == pytest.approx(1, abs=1e-4)
    assert scores.mechanism.startswith("two banks")


def test_nothing_but_facts_makes_noise_in_the_circuit(scores):
    others = [power for name, power in scores.noise.pairs.items() if name != "key, value"]
    assert max(others) < 1e-6 * scores.noise.pairs["key, value"]
    assert scores.noise.shared_dimensions == 36
    assert scores.noise.bank_dimensions == 63
    assert scores.noise.dimensions > 1.4 * 36  # tight frames of few words are better than either count


def test_ablations_take_the_banks_away_and_nothing_else_matters(scores):
    cut = scores.ablations
    assert cut["no_decay"] == cut["as_is"]
    assert cut["only_facts"] >= cut["as_is"]
    for name in ("mean_gate", "no_interaction", "mean_delta_of_facts", "equal_delta"):
        assert cut[name] < cut["as_is"] - 0.1, name


@torch.no_grad()
def test_a_memory_left_as_it_is_answers_as_the_model(circuit):
    batch = sample_batch(TASK, 20, seeded(1))
    for model in (circuit, build_model(MambaSpec(embed_dim=12, state_dim=3), 64, seeded())):
        logits = model.answer_changed(batch.tokens, batch.query_positions, lambda memory: memory)
        expected = model.answer(batch.tokens, batch.query_positions)
        assert_near(logits, expected)


def test_a_trained_model_with_room_to_spare_uses_no_bank():
    """The committed full Mamba: 8 facts in 64 x 16 numbers."""
    model, task = read_weights(TRAINED)
    batch = sample_batch(task, 100, seeded(1))
    found = measure_banks(model, batch, seeded(2))
    assert found.mechanism.startswith("none")
    assert found.noise.pairs["value, key"] < 0.05 * found.noise.pairs["key, value"]
    right = answered(model.answer(batch.tokens, batch.query_positions), batch)
    assert found.ablations["as_is"] == pytest.approx(float(right.double().mean()), abs=1e-9)


def test_the_mechanism_is_said_as_the_numbers_are(scores):
    several = replace(scores, read=replace(scores.read, share=0.3, directions=7.2))
    assert several.mechanism == "several directions of masks, about 7: not two banks"
    assert replace(scores, correlation=0.2).mechanism.startswith("the gate splits keys in two")
    assert replace(scores, ablations=scores.ablations | {"mean_gate": 1.0}).mechanism.startswith("none")


def test_models_without_a_gate_or_with_wide_windows_say_why_not():
    whys = [
        build_model(spec, 16, seeded()).why_not(HasMasks)
        for spec in (
            MambaSpec(embed_dim=8, state_dim=2, gate=False),
            MambaSpec(embed_dim=8, state_dim=2, conv_width=4),
            LinearMambaSpec(embed_dim=8, state_dim=2),
        )
    ]
    assert "without a gate" in whys[0]
    assert "conv_width=2" in whys[1]
    assert "HasMasks" in whys[2]


def test_the_picture_shows_the_masks_in_order(circuit, scores):
    arrays, masks = picture_masks(circuit), channel_masks(circuit)
    assert arrays["read"].shape == masks.read.shape == (31, 24)
    assert (np.diff(arrays["read_coordinate"]) >= 0).all()
    assert np.corrcoef(arrays["read_coordinate"], arrays["write_coordinate"])[0, 1] > 0.99
    figure = banks_figure(arrays, scores.ablations, "D=12")
    read, write, keys, cut = figure.axes[:4]
    np.testing.assert_array_equal(np.asarray(read.images[0].get_array()), arrays["read"])
    np.testing.assert_array_equal(np.asarray(write.images[0].get_array()), arrays["write"])
    assert len(keys.collections[0].get_offsets()) == 31
    assert [bar.get_width() for bar in cut.patches] == list(scores.ablations.values())
