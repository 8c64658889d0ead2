"""A Llama of Hugging Face's transformers, built from its config with random weights: rotary positions, scale 0.02.

recallscope measure examples/others/llama.py:Model --vocab-size 64 --num-facts 4
"""

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


class Model(nn.Module):
    def __init__(self, vocab_size: int, width: int = 64, num_layers: int = 2, num_heads: int = 2) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=vocab_size, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=num_layers,
            num_attention_heads=num_heads, max_position_embeddings=1024, use_cache=False,
        )  # fmt: skip
        self.model = LlamaForCausalLM(config)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits
