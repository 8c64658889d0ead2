"""GPT-2 of Hugging Face's transformers, built from its config with random weights.

Learned positions, initial scale 0.02. Dropout is off: every training sequence is new, so there is nothing to overfit.

recallscope measure examples/others/gpt2.py:Model --vocab-size 64 --num-facts 4
"""

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel


class Model(nn.Module):
    def __init__(
        self, vocab_size: int, width: int = 64, num_layers: int = 2, num_heads: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=vocab_size, n_positions=1024, n_embd=width, n_layer=num_layers, n_head=num_heads,
            embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout, use_cache=False,
        )  # fmt: skip
        self.model = GPT2LMHeadModel(config)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits
