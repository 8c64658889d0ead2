"""A model of one's own with habits: it prints, replaces a buffer by a new tensor, and draws when it answers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab_size, width=8):
        super().__init__()
        print("made")
        self.embedding = nn.Embedding(vocab_size, width)
        self.head = nn.Linear(width, vocab_size)
        self.head.weight = self.embedding.weight
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, tokens):
        print("called")
        found = self.embedding(tokens).cumsum(1)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * found.detach().mean((0, 1))
        return self.head(nn.functional.dropout(found - self.mean, 0.2))
