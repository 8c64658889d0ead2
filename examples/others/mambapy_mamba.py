"""The Mamba of the package mambapy, as its config builds it, with an embedding and a head.

recallscope measure examples/others/mambapy_mamba.py:Model --vocab-size 64 --num-facts 4
"""

from mambapy.mamba import Mamba, MambaConfig
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, vocab_size: int, width: int = 32, state: int = 8, num_layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.layers = Mamba(MambaConfig(d_model=width, n_layers=num_layers, d_state=state))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embed(tokens))))
