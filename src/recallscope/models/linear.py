"""Simplified Mamba: every step linear in the sequence but one, where what was written meets the query.

One class for the single layer (Alg. 1) and the stack with residuals (Alg. 3); `spec.residual` tells which.
"""

from collections.abc import Sequence
from typing import final

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.models.base import RecallLayer, RecallModel
from recallscope.models.draws import draw_uniform
from recallscope.models.trace import LayerTrace
from recallscope.ops import at_positions, causal_conv, hidden_states, linear_scan, read_at
from recallscope.specs import LinearSpec


@final
class LinearLayer(RecallLayer):
    """The mixer: project, convolve, write and read, project back.

    Paper: Alg. 1 (`alg:mamba`), Alg. 3 (`app-alg:mamba-layers`); shapes in Tab. 3 (`tab:mamba_dims`).
    """

    def __init__(self, spec: LinearSpec) -> None:
        super().__init__()
        D, D_in, N, D_conv = spec.embed_dim, spec.inner_dim, spec.state_dim, spec.conv_width
        self.residual = spec.residual
        self.P_in = nn.Parameter(torch.zeros(D_in, D))
        self.W_conv = nn.Parameter(torch.zeros(D_in, D_conv))
        self.S_B = nn.Parameter(torch.zeros(N, D_in))
        self.S_C = nn.Parameter(torch.zeros(N, D_in))
        self.P_out = nn.Parameter(torch.zeros(D, D_in))

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The printed algorithm, line by line."""
        x_in = self.project_in(x)
        x_hat = causal_conv(x_in, self.W_conv)
        B = einsum(x_hat, self.S_B, "batch L D_in, N D_in -> batch L N")
        C = einsum(x_hat, self.S_C, "batch L D_in, N D_in -> batch L N")
        y_hat = linear_scan(x_hat, B, C)
        y = self._project_out(y_hat, x)
        h = hidden_states(x_hat, B) if states else None
        return LayerTrace(x=x, x_hat=x_hat, B=B, C=C, y_hat=y_hat, y=y, h=h)

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D_in"]:
        """x_in = P_in x."""
        return einsum(x, self.P_in, "... D, D_in D -> ... D_in")

    def read(
        self,
        x_in: Float[Tensor, "batch L D_in"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """Keys everywhere, queries and all that follows at the positions."""
        x_hat = causal_conv(x_in, self.W_conv)
        B = einsum(x_hat, self.S_B, "batch L D_in, N D_in -> batch L N")
        C_q = einsum(at_positions(x_hat, positions), self.S_C, "batch Q D_in, N D_in -> batch Q N")
        return self._project_out(read_at(x_hat, B, C_q, positions), x_q)

    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for a Linear or depthwise Conv1d of the same shape."""
        for weight in (self.P_in, self.W_conv, self.S_B, self.S_C, self.P_out):
            draw_uniform(weight, weight.shape[1], generator)

    def _project_out(self, y_hat: Tensor, x: Tensor) -> Tensor:
        y_out = einsum(y_hat, self.P_out, "batch T D_in, D D_in -> batch T D")
        return x + y_out if self.residual else y_out


@final
class LinearMamba(RecallModel):
    """Simplified Mamba, one layer or several. Weights: `E`, and `layers[l].P_in, W_conv, S_B, S_C, P_out`.

    Paper: Alg. 1 (`alg:mamba`) without residual, Alg. 3 (`app-alg:mamba-layers`) with; the SSM is
        Eq. 4 (`eq:simple-ssm`).
    Departs: Alg. 3 with one layer is not Alg. 1, as it adds its input; the residual is a field of the spec.
    """

    spec: LinearSpec
    layers: Sequence[LinearLayer]

    def __init__(self, spec: LinearSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size, [LinearLayer(spec) for _ in range(spec.num_layers)])
