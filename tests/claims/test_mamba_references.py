"""Mamba is the Mamba others run: Eq. 1-3 as in Hugging Face's transformers and mambapy, at equal weights.

Both load our mixer's state dict as it is, which also checks names and shapes. On a CPU transformers takes its
sequential path: eval mode does not ask for the fused training kernel, and the two `use_` flags below keep the
scan from being handed to mambapy or a compiler, so that the two references are independent.
"""

import math
from collections.abc import Callable

import pytest
import torch
from mambapy.mamba import MambaBlock
from mambapy.mamba import MambaConfig as MambapyConfig
from torch import nn
from transformers import MambaConfig, MambaForCausalLM
from transformers.models.mamba.modeling_mamba import MambaMixer as HFMambaMixer

from closeness import assert_agree, output_and_gradients
from recallscope.architectures.blocks import BlockLayer
from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_model import MambaMixer
from recallscope.architectures.model import build_model


def hugging_face_config(spec: MambaSpec, vocab_size: int = 10) -> MambaConfig:
    return MambaConfig(
        vocab_size=vocab_size, hidden_size=spec.embed_dim, state_size=spec.state_dim, expand=spec.expand,
        conv_kernel=spec.conv_width, num_hidden_layers=spec.num_layers, use_conv_bias=spec.conv_bias, use_bias=False,
        time_step_rank=math.ceil(spec.embed_dim / 16), layer_norm_epsilon=1e-5, tie_word_embeddings=True,
        use_mambapy=False, use_associative_scan=False,
    )  # fmt: skip


def hugging_face_mixer(spec: MambaSpec) -> nn.Module:
    return HFMambaMixer(hugging_face_config(spec), 0).eval()


def mambapy_mixer(spec: MambaSpec) -> nn.Module:
    sizes = {"d_model": spec.embed_dim, "d_state": spec.state_dim, "d_conv": spec.conv_width}
    return MambaBlock(MambapyConfig(**sizes, n_layers=1, expand_factor=spec.expand, conv_bias=spec.conv_bias))


def our_layer(spec: MambaSpec, generator: torch.Generator) -> BlockLayer:
    """Only the mixer: no norm, no residual. Weights that start at constants are moved off them."""
    layer = BlockLayer(spec, MambaMixer(spec))
    layer.draw_weights(generator)
    mixer = layer.mixer
    with torch.no_grad():
        for weight in (mixer.A_log, mixer.D):
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
    return layer


def draw_shape(seed: int) -> tuple[MambaSpec, int, int]:
    """Sizes, batch and length; every kernel width from 1 to 4 comes round."""
    g = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=g))

    sizes = {"embed_dim": pick(1, 40), "state_dim": pick(1, 20), "expand": pick(1, 3)}
    spec = MambaSpec(**sizes, conv_width=1 + seed % 4, conv_bias=seed % 3 != 0, norm="none", residual=False)
    return spec, pick(1, 4), pick(1, 24)


@pytest.mark.parametrize("reference", [hugging_face_mixer, mambapy_mixer])
@pytest.mark.parametrize("seed", range(24))
def test_the_mixer_is_theirs_in_output_and_every_gradient(
    seed: int, reference: Callable[[MambaSpec], nn.Module]
) -> None:
    spec, batch, L = draw_shape(seed)
    g = torch.Generator().manual_seed(100 + seed)
    layer = our_layer(spec, g)
    twin = reference(spec)
    twin.load_state_dict(layer.mixer.state_dict(), strict=True)
    x = torch.randn(batch, L, spec.embed_dim, generator=g)
    ours, theirs = ({"x": x.requires_grad_(), **dict(m.named_parameters())} for m in (layer.mixer, twin))
    mine = output_and_gradients(layer.trace(x).y, ours)
    assert_agree(mine, lambda: output_and_gradients(twin(x), theirs), theirs.values())


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_model_is_theirs(seed: int) -> None:
    """Norms, residuals, final norm and tied head included: logits and every gradient."""
    vocab_size = 17
    spec = MambaSpec(embed_dim=12 + seed, state_dim=3 + seed, num_layers=1 + seed % 3, conv_width=1 + seed)
    g = torch.Generator().manual_seed(seed)
    model = build_model(spec, vocab_size, g)
    twin = MambaForCausalLM(hugging_face_config(spec, vocab_size)).eval()
    ours = {f"backbone.{name}": p for name, p in model.named_parameters() if name != "E"}
    embedding = "backbone.embeddings.weight"
    twin.load_state_dict({**{n: p.detach() for n, p in ours.items()}, embedding: model.E.detach().T}, strict=False)
    twin.tie_weights()
    tokens = torch.randint(0, vocab_size, (3, 11), generator=g)
    theirs = dict(twin.named_parameters())
    assert set(theirs) == {*ours, embedding}
    mine = output_and_gradients(model(tokens), ours | {embedding: model.E})
    mine[embedding] = mine[embedding].T
    assert_agree(mine, lambda: output_and_gradients(twin(tokens).logits, theirs), theirs.values())
