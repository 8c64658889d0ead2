"""What a probe says of models whose recall is known: planted ones, random checkpoints, and, slowly, trained ones."""

import numpy as np
import pytest
import torch
from planted import Planted
from probe_models import FAMILIES, RECURRENT, build, word_tokenizer

import recallscope as rs
from commands import script
from recallscope.measuring.checkpoints import probe as probing
from recallscope.measuring.checkpoints.capacity import held_bits, law_says
from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
from recallscope.measuring.checkpoints.layers import CHOICES, TESTED, _folded, ridge_accuracy
from recallscope.measuring.checkpoints.page import summary

QUICK = {"num_sequences": 2, "max_facts": 32, "max_queries": 1024, "shots": 0}
TOKENS = 103  # of the word tokenizer
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")


def without_clock(record):
    return record.model_dump(exclude={"seconds", "cpu_seconds", "environment"})


@pytest.fixture(scope="module")
def eight():
    """A model that knows the last eight facts."""
    return rs.probe(Planted(TOKENS, 8), word_tokenizer(), **QUICK, layers=True)


def test_recall_is_that_of_the_planted_model(eight):
    """min(1, 8/n) exactly; every wrong answer is another fact's value, and the newest facts are the ones known."""
    assert [point.num_facts for point in eight.points[:3]] == [2, 4, 8]
    for point in eight.points:
        assert point.recall == point.greedy_recall == min(1, 8 / point.num_facts)
        assert point.by_place == sorted(point.by_place)
        assert point.interval[0] <= point.recall <= point.interval[1]
        if point.num_facts > 8:
            assert (point.wrong_other_fact, point.wrong_else) == (1.0, 0.0)
    last = eight.points[-1]
    assert (last.num_facts, last.by_place) == (32, [0.0] * 12 + [1.0] * 4)


def test_the_capacity_of_the_planted_model(eight):
    """16 exactly, as 16 facts were measured; the law's curve has another shape, and is not admitted."""
    assert eight.recalls
    assert eight.n_50.num_facts == eight.n_50.interpolated == pytest.approx(16)
    assert eight.greedy_n_50.num_facts == pytest.approx(16)
    assert eight.n_50.interval[0] < 16 < eight.n_50.interval[1] < 1.4 * eight.n_50.interval[0]
    assert 8 < eight.n_90.num_facts < 10
    assert not eight.law_shape.admitted
    assert "is therefore not drawn" in summary(eight)["shape"]


def test_candidates_are_as_many_whatever_the_number_of_facts(eight):
    """Lowering the number of facts does not change the task: same words, same answers."""
    few = rs.probe(Planted(TOKENS, 8), word_tokenizer(), **QUICK | {"max_facts": 8})
    assert (few.keys, few.values) == (eight.keys, eight.values)
    assert few.settings["candidates"] == eight.settings["candidates"] == 48
    asked, again = ([point.model_dump(exclude={"interval"}) for point in one.points[:3]] for one in (eight, few))
    assert again == asked  # intervals allow for how contexts differ, over all numbers of facts
    assert [point.num_facts for point in few.points] == [2, 4, 8]
    assert rs.probe(Planted(TOKENS, 8), word_tokenizer(), **QUICK, candidates=12).settings["candidates"] == 12


def test_controls_of_the_planted_model(eight):
    """Without facts no model can do better than 1 in 48; with values dealt otherwise it is never right, as none is."""
    for point in eight.points:
        assert point.no_facts == 1 / 48
        assert point.shuffled <= 0.1


def test_its_layers(eight):
    """Facts are in layer 0, whose memory grows; layer 1 has a state that does nothing and holds nothing."""
    first, second = eight.inside.layers
    assert (first.memory, second.memory) == ("key-value", "recurrent")
    assert first.recall_without <= 0.15
    assert second.lost == 0
    assert (first.decoded, second.entries) == (None, 6)
    assert second.decoded <= 1 / CHOICES + 4 * (1 / CHOICES / TESTED / 2) ** 0.5  # 1 false alarm in 30,000


def test_state_and_bits_of_the_planted_model(eight):
    for point in eight.points:
        assert (point.recurrent_entries, point.key_value_entries) == (6, 3 * point.num_facts)
    best = max(eight.points, key=lambda point: point.bits)
    assert eight.most_bits == best.bits == held_bits(best.num_facts, 48, best.recall)
    assert eight.bits_per_entry is None  # facts are in memory that grows
    assert eight.key_value_per_token == 1
    eight_facts = next(point for point in eight.points if point.num_facts == 8)
    V = eight.settings["candidates"]
    assert eight_facts.bits == pytest.approx(np.log2(np.arange(V - 7, V + 1)).sum(), rel=1e-6)


