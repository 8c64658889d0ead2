"""An architecture of one's own in one file: DeltaNet with L2-normed keys, beta = sigmoid and a short convolution."""

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from recallscope import ModelSpec, RecallModel, architecture


@architecture("my_delta_net")
class DeltaNetSpec(ModelSpec):
    """One layer of the delta rule, S <- S + beta k (v - Sᵀ k)ᵀ."""

    model = "DeltaNet"
    embed_dim: int = Field(gt=0, description="D, width of the embedding and of the values")
    state_dim: int = Field(gt=0, description="N, width of keys and queries")
    conv_width: int = Field(2, gt=0, description="taps of the causal convolution")

    @property
    def state_entries(self) -> int:
        """S is N x D."""
        return self.state_dim * self.embed_dim


class DeltaNet(RecallModel):
    """Embedding, convolution, delta rule, tied head."""

    def __init__(self, spec: DeltaNetSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size)
        D, N = spec.embed_dim, spec.state_dim
        self.embedding = nn.Embedding(vocab_size, D)
        self.conv = nn.Conv1d(D, 2 * N + D + 1, spec.conv_width)
        self.out = nn.Linear(D, D, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(tokens)[0]

    def state_after(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The memory of its one layer and one head, (batch, 1, D, N): what makes it a model that shows its state."""
        return (self.read(tokens)[1].mT[:, None].detach(),)

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        D, N = self.spec.embed_dim, self.spec.state_dim
        x = pad(self.embedding(tokens).mT, (self.spec.conv_width - 1, 0))
        q, k, v, b = self.conv(x).mT.split([N, N, D, 1], dim=-1)
        q, k, beta = normalize(q, dim=-1), normalize(k, dim=-1), torch.sigmoid(b)
        S = x.new_zeros(len(tokens), N, D)
        outputs = []
        for t in range(tokens.shape[1]):
            old = torch.einsum("bnd,bn->bd", S, k[:, t])
            S = S + torch.einsum("bn,bd->bnd", k[:, t], beta[:, t] * (v[:, t] - old))
            outputs.append(torch.einsum("bnd,bn->bd", S, q[:, t]))
        return self.out(torch.stack(outputs, dim=1)) @ self.embedding.weight.T, S
