"""A model that knows nothing of recallscope: `recallscope train --model examples/gru.py:Model --vocab-size 64 --num-facts 4`.

Its constructor takes the number of tokens, and `forward` returns logits after every token. That is all that is asked.
"""

from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, vocab_size: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.gru(self.embedding(tokens))[0])
