"""Hybrids: their layers are those of other architectures, with the sizes of the hybrid and fields of their own."""

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.capabilities import HasAttention, HasState
from recallscope.architectures.matrix_memory import HybridSpec
from recallscope.architectures.model import build_model
from recallscope.specs import ARCHITECTURES, parse_model

V, SIZES = 12, {"embed_dim": 6, "state_dim": 4, "num_heads": 2}
QWEN3_NEXT = "gated_delta_net gated_delta_net gated_delta_net attention"
TOKENS = torch.randint(0, V, (2, 9), generator=torch.Generator().manual_seed(1))


def build(**fields: object) -> torch.nn.Module:
    return build_model(HybridSpec(**SIZES, **fields), V, torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["kda", "attention", "delta_product", "mamba3"])
@pytest.mark.parametrize("published", [False, True])
@torch.no_grad()
def test_a_hybrid_of_one_architecture_is_that_architecture(kind: str, published: bool) -> None:
    """The same weights by the same names from the same generator, and the same logits."""
    cls, fields = ARCHITECTURES.find(kind), {"num_layers": 2, "norm": "rms"}
    alone = (cls.published if published else cls)(**SIZES, **fields)
    plain = build_model(alone, V, torch.Generator().manual_seed(0), dtype=torch.float64)
    hybrid = build(layers=f"{kind} {kind}", norm="rms", as_published=published)
    assert plain.state_dict().keys() == hybrid.state_dict().keys()
    assert_near(hybrid(TOKENS), plain(TOKENS))
    assert hybrid.spec.layer_specs[0].state_entries_after(9) * 2 == hybrid.spec.state_entries_after(9)


@torch.no_grad()
def test_layers_run_one_after_the_other() -> None:
    """Of different architectures: each trace begins where the last one ends, and each layer is its own kind."""
    hybrid = build(layers=QWEN3_NEXT, as_published=True, norm="rms")
    trace = hybrid.trace(TOKENS)
    for lower, upper in zip(trace.layers, trace.layers[1:], strict=False):
        assert torch.equal(lower.y, upper.x)
    assert [type(layer).__name__ for layer in hybrid.layers] == ["GatedDeltaNetLayer"] * 3 + ["SoftmaxLayer"]
    assert_near(hybrid(TOKENS), trace.logits)
    assert hybrid.capability(HasState) is None
    assert hybrid.capability(HasAttention) is not None


def test_the_spec_says_what_its_layers_are() -> None:
    spec = HybridSpec(**SIZES, layers="gla window_attention,window=5 attention,qk_norm=l2", expand=2)
    gla, window, attention = spec.layer_specs
    assert (spec.num_layers, spec.residual, gla.residual) == (3, True, True)
    assert (window.window, attention.qk_norm, {layer.expand for layer in spec.layer_specs}) == (5, "l2", {2})
    assert spec.state_entries is None
    assert spec.state_entries_after(7) == 12 * 4 + (4 + 7) * (2 * 4 + 12)
    assert parse_model(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("layers", "words"),
    [("mamba gla", "mamba is not a matrix memory"), ("kdaa", "Did you mean kda"), ("gla,windw=3", "windw")],
)
def test_a_layer_that_cannot_be_is_refused(layers: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HybridSpec(**SIZES, layers=layers)


def test_a_number_of_layers_that_contradicts_the_names_is_refused() -> None:
    with pytest.raises(ValueError, match="num_layers=3, but layers names 2"):
        HybridSpec(**SIZES, layers="gla gla", num_layers=3)
