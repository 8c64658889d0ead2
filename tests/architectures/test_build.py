"""Weights come from the generator and nowhere else, and have the published distributions."""

import math

import pytest
import torch

from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import RecallModel, build_model

SPECS = {
    "linear_mamba": LinearMambaSpec(embed_dim=8, state_dim=4),
    "deep": LinearMambaSpec(embed_dim=8, state_dim=4, num_layers=3),
    "MHA": MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=4, head_pattern="MHA"),
    "MQA": MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=4, head_pattern="MQA"),
    "mamba": MambaSpec(embed_dim=8, state_dim=4, num_layers=2),
    "ablation Base": MambaSpec(embed_dim=8, state_dim=4, norm="none", skip=False, delta_rank="full", conv_width=4),
    "ablation E": MambaSpec(
        embed_dim=8, state_dim=4, norm="none", skip=False, transition="identity", gate=False, conv_width=1
    ),
    "smallest": MambaSpec(embed_dim=1, state_dim=1, expand=1, conv_width=1),
}
NAMED = pytest.mark.parametrize("name", SPECS)


def build(name: str, seed: int = 0, vocab_size: int = 20, **options) -> RecallModel:
    return build_model(SPECS[name], vocab_size, torch.Generator().manual_seed(seed), **options)


@NAMED
def test_equal_seeds_give_equal_weights_bit_for_bit(name: str) -> None:
    one, two, other = build(name, 1).state_dict(), build(name, 1).state_dict(), build(name, 2).state_dict()
    assert list(one) == list(two)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["E"], other["E"])


@NAMED
def test_the_global_stream_is_neither_used_nor_moved(name: str) -> None:
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(1)
        before = torch.random.get_rng_state()
        first = build(name).state_dict()
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.random.default_generator.manual_seed(2)
        second = build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@NAMED
def test_every_weight_is_drawn(name: str) -> None:
    """A blank model has none but the norms' ones; a built one has no parameter left at zero."""
    blank = SPECS[name].blank_model(20)
    assert all((p == (1.0 if "norm" in key else 0.0)).all() for key, p in blank.named_parameters())
    built = build(name)
    quiet = ("A_log",) if SPECS[name].state_dim == 1 else ()
    assert all(p.abs().sum() > 0 for key, p in built.named_parameters() if not key.endswith(quiet or "?"))


@NAMED
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_finite_and_of_the_right_shape_and_type(name: str, dtype: torch.dtype) -> None:
    model = build(name, dtype=dtype)
    tokens = torch.randint(0, 20, (3, 12), generator=torch.Generator().manual_seed(0))
    logits = model(tokens)
    assert logits.shape == (3, 12, 20)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_embedding_has_the_spread_asked_for() -> None:
    """64 x 1000 draws: the sample deviation is within 2 % of the true one but once in 10^11 tries."""
    spec = LinearMambaSpec(embed_dim=64, state_dim=2)
    for std in (1.0, 0.02):
        E = build_model(spec, 1000, torch.Generator().manual_seed(0), embedding_std=std).E
        assert E.std().item() == pytest.approx(std, rel=0.02)


def test_projections_and_kernels_are_uniform_within_torch_defaults() -> None:
    """U(±1/√fan_in): no weight beyond the bound, and the largest within 2 % of it."""
    spec = LinearMambaSpec(embed_dim=64, state_dim=32)
    layer = build_model(spec, 10, torch.Generator().manual_seed(0)).layers[0]
    for name, fan_in in {"P_in": 64, "W_conv": 2, "S_B": 128, "S_C": 128, "P_out": 128}.items():
        largest = getattr(layer, name).abs().max().item() * math.sqrt(fan_in)
        assert 0.98 < largest <= 1 + 1e-6, name


def test_head_weights_are_standard_normal() -> None:
    """(P, M, 2D) = (40, 3, 120): the deviation of 14,400 draws is within 3 % but once in 10^6 tries."""
    spec = MultiHeadSpec(embed_dim=60, state_dim=4, num_heads=3, head_pattern="MHA")
    model = build_model(spec, 10, torch.Generator().manual_seed(0))
    assert model.layers[0].W_x.std().item() == pytest.approx(1, rel=0.03)
    assert model.layers[0].W_y.std().item() == pytest.approx(1, rel=0.03)


def test_a_model_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size=0"):
        build("linear_mamba", vocab_size=0)


def test_a_token_beyond_the_vocabulary_is_an_error() -> None:
    with pytest.raises(IndexError):
        build("linear_mamba")(torch.tensor([[20]]))


@NAMED
def test_state_dicts_round_trip(name: str) -> None:
    model, copy = build(name), SPECS[name].blank_model(20)
    copy.load_state_dict(model.state_dict())
    tokens = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(tokens), copy(tokens))
    assert all(p.is_contiguous() for p in model.parameters())