def test_equal_seeds_give_equal_records_and_others_give_other_contexts(eight):
    model = Planted(TOKENS, 8)
    again = rs.probe(model, word_tokenizer(), **QUICK, layers=True)
    assert without_clock(again) == without_clock(eight)
    other = rs.probe(model, word_tokenizer(), **QUICK, seed=1)
    assert other.keys == eight.keys
    assert other.probe != eight.probe
    assert other.example != eight.example
    assert other.n_50.num_facts == pytest.approx(eight.n_50.num_facts, rel=0.15)


def test_a_number_of_facts_gives_the_same_point_however_it_is_asked_for(eight):
    alone = rs.probe(Planted(TOKENS, 8), word_tokenizer(), **QUICK, num_facts=[16])
    at_16 = next(point for point in eight.points if point.num_facts == 16)
    first = alone.points[0].correct_per_context
    assert first == at_16.correct_per_context[: len(first)]


def test_a_perfect_memory_is_not_measured_beyond_its_words():
    record = rs.probe(Planted(TOKENS, 10**6), word_tokenizer(), num_sequences=1, max_facts=32)
    assert "4 example facts come first" in summary(record)["shots"]
    assert record.n_50.num_facts is None
    assert record.n_50.reason == "> 32: accuracy is still 1.000 with 32 facts"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_checkpoint_does_not_recall(family):
    """Wrong once in 1,000 by luck; seeds are fixed."""
    record = rs.probe(build(family, TOKENS), word_tokenizer(), max_facts=16, shots=0)
    assert not record.recalls
    assert record.verdict.startswith("does not recall")
    assert (record.n_50.num_facts, record.n_50.reason[:5]) == (None, "none:")
    assert record.copies_differ < 1e-4
    assert (record.law is not None) == (family in RECURRENT)


def test_the_law_is_asked_for_the_sizes_of_one_layer():
    record = rs.probe(build("mamba", TOKENS), word_tokenizer(), num_sequences=1, max_facts=32)
    assert (record.law.embed_dim, record.law.state_dim) == (32, 8)
    assert "one trained layer" in record.law.says
    assert law_says(64, 2 * 64 * 4, 4096).n_50 > law_says(64, 2 * 64 * 4, 4096).n_90 > 0
    assert law_says(64, 64, 4096) is None


def test_our_own_models_are_asked_by_token_numbers():
    """The ideal circuit remembers all; `from_pretrained` models have the same interface."""
    record = rs.probe(rs.ideal_circuit(vocab_size=64), num_sequences=1)
    assert record.settings["template"] == "token numbers"
    assert record.points[-1].recall == 1.0
    assert record.points[-1].num_facts == 31
    assert record.n_50.reason.startswith("> 31")
    assert set(record.state_parts) == {"state", "window"}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])])
def test_every_tensor_is_made_on_the_device_of_the_model(device):
    """The default device is `meta`, whose tensors hold no numbers, as in tests/test_devices.py."""
    model = rs.ideal_circuit(vocab_size=64).to(device)
    torch.set_default_device("meta")
    try:
        record = rs.probe(model, num_facts=[2, 8], num_sequences=1, layers=True)
    finally:
        torch.set_default_device(None)
    assert record.environment["device"].startswith(device)
    assert record.inside.layers[0].lost == record.points[-1].recall == 1.0


