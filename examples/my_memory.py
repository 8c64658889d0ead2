"""A recurrent model of your own, in plain torch: recallscope measures it from this file.

recallscope measure examples/my_memory.py:Model --vocab-size 64 --num-facts 4
"""

from torch import Tensor, nn
from torch.nn.functional import pad


class Model(nn.Module):
    """A matrix S: every token adds itself to it, under the key of the token before."""

    def __init__(self, vocab_size: int, width: int = 16, keys: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.key = nn.Linear(width, keys, bias=False)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        query = self.key(x)
        key = pad(query, (0, 0, 1, 0))[:, :-1]  # that of the token before
        answer = (query @ key.mT).tril() @ x  # S_t query_t, with S_t = S_{t-1} + x_t key_tᵀ
        return self.head(answer)
