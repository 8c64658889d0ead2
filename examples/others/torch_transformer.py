"""torch's own nn.TransformerEncoder with a causal mask and learned positions.

Dropout is off: every training sequence is new, so there is nothing to overfit.

recallscope measure examples/others/torch_transformer.py:Model --vocab-size 64 --num-facts 4
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(
        self, vocab_size: int, width: int = 64, num_layers: int = 2, num_heads: int = 2, dropout: float = 0.0,
        longest: int = 1024,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, num_heads, 2 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        x = self.embed(tokens) + self.positions(torch.arange(length, device=tokens.device))
        return self.head(self.encoder(x, mask=mask.to(x.dtype), is_causal=True))
