"""Simplified Mamba-2: values, keys and queries each with their own projection and kernel, and several heads.

A head pattern says what the heads share (see `ops/head_patterns.py`).
"""

from collections.abc import Sequence
from typing import final

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from recallscope.architectures.capabilities import Operators, input_embedding
from recallscope.architectures.layered import LayerTrace
from recallscope.architectures.mamba import MultiHeadSpec
from recallscope.architectures.model import draw_normal, draw_uniform
from recallscope.architectures.outer_products import (
    OperatorLayer,
    OperatorModel,
    OuterProducts,
    random_order,
    random_rotation,
    random_scales,
)
from recallscope.ops.conv import causal_conv
from recallscope.ops.head_patterns import (
    aggregate,
    contract,
    deal,
    head_counts,
    multi_head_scan,
    multi_head_states,
    split,
)


@final
class MultiHeadLayer(OperatorLayer):
    """The mixer of simplified Mamba-2. Weights, with M heads of P channels and D_in = M P:

    - `P_in_x, P_in_B, P_in_C` (D_in D), `W_conv_x, W_conv_B, W_conv_C` (D_in D_conv), `P_out` (D D_in);
    - `S_B, S_C` (M N D_in), or (1 N D_in) where the heads share keys or queries;
    - `W_x` (P M) where they share values (MQA, MKA): the printed contraction x̂_shared = Σ_h W_x^h ⊙ x̂^h, one
      weight per channel and head; mixing channels is left to `P_in_x`, which stands before it. Where they do
      not (MHA, MVA), (P M D_in): any map from channels to heads, the printed split is `dealing_weight(M, P)`;
    - `W_y` (D_in P M): any map from heads to channels, the printed stack is `stacking_weight(M, P)`.

    Paper: Alg. 4 (`alg:mamba-2`); shapes Tab. 7 (`tab:mamba2_dims`), patterns Tab. 5 (`tab:head-patterns`).
    Departs: the print has D_in = D (`expand` 1) and only splits unshared values. Here, as in the published
        experiments, D_in = 2 D unless said otherwise, W_x and W_y have the shapes above and start as N(0, 1).
    """

    def __init__(self, spec: MultiHeadSpec) -> None:
        super().__init__()
        D, D_in, N, D_conv = spec.embed_dim, spec.inner_dim, spec.state_dim, spec.conv_width
        M, P = spec.num_heads, spec.head_dim
        self.heads = heads = head_counts(spec.head_pattern, M)
        self.num_heads, self.conv_width = M, D_conv
        self.shares_values = spec.head_pattern in ("MQA", "MKA")
        self.P_in_x, self.P_in_B, self.P_in_C = (nn.Parameter(torch.zeros(D_in, D)) for _ in range(3))
        self.W_conv_x, self.W_conv_B, self.W_conv_C = (nn.Parameter(torch.zeros(D_in, D_conv)) for _ in range(3))
        self.S_B = nn.Parameter(torch.zeros(heads.B, N, D_in))
        self.S_C = nn.Parameter(torch.zeros(heads.C, N, D_in))
        self.W_x = nn.Parameter(torch.zeros(P, M) if self.shares_values else torch.zeros(P, M, D_in))
        self.W_y = nn.Parameter(torch.zeros(D_in, P, M))
        self.P_out = nn.Parameter(torch.zeros(D, D_in))

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The printed algorithm, line by line; the loop over heads is one batched scan."""
        P_in = torch.cat([self.P_in_x, self.P_in_B, self.P_in_C])
        W_conv = torch.cat([self.W_conv_x, self.W_conv_B, self.W_conv_C])
        x_in = einsum(x, P_in, "batch L D, three_D_in D -> batch L three_D_in")
        x_hat, keys_in, queries_in = causal_conv(x_in, W_conv).chunk(3, dim=-1)
        B = einsum(keys_in, self.S_B, "batch L D_in, M N D_in -> batch L M N")
        C = einsum(queries_in, self.S_C, "batch L D_in, M N D_in -> batch L M N")
        x_heads = self._head_values(x_hat)
        y_heads = multi_head_scan(x_heads, B, C)
        y_hat = aggregate(y_heads, self.W_y)
        y = einsum(y_hat, self.P_out, "batch L D_in, D D_in -> batch L D")
        h = multi_head_states(x_heads, B) if states else None
        return LayerTrace(x=x, x_hat=x_hat, B=B, C=C, y_hat=y_hat, y=y, x_heads=x_heads, y_heads=y_heads, h=h)

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """What a token adds to keys, values and queries of the heads, tap by tap of the convolution."""
        keys, values, queries = (
            W_conv.T[..., None] * P_in  # D_conv D_in D
            for W_conv, P_in in (
                (self.W_conv_B, self.P_in_B),
                (self.W_conv_x, self.P_in_x),
                (self.W_conv_C, self.P_in_C),
            )
        )
        if self.shares_values:
            to_heads = einsum(values.unflatten(1, (self.num_heads, -1)), self.W_x, "tap M P D, P M -> tap P D")
        else:
            to_heads = self.W_x.transpose(0, 1).flatten(0, 1) @ values  # D_conv M*P D
        by_tap = torch.cat((self.S_B.flatten(0, 1) @ keys, to_heads, self.S_C.flatten(0, 1) @ queries), dim=1)
        return x @ by_tap.flatten(0, 1).T

    def memory(self, x: Float[Tensor, "batch L D"]) -> OuterProducts:
        """What the heads write and read; nothing fades."""
        trace = self.trace(x)
        assert trace.x_heads is not None
        return OuterProducts(trace.x_heads, trace.B, trace.C, self.out())

    def operators(self, code: Float[Tensor, "D T"]) -> tuple[Operators, ...]:
        """Those of every head.   Paper: Eq. 9 (`eq:proj-opertators`), heads as in Alg. 4 (`alg:mamba-2`)."""
        parts = ((self.P_in_x, self.W_conv_x), (self.P_in_B, self.W_conv_B), (self.P_in_C, self.W_conv_C))
        E_hat_x, E_hat_B, E_hat_C = (input_embedding(code, P_in, W_conv) for P_in, W_conv in parts)
        Pi_v_in = self._head_values(E_hat_x.T).permute(1, 2, 0)  # heads (1 if shared), P, windows
        Pi_v_out = einsum(code, self.out(), "D T, D M P -> M T P")
        Pi_k_in, Pi_q_in = self.S_B @ E_hat_B, self.S_C @ E_hat_C
        heads = (part.expand(self.num_heads, -1, -1) for part in (Pi_v_in, Pi_v_out, Pi_k_in, Pi_q_in))
        return tuple(Operators(v_in, v_out, k, q) for v_in, v_out, k, q in zip(*heads, strict=True))

    def rotate(self, Q: Float[Tensor, "D D"], generator: torch.Generator, spread: float) -> None:
        """Other weights for the same function: see `OperatorModel.rotated`."""
        D_in = self.P_out.shape[1]
        for P_in, W_conv, reads in ((self.P_in_B, self.W_conv_B, self.S_B), (self.P_in_C, self.W_conv_C, self.S_C)):
            order, scale = random_order(D_in, generator, Q), random_scales(D_in, generator, spread, Q)
            P_in.copy_(scale[:, None] * (P_in @ Q)[order])
            W_conv.copy_(W_conv[order])
            reads.copy_(reads[..., order] / scale)
        scale = random_scales(D_in, generator, spread, Q)
        self.P_in_x.copy_(scale[:, None] * (self.P_in_x @ Q))
        if self.shares_values:  # one weight per channel and head, dealt in order: channels keep their places
            self.W_x.copy_(self.W_x / scale.view(self.num_heads, -1).T)
        else:
            self.W_x.copy_(self.W_x / scale)
        self.rotate_state(generator, spread)
        mix = random_rotation(D_in, generator, Q)
        self.W_y.copy_(einsum(mix, self.W_y, "a b, b P M -> a P M"))
        self.P_out.copy_(Q.T @ self.P_out @ mix.T)

    def draw_weights(self, generator: torch.Generator) -> None:
        """W_x, W_y ~ N(0, 1) as published; the rest torch's default for a Linear or depthwise Conv1d."""
        by_input = (self.P_in_x, self.P_in_B, self.P_in_C, self.W_conv_x, self.W_conv_B, self.W_conv_C)
        for weight in (*by_input, self.S_B, self.S_C, self.P_out):
            draw_uniform(weight, weight.shape[-1], generator)
        for weight in (self.W_x, self.W_y):
            draw_normal(weight, 1.0, generator)

    def out(self) -> Float[Tensor, "D M P"]:
        """W_y and P_out as one map."""
        return einsum(self.P_out, self.W_y, "D D_in, D_in P M -> D M P")

    def _head_values(self, x_hat: Tensor) -> Tensor:
        if self.shares_values:
            return contract(split(x_hat, self.num_heads), self.W_x)
        return deal(x_hat, self.W_x)


@final
class MultiHeadMamba(OperatorModel):
    """Simplified Mamba-2 with one layer of heads. Weights: `E`, and those of `layers[0]`.

    Paper: Alg. 4 (`alg:mamba-2`).
    """

    spec: MultiHeadSpec
    layers: Sequence[MultiHeadLayer]

    def __init__(self, spec: MultiHeadSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size, [MultiHeadLayer(spec)])
