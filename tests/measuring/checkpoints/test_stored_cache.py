"""States stored in few bits, in the caches of transformers' models: what is rounded, when, and to what."""

import numpy as np
import pytest
import torch
from probe_models import RECURRENT, build, save, word_tokenizer

import recallscope as rs
from recallscope.measuring.checkpoints.caches import chosen, mapped, named_tensors
from recallscope.measuring.checkpoints.readers import CacheReader, StoredReader, reader_of
from recallscope.measuring.checkpoints.record import read_probe
from recallscope.ops.state_rounding import TORCH_DTYPES, round_state
from recallscope.state_precision import StatePrecision

STATES = {"recurrent_states"}
TOKENS = torch.arange(8, 36).reshape(2, 14)
INT4 = StatePrecision.of("int4")


def stored(model, precision, seed=0):
    return StoredReader(CacheReader(model), precision, STATES, seed)


def tensors(cache, *names):
    return [tensor for name, tensor in named_tensors(cache) if name in names]


@pytest.fixture(scope="module", params=RECURRENT)
def model(request):
    return build(request.param, 103)


@torch.no_grad()
def test_once_is_the_rounded_cache_and_nothing_else(model):
    """States are rounded by `round_state`; keys, values and the inputs of convolutions stay as they are."""
    cache, exact = (
        stored(model, INT4.model_copy(update={"every": "once"})).read(TOKENS),
        CacheReader(model).read(TOKENS),
    )
    rounded = tensors(cache, *STATES)
    for found, state in zip(rounded, tensors(exact, *STATES), strict=True):
        assert torch.equal(found, round_state(state, INT4, torch.Generator()))
        assert not torch.equal(found, state)
    assert rounded
    others = {name for name, _ in named_tensors(exact)} - STATES
    for found, kept in zip(tensors(cache, *others), tensors(exact, *others), strict=True):
        assert torch.equal(found, kept)


@torch.no_grad()
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_float_formats_are_those_of_torch(name, model):
    cache = stored(model, StatePrecision.of(name, every="once")).read(TOKENS)
    for found, state in zip(tensors(cache, *STATES), tensors(CacheReader(model).read(TOKENS), *STATES), strict=True):
        assert torch.equal(found, state.to(TORCH_DTYPES[name]).to(state.dtype))


@torch.no_grad()
@pytest.mark.parametrize("every", [1, 3])
def test_token_by_token_is_the_loop_written_down(every, model):
    """Rounded after tokens 3, 6, 9, 12 of 14; a query from a copy goes on counting, and its third token is the 15th."""
    reader = stored(model, INT4.model_copy(update={"every": every}))
    cache, plain = reader.read(TOKENS), None
    for t in range(TOKENS.shape[1] + 2):
        token = TOKENS[:, t : t + 1] if t < TOKENS.shape[1] else TOKENS[:, t - 14 : t - 13]
        output = model(input_ids=token, use_cache=True, **({} if plain is None else {reader.reader.name: plain}))
        plain = getattr(output, reader.reader.name)
        if (t + 1) % every == 0:
            plain = mapped(plain, lambda name, x: round_state(x, INT4, torch.Generator()) if name in STATES else x)
        if t == TOKENS.shape[1] - 1:
            for found, state in zip(tensors(cache, *STATES), tensors(plain, *STATES), strict=True):
                torch.testing.assert_close(found, state)
            plain = chosen(plain, torch.arange(2), 2)
    torch.testing.assert_close(reader.go_on(cache, TOKENS[:, :2]), output.logits[:, -1].float())


@torch.no_grad()
def test_an_exact_residual_loses_nothing_and_few_bits_of_it_little(model):
    exact = tensors(CacheReader(model).read(TOKENS), *STATES)
    lost = []
    for how in ({"rounding": "error-feedback"}, {"rounding": "error-feedback", "residual_bits": 4}, {}):
        found = tensors(stored(model, StatePrecision.of("int4", **how)).read(TOKENS), *STATES)
        lost.append(max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True)))
    assert lost[0] < 1e-4 < lost[1] < lost[2] / 3


def test_stochastic_rounding_follows_the_seed(model):
    precision = StatePrecision.of("int4", rounding="stochastic")
    with torch.no_grad():
        one, two, other = (tensors(stored(model, precision, seed).read(TOKENS), *STATES)[0] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("every", [1, "once"])
def test_a_probe_in_sixteen_bits_answers_as_the_exact_one_and_has_its_own_record(every):
    model, how = build("mamba2", 103), {"num_sequences": 2, "num_facts": [4, 8], "shots": 2}
    exact = rs.probe(model, word_tokenizer(), **how)
    found = rs.probe(model, word_tokenizer(), **how, state_precision=StatePrecision.of("int16", every=every))
    assert found.probe != exact.probe
    assert "int16 per row" in found.how
    assert "state_precision" not in exact.settings
    same = [(a.correct_per_context, b.correct_per_context) for a, b in zip(found.points, exact.points, strict=True)]
    assert np.mean([np.abs(np.subtract(a, b)).mean() for a, b in same]) < 0.1


def test_models_of_ours_are_stored_once():
    model, once = rs.ideal_circuit(vocab_size=64), StatePrecision.of("int4", every="once")
    tokens = torch.tensor([[3, 40, 5, 50]])
    (exact,) = tensors(reader_of(model).read(tokens), "state")
    (found,) = tensors(StoredReader(reader_of(model), once, {"state"}, 0).read(tokens), "state")
    assert torch.equal(found, round_state(exact, once, torch.Generator()))
    how = {"num_sequences": 1, "num_facts": [8]}
    assert "int4 per row, nearest, once" in rs.probe(model, **how, state_precision=once).how
    with pytest.raises(ValueError, match="--round-every once"):
        rs.probe(model, **how, state_precision=INT4)


def test_what_has_no_state_is_refused_with_a_sentence(run, tmp_path):
    folder, store = save("llama", tmp_path / "llama"), tmp_path / "store"
    for flags, phrase in (
        (["--state-format", "int8"], "LlamaForCausalLM has no recurrent state"),
        (["--state-format", "int88"], "Did you mean int8"),
        (["--rounding", "stochastic"], "Try --state-format int8"),
        (["--state-format", "int4", "--rounding", "error-feedback", "--residual-bits", "9"], "wider than the state"),
    ):
        code, out, err = run("probe", folder, *flags, "--store", store)
        assert (code, out) == (2, "")
        assert phrase in " ".join(err.split())
    assert not store.exists()


def test_the_command_stores_states_and_says_so(run, tmp_path):
    folder, store = save("mamba", tmp_path / "mamba"), tmp_path / "store"
    quick = ("--num-sequences", 1, "--max-facts", 4, "--store", store)
    for flags in ([], ["--state-format", "fp8-e4m3"]):
        assert run("probe", folder, *quick, *flags)[0] == 0
    records = {read_probe(path).how: read_probe(path).probe for path in (store / "probes").glob("*.json")}
    assert set(records) == {"bare, 4 shots", "bare, 4 shots, fp8-e4m3, nearest, every token"}
    code, out, _ = run("probe", "--compare-with", *(probe[:8] for probe in records.values()), "--store", store)
    assert code == 0
    assert "These probes differ in state_precision" in out
