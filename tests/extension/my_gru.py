"""A model of one's own that knows nothing of recallscope."""

from torch import nn


class Model(nn.Module):
    def __init__(self, vocab_size, width=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens):
        return self.head(self.gru(self.embedding(tokens))[0])