def test_a_folded_state_keeps_what_is_linear_in_it(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(CHOICES, (384,), generator=rng)
    state = torch.randn(CHOICES, 900, generator=rng)[labels] + torch.randn(384, 900, generator=rng)
    monkeypatch.setattr("recallscope.measuring.checkpoints.layers.MOST_FEATURES", 300)
    folded = _folded(state, torch.Generator().manual_seed(1))
    assert folded.shape == (384, 300)
    assert ridge_accuracy(folded, labels) > 0.95


def test_from_pretrained_and_transformers_answer_alike(tmp_path):
    theirs = build("mamba", TOKENS)
    theirs.save_pretrained(tmp_path)
    ours = rs.from_pretrained(tmp_path)
    words = word_tokenizer()
    settings = {"num_facts": [4], "num_sequences": 2}
    mine, other = rs.probe(ours, words, **settings), rs.probe(theirs, words, **settings)
    assert [point.correct_per_context for point in mine.points] == [point.correct_per_context for point in other.points]
    assert mine.state_parts["state"] == other.state_parts["recurrent_states"]
    backend = words.backend_tokenizer  # the tokenizers library's own, without transformers
    assert rs.probe(ours, backend, **settings).points == mine.points


def test_a_cache_that_cannot_be_copied_is_noticed():
    model = Planted(TOKENS, 4, forgets_rows=True)
    with pytest.raises(ValueError, match=r"asked from a copy of its cache, .* answers otherwise"):
        rs.probe(model, word_tokenizer(), **QUICK)
    record = rs.probe(model, word_tokenizer(), **QUICK, copies=False, num_facts=[2, 8])
    assert [point.recall for point in record.points] == [1.0, 0.5]
    assert (record.copies_differ, record.bits_per_entry) == (None, None)


def test_too_long_a_context_is_refused_and_a_search_ends_at_the_last_position():
    model = Planted(TOKENS, 100, positions=50)
    with pytest.raises(ValueError, match=r"num_facts=32 makes a context of 98 tokens, .* positions for 50. Use 16"):
        rs.probe(model, word_tokenizer(), num_facts=[32], shots=0)
    assert rs.probe(model, word_tokenizer(), num_sequences=1, shots=0).points[-1].num_facts == 16


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_sequences": 0}, "num_sequences=0 is outside"),
        ({"candidates": 4}, "candidates=4 is outside"),
        ({"width": 1.0}, "width=1.0 is not above 1"),
        ({"chat": True}, "no chat template"),
        ({"min_recall": 1.5}, "min_recall=1.5"),
        ({"num_facts": [0]}, "a context has 1 to 48 facts"),
        ({"num_facts": [4000]}, "a context has 1 to 48 facts"),
        ({"shots": 99}, "shots=99"),
        ({"template": "{value} {key}"}, "no line with {key} and then {value}"),
        ({"template": "bear"}, "Did you mean bare"),
    ],
)
def test_mistakes_are_answered_before_anything_is_read(wrong, says, monkeypatch):
    monkeypatch.setattr(probing.Probe, "run", lambda *_: pytest.fail("it was run"))
    with pytest.raises(ValueError, match=says.replace("{", r"\{").replace("}", r"\}")):
        rs.probe(Planted(TOKENS, 4), word_tokenizer(), **{"shots": 0} | wrong)


def test_examples_go_first_and_their_words_are_not_asked_for():
    record = rs.probe(Planted(TOKENS, 6), word_tokenizer(), **QUICK | {"shots": 2}, num_facts=[4, 6, 12])
    assert [point.recall for point in record.points] == [1.0, 1.0, 0.5]
    plain = rs.probe(Planted(TOKENS, 6), word_tokenizer(), **QUICK, num_facts=[4])
    assert record.keys == plain.keys
    assert record.points[0].key_value_entries == 3 * (4 + 2 * 2)


def test_a_linear_map_reads_what_is_linear_in_the_state_and_nothing_else():
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(CHOICES, (384,), generator=rng)
    codes = torch.randn(CHOICES, 300, generator=rng)
    noise = torch.randn(384, 300, generator=rng)
    assert ridge_accuracy(codes[labels] + noise, labels) > 0.95
    bound = 1 / CHOICES + 4 * (1 / CHOICES * (1 - 1 / CHOICES) / TESTED) ** 0.5  # 1 false alarm in 30,000
    assert ridge_accuracy(noise, labels) < bound


@pytest.mark.slow
def test_a_mamba_has_a_capacity_and_a_transformer_a_larger_one(tmp_path):
    """Two seeds of the probe agree within 15 %. Once trained, nothing is random but the words and contexts, whose
    bootstrap interval is about 5 % wide to either side: a false alarm is 1 in 10,000."""
    found = {}
    for name, make in script("results/probe/make.py").MAKE.items():
        make(tmp_path / name)
        model, tokenizer = load_checkpoint(tmp_path / name, torch.device("cpu"))
        found[name] = [rs.probe(model, tokenizer, num_sequences=16, seed=seed) for seed in (0, 1)]
    first, second = (record.n_50.num_facts for record in found["mamba"])
    assert abs(first / second - 1) < 0.15
    for record in found["transformer"]:
        half, largest = record.n_50, record.points[-1].num_facts
        assert (half.num_facts or (largest if half.reason.startswith(">") else 0)) > max(first, second)
