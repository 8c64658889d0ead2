"""Full2Mamba is the Mamba-2 others run: as in Hugging Face's transformers, at equal weights.

Mamba2Mixer loads our mixer's state dict as it is, which also checks names and shapes. One group of keys and queries
is our MVA, as many groups as heads our MHA.
"""

import pytest
import torch
from torch import Tensor
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from recallscope.architectures.blocks import BlockLayer
from recallscope.architectures.mamba2 import Full2Spec
from recallscope.architectures.mamba2_model import Full2Mixer

TOLERANCE = 1e-5  # float32 against float32, relative to the largest entry


def hugging_face_mixer(spec: Full2Spec, chunk_size: int) -> Mamba2Mixer:
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
    return Mamba2Mixer(config, 0).eval()


def assert_near(ours: Tensor, theirs: Tensor, what: str) -> None:
    error = (ours - theirs).abs().max().item()
    assert error <= TOLERANCE * max(1.0, theirs.abs().max().item()), f"{what}: {error}"


@pytest.mark.parametrize("pattern", ["MVA", "MHA"])
@pytest.mark.parametrize("seed", range(12))
def test_the_mixer_is_theirs_in_output_and_every_gradient(seed: int, pattern: str) -> None:
    """Random sizes; every kernel width from 1 to 4 comes round; lengths below, at and above a chunk."""
    g = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=g))

    heads, head_dim = pick(1, 5), pick(1, 6)
    spec = Full2Spec(
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
    layer = BlockLayer(spec, Full2Mixer(spec))
    layer.draw_weights(g)
    with torch.no_grad():
        for weight in (layer.mixer.D, layer.mixer.norm.weight):
            assert weight is not None
            weight += 0.3 * torch.randn(weight.shape, generator=g)
    twin = hugging_face_mixer(spec, chunk_size=pick(1, 16))
    twin.load_state_dict(layer.mixer.state_dict(), strict=True)
    x = torch.randn(pick(1, 3), pick(1, 24), spec.embed_dim, generator=g)
    weight = torch.randn(x.shape, generator=g) / x.numel() ** 0.5
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y_ours, y_theirs = layer.trace(x_ours).y, twin(x_theirs)
    assert_near(y_ours, y_theirs, "output")
    (y_ours * weight).sum().backward()
    (y_theirs * weight).sum().backward()
    assert x_ours.grad is not None
    assert x_theirs.grad is not None
    assert_near(x_ours.grad, x_theirs.grad, "input gradient")
    theirs = dict(twin.named_parameters())
    for name, parameter in layer.mixer.named_parameters():
        assert parameter.grad is not None, name
        assert_near(parameter.grad, theirs[name].grad, name)
