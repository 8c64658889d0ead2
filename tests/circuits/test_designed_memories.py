"""Circuits beyond linear Mamba: a write gate, the delta rule, least squares, two banks; each against its law."""

import pytest
import torch

from closeness import assert_near, seeded
from recallscope.circuits.bank import bank_circuit
from recallscope.circuits.codes import tight_frame
from recallscope.circuits.gated import delta_circuit, gated_circuit, least_squares_circuit
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.laws.sharing import recall_given_variances
from recallscope.train.evaluate import evaluate

MEMORIES = {
    "gated": gated_circuit,
    "delta": lambda *sizes: delta_circuit(*sizes, write_rate=0.3),
    "least squares": least_squares_circuit,
    "bank": bank_circuit,
}


def recall(build, num_facts, *sizes, draws=8, **options):
    """Mean over draws of 100 sequences each: 1600 or 3200 queries a draw and more, standard error below .005."""
    g, task = seeded(1), MQARSpec(vocab_size=sizes[0], num_facts=num_facts)
    return sum(evaluate(build(*sizes, g, **options), task, 100, g).accuracy for _ in range(draws)) / draws


def far_apart(one, other):
    """Relative to the largest logit. A closed gate of `bank` lets 1e-5 through, in any precision."""
    return float((one - other).abs().max() / other.abs().max())


@pytest.mark.parametrize("name", MEMORIES)
@torch.no_grad()
def test_nothing_but_facts_is_written(name):
    """Logits do not change, but for rounding, when (value, key), (key, key) and (value, value) neighbours do."""
    model = MEMORIES[name](64, 16, 6, seeded())
    facts = [[3, 40], [7, 50], [11, 60]]
    plain, turned = ([token for pair in order for token in pair] for order in (facts, [facts[0], facts[2], facts[1]]))
    noisy = [9, 5, 2, *plain[:4], 45, 33, *plain[4:], 8]
    said = [model(torch.tensor([[*tokens, 3]]))[0, -1, 32:] for tokens in (plain, noisy)]
    assert far_apart(said[0], said[1]) < 1e-4
    if name != "delta":  # to the delta rule the order of facts is not one
        again = model(torch.tensor([[*turned, 3]]))[0, -1, 32:]
        assert far_apart(said[0], again) < 1e-4
    assert said[0].argmax() == 40 - 32


@pytest.mark.parametrize(
    ("build", "D", "N", "reference", "off"),
    [
        (gated_circuit, 32, 8, 0.7107, 0.025),  # explicit frames without a gate's axis: .696
        (lambda *a: delta_circuit(*a, write_rate=0.05), 32, 8, 0.7117, 0.025),
        (least_squares_circuit, 32, 8, 0.8952, 0.02),
    ],
    ids=["gated", "delta", "least-squares"],
)
def test_designed_memories_recall_what_theory_says(build, D, N, reference, off):
    """V = 512, N_f = 16. Laws neglect that codes repel, .01 to .015 here; three standard errors are .01."""
    assert recall(build, 16, 512, D, N) == pytest.approx(reference, abs=off)


def test_two_banks_recall_what_the_bank_law_says():
    """V = 256, N_f = 8, (D, N) = (24, 4): .850, where a state that all facts share would give .653."""
    assert recall(bank_circuit, 8, 256, 24, 4, draws=20) == pytest.approx(0.8499, abs=0.02)


def test_what_the_axis_of_the_gate_costs():
    """Signs cost less than a dimension, and a dimension costs what the law with D - 1 says; five standard errors."""
    signs, own = (recall(gated_circuit, 16, 512, 16, 16, draws=20, own_axis=axis) for axis in (False, True))
    full, less = (
        float(recall_given_variances(
            vocab_size=512, num_facts=16, key_variance=1 / 16 - 1 / 256, value_variance=1 / D - 1 / 256, leak=0.0
        ))
        for D in (16, 15)
    )  # fmt: skip
    assert own < signs < full
    assert signs - own < full - less + 0.02


@torch.no_grad()
def test_least_squares_makes_no_error_up_to_as_many_facts_as_dimensions():
    """In double precision and with a ridge of almost 0 there is none at all, for any number of facts up to N."""
    g = seeded(2)
    model = least_squares_circuit(256, 16, 8, g, ridge=1e-10).double()
    for num_facts in (2, 8):
        batch = sample_batch(MQARSpec(vocab_size=256, num_facts=num_facts), 200, g)
        assert (model.answer(batch.tokens, batch.query_positions).argmax(dim=-1) == batch.answers).all()
    assert recall(least_squares_circuit, 8, 256, 16, 8, draws=2) > 0.998  # float32, ridge 1e-5
    assert recall(least_squares_circuit, 12, 256, 16, 8, draws=2) < 0.97


@torch.no_grad()
def test_a_query_hears_nothing_of_the_other_bank():
    model = bank_circuit(64, 16, 6, seeded())
    P = (2 * 16 - 6) // 2
    bits = model.E[P - 1, :32].sign()
    assert bits.sum() == 0
    first, second = ((bits == side).nonzero()[1:3, 0].tolist() for side in (1, -1))
    alone = model(torch.tensor([[first[0], 40, first[0]]]))[0, -1]
    mixed = model(torch.tensor([[first[0], 40, second[0], 50, second[1], 60, first[0]]]))[0, -1]
    same = model(torch.tensor([[first[0], 40, first[1], 50, first[0]]]))[0, -1]
    assert far_apart(mixed, alone) < 1e-4
    assert far_apart(same, alone) > 1e-3


def test_a_frame_stays_tight_when_words_change_their_sign():
    E = tight_frame(6, 40, seeded())
    turned = E * torch.where(torch.rand(40, generator=seeded(1)) < 0.5, -1.0, 1.0)
    assert_near(turned @ turned.T, E @ E.T)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gated_circuit(64, 8, 9, seeded()), "state_dim <= 8"),
        (lambda: bank_circuit(64, 9, 6, seeded()), "2/3 embed_dim"),
        (lambda: delta_circuit(64, 8, 4, seeded(), write_rate=0.0), "write_rate=0.0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
