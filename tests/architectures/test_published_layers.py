"""The published layers, whole: projections, positions, convolutions, gates, norms and MLPs are other people's layers.

Weights are copied over, and values and every gradient agree. The memories inside them are held to independent code by
`test_reference_layers.py`, at more sizes.
"""

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from closeness import assert_agree, output_and_gradients
from recallscope.architectures.matrix_memory import AttentionSpec
from recallscope.architectures.matrix_memory_model import MemoryLayer


def pick(g: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=g))


def drawn(spec: AttentionSpec, g: torch.Generator, spread: float = 0.3) -> MemoryLayer:
    """A layer whose weights are all moved off the constants that they start at."""
    layer = spec.blank_model(4).layers[0]
    layer.draw_weights(g)
    with torch.no_grad():
        for weight in layer.parameters():
            weight += spread * torch.randn(weight.shape, generator=g)
    return layer


def named_gradients(output: Tensor, x: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return output_and_gradients(output, {"x": x, **weights})


@pytest.mark.parametrize("seed", range(4))
def test_attention_with_rotary_and_mlp_is_a_decoder_layer_of_llama(seed: int) -> None:
    """Both norms, RoPE of another base, residuals and SwiGLU."""
    g = torch.Generator().manual_seed(seed)
    M, P = pick(g, 1, 3), 2 * pick(g, 1, 4)
    spec = AttentionSpec.published(
        embed_dim=M * P, state_dim=P, num_heads=M, num_layers=1, rotary_base=50.0, mlp_width=pick(g, 3, 9)
    )
    layer, L = drawn(spec, g), pick(g, 1, 12)
    config = LlamaConfig(
        vocab_size=4, hidden_size=M * P, intermediate_size=spec.mlp_width, num_hidden_layers=1, num_attention_heads=M,
        head_dim=P, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": spec.rotary_base},
        attn_implementation="eager",
    )  # fmt: skip
    theirs = LlamaDecoderLayer(config, 0).eval()
    q, k, v = layer.W_in[0].split(layer.rows)
    assert layer.mlp is not None
    theirs.load_state_dict(
        {
            "self_attn.q_proj.weight": q, "self_attn.k_proj.weight": k, "self_attn.v_proj.weight": v,
            "self_attn.o_proj.weight": layer.W_out, "input_layernorm.weight": layer.norm.weight,
            "post_attention_layernorm.weight": layer.mlp.norm.weight, "mlp.gate_proj.weight": layer.mlp.W_gate,
            "mlp.up_proj.weight": layer.mlp.W_up, "mlp.down_proj.weight": layer.mlp.W_down,
        }
    )  # fmt: skip
    x = torch.randn(2, L, M * P, generator=g).requires_grad_()
    turns = LlamaRotaryEmbedding(config)(x, torch.arange(L)[None])
    ahead = torch.full((L, L), -torch.inf).triu(1)[None, None]

    def llama() -> dict[str, Tensor]:
        weights = dict(theirs.named_parameters())
        found = named_gradients(theirs(x, attention_mask=ahead, position_embeddings=turns), x, weights)
        projections = [found.pop(f"self_attn.{name}_proj.weight") for name in "qkv"]
        return found | {"qkv": torch.cat(projections)}

    ours = {
        "qkv": layer.W_in, "self_attn.o_proj.weight": layer.W_out, "input_layernorm.weight": layer.norm.weight,
        "post_attention_layernorm.weight": layer.mlp.norm.weight, "mlp.gate_proj.weight": layer.mlp.W_gate,
        "mlp.up_proj.weight": layer.mlp.W_up, "mlp.down_proj.weight": layer.mlp.W_down,
    }  # fmt: skip
    mine = named_gradients(layer.mix(x), x, ours)
    assert_agree(mine | {"qkv": mine["qkv"][0]}, llama, [x, *theirs.parameters()])
