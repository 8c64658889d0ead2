"""Mamba2 is the Mamba-2 others run: as in Hugging Face's transformers, at equal weights.

Mamba2Mixer loads our mixer's state dict as it is, which also checks names and shapes. One group of keys and queries
is our MVA, as many groups as heads our MHA.
"""

import pytest
import torch
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as HFMamba2Mixer

from closeness import assert_agree, output_and_gradients
from recallscope.architectures.blocks import BlockLayer
from recallscope.architectures.mamba import Mamba2Spec
from recallscope.architectures.mamba2_model import Mamba2Mixer


def hugging_face_mixer(spec: Mamba2Spec, chunk_size: int) -> HFMamba2Mixer:
    config = Mamba2Config(
        vocab_size=10,
        hidden_size=spec.embed_dim,
        state_size=spec.state_dim,
        expand=spec.expand,
        num_heads=spec.num_heads,
        head_dim=spec.head_dim,
        n_groups=1 if spec.head_pattern == "MVA" else spec.num_heads,
        conv_kernel=spec.conv_width,
        num_hidden_layers=1,
        use_conv_bias=spec.conv_bias,
        use_bias=False,
        layer_norm_epsilon=1e-5,
        chunk_size=chunk_size,
    )
    return HFMamba2Mixer(config, 0).eval()


@pytest.mark.parametrize("pattern", ["MVA", "MHA"])
@pytest.mark.parametrize("seed", range(12))
def test_the_mixer_is_theirs_in_output_and_every_gradient(seed: int, pattern: str) -> None:
    """Random sizes; every kernel width from 1 to 4 comes round; lengths below, at and above a chunk."""
    g = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=g))

    heads, head_dim = pick(1, 5), pick(1, 6)
    spec = Mamba2Spec(
        embed_dim=heads * head_dim,
        state_dim=pick(1, 12),
        num_heads=heads,
        head_pattern=pattern,
        expand=1 + seed % 2,
        conv_width=1 + seed % 4,
        conv_bias=seed % 3 != 0,
        norm="none",
        residual=False,
    )
    layer = BlockLayer(spec, Mamba2Mixer(spec))
    layer.draw_weights(g)
    with torch.no_grad():
        for weight in (layer.mixer.D, layer.mixer.norm.weight):
            assert weight is not None
            weight += 0.3 * torch.randn(weight.shape, generator=g)
    twin = hugging_face_mixer(spec, chunk_size=pick(1, 16))
    twin.load_state_dict(layer.mixer.state_dict(), strict=True)
    x = torch.randn(pick(1, 3), pick(1, 24), spec.embed_dim, generator=g)
    ours, theirs = ({"x": x.requires_grad_(), **dict(m.named_parameters())} for m in (layer.mixer, twin))
    mine = output_and_gradients(layer.trace(x).y, ours)
    assert_agree(mine, lambda: output_and_gradients(twin(x), theirs), theirs.values())
