"""torch's own LSTM and GRU.

recallscope measure examples/others/torch_recurrent.py:LSTM --vocab-size 64 --num-facts 4
"""

from torch import Tensor, nn


class LSTM(nn.Module):
    def __init__(self, vocab_size: int, width: int = 64, num_layers: int = 1) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.memory = nn.LSTM(width, width, num_layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.memory(self.embed(tokens))[0])


class GRU(nn.Module):
    def __init__(self, vocab_size: int, width: int = 64, num_layers: int = 1) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.memory = nn.GRU(width, width, num_layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.memory(self.embed(tokens))[0])
