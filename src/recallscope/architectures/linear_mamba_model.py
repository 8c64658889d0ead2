"""Simplified Mamba: every step linear in the sequence but one, where what was written meets the query.

One class for the single layer (Alg. 1) and the stack with residuals (Alg. 3); `spec.residual` tells which.
"""

from collections.abc import Sequence
from typing import final

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from recallscope.architectures.capabilities import Operators, input_embedding
from recallscope.architectures.layered import LayerTrace
from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.architectures.model import draw_uniform
from recallscope.architectures.outer_products import (
    OperatorLayer,
    OperatorModel,
    OuterProducts,
    random_order,
    random_scales,
)
from recallscope.ops.conv import causal_conv
from recallscope.ops.linear_scan import hidden_states, linear_scan


@final
class LinearLayer(OperatorLayer):
    """The mixer: project, convolve, write and read, project back.

    Paper: Alg. 1 (`alg:mamba`), Alg. 3 (`app-alg:mamba-layers`); shapes in Tab. 3 (`tab:mamba_dims`).
    """

    def __init__(self, spec: LinearMambaSpec) -> None:
        super().__init__()
        D, D_in, N, D_conv = spec.embed_dim, spec.inner_dim, spec.state_dim, spec.conv_width
        self.residual, self.conv_width = spec.residual, D_conv
        self.P_in = nn.Parameter(torch.zeros(D_in, D))
        self.W_conv = nn.Parameter(torch.zeros(D_in, D_conv))
        self.S_B = nn.Parameter(torch.zeros(N, D_in))
        self.S_C = nn.Parameter(torch.zeros(N, D_in))
        self.P_out = nn.Parameter(torch.zeros(D, D_in))

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The printed algorithm, line by line."""
        x_in = einsum(x, self.P_in, "batch L D, D_in D -> batch L D_in")
        x_hat = causal_conv(x_in, self.W_conv)
        B = einsum(x_hat, self.S_B, "batch L D_in, N D_in -> batch L N")
        C = einsum(x_hat, self.S_C, "batch L D_in, N D_in -> batch L N")
        y_hat = linear_scan(x_hat, B, C)
        y = self.passed_on(x, einsum(y_hat, self.P_out, "batch L D_in, D D_in -> batch L D"))
        h = hidden_states(x_hat, B) if states else None
        return LayerTrace(x=x, x_hat=x_hat, B=B, C=C, y_hat=y_hat, y=y, h=h)

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """What a token adds to key, value and query, tap by tap of the convolution: M_j x.

        With R = (S_B; P_out; S_C), M_j = R diag(w_j) P_in. P_out goes before the scan: values have D entries, not D_in.
        """
        R = torch.cat((self.S_B, self.P_out, self.S_C))
        M = (R * self.W_conv.T[:, None]) @ self.P_in  # D_conv 2N+D D
        return x @ M.flatten(0, 1).T

    def join(self, y_heads: Float[Tensor, "batch T M P"]) -> Float[Tensor, "batch T D"]:
        """One head, and P_out went before the scan."""
        return y_heads.squeeze(-2)

    def out(self) -> Float[Tensor, "D M P"]:
        """P_out, from the one head."""
        return self.P_out[:, None]

    def memory(self, x: Float[Tensor, "batch L D"]) -> OuterProducts:
        """x̂, B and C with one head; nothing fades."""
        trace = self.trace(x)
        x_hat, B, C = (v[:, :, None] for v in (trace.x_hat, trace.B, trace.C))
        return OuterProducts(x_hat, B, C, self.out())

    def operators(self, code: Float[Tensor, "D T"]) -> tuple[Operators, ...]:
        """Those of its one head.   Paper: Eq. 9 (`eq:proj-opertators`)."""
        E_hat_in = input_embedding(code, self.P_in, self.W_conv)
        return (Operators(E_hat_in, code.T @ self.P_out, self.S_B @ E_hat_in, self.S_C @ E_hat_in),)

    def rotate(self, Q: Float[Tensor, "D D"], generator: torch.Generator, spread: float) -> None:
        """Other weights for the same function: see `OperatorModel.rotated`."""
        D_in = len(self.P_in)
        order = random_order(D_in, generator, Q)
        scale, conv_scale = (random_scales(D_in, generator, spread, Q) for _ in range(2))
        self.P_in.copy_(scale[:, None] * (self.P_in @ Q)[order])
        self.W_conv.copy_(conv_scale[:, None] * self.W_conv[order])
        back = 1 / (scale * conv_scale)
        self.rotate_state(generator, spread)
        for weight in (self.S_B, self.S_C):
            weight.copy_(weight[:, order] * back)
        self.P_out.copy_((Q.T @ self.P_out)[:, order] * back)

    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for a Linear or depthwise Conv1d of the same shape."""
        for weight in (self.P_in, self.W_conv, self.S_B, self.S_C, self.P_out):
            draw_uniform(weight, weight.shape[1], generator)


@final
class LinearMamba(OperatorModel):
    """Simplified Mamba, one layer or several. Weights: `E`, and `layers[l].P_in, W_conv, S_B, S_C, P_out`.

    Paper: Alg. 1 (`alg:mamba`) without residual, Alg. 3 (`app-alg:mamba-layers`) with; the SSM is
        Eq. 4 (`eq:simple-ssm`).
    Departs: Alg. 3 with one layer is not Alg. 1, as it adds its input; the residual is a field of the spec.
    """

    spec: LinearMambaSpec
    layers: Sequence[LinearLayer]

    def __init__(self, spec: LinearMambaSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size, [LinearLayer(spec) for _ in range(spec.num_layers)])
