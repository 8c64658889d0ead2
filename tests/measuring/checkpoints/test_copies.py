"""Asking from a copy of the cache is asking from scratch, in every family; and a copy is a copy."""

import numpy as np
import pytest
import torch
from probe_models import FAMILIES, RECURRENT, build, word_tokenizer

from closeness import assert_near
from recallscope.architectures.capabilities import Continues
from recallscope.architectures.model import build_model
from recallscope.measuring.checkpoints.asking import Asker, draw_contexts, growing_parts, part_sizes
from recallscope.measuring.checkpoints.caches import chosen, layers_of, named_tensors, reset_layer
from recallscope.measuring.checkpoints.readers import CacheReader, OwnReader, ScratchReader, reader_of
from recallscope.measuring.checkpoints.words import by_number, wording
from recallscope.specs import ARCHITECTURES


@pytest.fixture(scope="module")
def words():
    return wording(word_tokenizer(), "bare").sized(32)


@pytest.fixture(scope="module", params=FAMILIES)
def asker(request, words):
    return Asker(reader_of(build(request.param, 103)), words)


@pytest.fixture
def drawn(words):
    return draw_contexts(words, 5, 3, np.random.default_rng(1))


def test_every_question_from_a_copy_is_the_question_from_scratch(asker, drawn, words):
    """All logits of all queries of three contexts, asked in an order that mixes them."""
    cache = asker.read(drawn.keys, drawn.values)
    order = np.random.default_rng(2).permutation(15)
    row, fact = order // 5, order % 5
    queries = torch.tensor([words.ask(words.keys[key]) for key in drawn.keys[row, fact]])
    context = torch.tensor(asker._contexts(drawn.keys, drawn.values))
    with torch.no_grad():
        copies = asker.reader.go_on(chosen(cache, torch.as_tensor(row), 3), queries)
        scratch = asker.reader.from_scratch(torch.cat((context[row], queries), dim=1))
    assert_near(copies, scratch)
    assert scratch.std() > 0.1, "the logits must be worth comparing"


def test_asking_leaves_the_cache_as_it_was(asker, drawn, words):
    cache = asker.read(drawn.keys, drawn.values)
    before = [tensor.clone() for _, tensor in named_tensors(cache)]
    queries = torch.tensor([words.ask(words.keys[0])] * 3)
    with torch.no_grad():
        asker.reader.go_on(chosen(cache, torch.arange(3), 3), queries)
    assert all(torch.equal(old, new) for old, (_, new) in zip(before, named_tensors(cache), strict=True))


def test_the_answers_are_those_of_the_plain_twin(asker, drawn, words):
    fast, _ = asker.ask(drawn)
    slow, _ = Asker(ScratchReader(asker.reader), words).ask(drawn)
    for name in vars(fast):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name


def test_a_layer_that_is_reset_changes_the_answers_of_its_copy_alone(asker, drawn, words):
    cache = asker.read(drawn.keys, drawn.values)
    queries = torch.tensor([words.ask(words.keys[key]) for key in drawn.keys[:, 0]])
    with torch.no_grad():
        whole = asker.reader.go_on(chosen(cache, torch.arange(3), 3), queries)
        for layer in range(len(layers_of(cache))):
            copy = chosen(cache, torch.arange(3), 3)
            reset_layer(copy, layer)
            assert all(not tensor.any() for _, tensor in named_tensors(layers_of(copy)[layer]))
            assert (asker.reader.go_on(copy, queries) - whole).abs().max() > 1e-4
        again = asker.reader.go_on(chosen(cache, torch.arange(3), 3), queries)
    assert torch.equal(again, whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_grows_is_key_value_memory_and_the_rest_is_recurrent(family, words):
    asker = Asker(reader_of(build(family, 103)), words)
    growing = growing_parts(asker)
    facts = np.arange(6)[None]
    sizes = part_sizes(asker.read(facts, facts), 1)
    kinds = {name: (layer, name) in growing for layer, name in sizes}
    expected = {"conv_states": False, "recurrent_states": False} if family in RECURRENT else {}
    if family in ("llama", "qwen3_next"):
        expected |= {"keys": True, "values": True}
    assert kinds == expected
    entries, size = sizes[0, "recurrent_states" if family in RECURRENT else "keys"]
    assert entries == {"mamba": 512, "mamba2": 512, "falcon_mamba": 512, "qwen3_next": 256, "llama": 2 * 8 * 18}[family]
    assert size == 4 * entries


@pytest.mark.parametrize("name", ARCHITECTURES.names())
def test_a_model_of_ours_goes_on_from_where_it_has_read_to(name):
    """Two layers where there may be several, and windows longer than the question."""
    spec = ARCHITECTURES.find(name)
    fields = {"embed_dim": 8, "state_dim": 4, "num_heads": 2, "head_pattern": "MHA", "num_layers": 2, "conv_width": 4}
    fields = {field: value for field, value in fields.items() if field in spec.model_fields}
    model = build_model(spec(**fields), 40, torch.Generator().manual_seed(0))
    words = by_number(40).sized(16)
    asker = Asker(reader_of(model), words)
    if model.capability(Continues) is None:
        assert not asker.reader.has_cache
        return
    assert isinstance(asker.reader, OwnReader)
    drawn = draw_contexts(words, 5, 3, np.random.default_rng(1))
    for queries in ([[3]], [[3, 25, 4, 9, 30]]):
        tokens = torch.tensor(queries)
        context = torch.tensor(asker._contexts(drawn.keys, drawn.values))[1:2]
        with torch.no_grad():
            cache = chosen(asker.read(drawn.keys, drawn.values), torch.tensor([1]), 3)
            copies = asker.reader.go_on(cache, tokens)
            scratch = asker.reader.from_scratch(torch.cat((context, tokens), dim=1))
        assert_near(copies, scratch)


def test_several_models_of_ours_go_on():
    """The claim above must not be empty: the Mambas of `from_pretrained` are among them."""
    from recallscope.architectures.mamba2_model import Mamba2
    from recallscope.architectures.mamba_model import Mamba

    assert issubclass(Mamba, Continues)
    assert issubclass(Mamba2, Continues)


def test_a_model_without_a_cache_is_refused():
    with pytest.raises(ValueError, match="has no cache: its forward takes none of past_key_values"):
        CacheReader(torch.nn.Linear(2, 2))
