"""Simplified Mamba-2: values, keys and queries each with their own projection and kernel, and several heads.

A head pattern says what the heads share (see `ops/head_patterns.py`).
"""

from collections.abc import Sequence
from typing import final

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.architectures.initial_weights import draw_normal, draw_uniform
from recallscope.architectures.layered import LayeredModel, LayerTrace, RecallLayer
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.ops import (
    Reading,
    aggregate,
    causal_conv,
    contract,
    deal,
    head_counts,
    multi_head_scan,
    multi_head_states,
    split,
    table_scan,
)


@final
class MultiHeadLayer(RecallLayer):
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
        self.num_heads = M
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

    def mix(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """`trace(x).y` from few large products and one scan."""
        return self._scan(self.project_in(x).flatten(0, 1), None, None, len(x))

    def read(
        self,
        x_in: Float[Tensor, "batch L C"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """The scan of every head runs through, and is read at the positions."""
        return self._scan(x_in.flatten(0, 1), None, positions, len(x_in))

    def read_tokens(
        self, table: Float[Tensor, "V D"], tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """The same of tokens given by number: the products are over the vocabulary, if the batch has more tokens."""
        if len(table) >= tokens.numel():
            return super().read_tokens(table, tokens, positions)
        return self._scan(self.project_in(table), tokens, positions, len(tokens))

    def draw_weights(self, generator: torch.Generator) -> None:
        """W_x, W_y ~ N(0, 1) as published; the rest torch's default for a Linear or depthwise Conv1d."""
        for weight in (self.P_in_x, self.P_in_B, self.P_in_C, self.W_conv_x, self.W_conv_B, self.W_conv_C):
            draw_uniform(weight, weight.shape[-1], generator)
        for weight in (self.S_B, self.S_C, self.P_out):
            draw_uniform(weight, weight.shape[-1], generator)
        for weight in (self.W_x, self.W_y):
            draw_normal(weight, 1.0, generator)

    def _scan(
        self, rows: Tensor, ids: Tensor | None, positions: Tensor | None, batch: int
    ) -> Float[Tensor, "batch T D"]:
        """From rows of `project_in` to the output; W_y and P_out are one map."""
        D_conv, N = self.W_conv_x.shape[1], self.S_B.shape[1]
        reading = Reading(ids, positions, batch, N, self.heads)
        y_heads = table_scan(rows.unflatten(-1, (D_conv, -1)), reading)
        out = einsum(self.P_out, self.W_y, "D D_in, D_in P M -> D M P")
        return y_heads.flatten(-2) @ out.flatten(1).T

    def _head_values(self, x_hat: Tensor) -> Tensor:
        if self.shares_values:
            return contract(split(x_hat, self.num_heads), self.W_x)
        return deal(x_hat, self.W_x)


@final
class MultiHeadMamba(LayeredModel):
    """Simplified Mamba-2 with one layer of heads. Weights: `E`, and those of `layers[0]`.

    Paper: Alg. 4 (`alg:mamba-2`).
    """

    spec: MultiHeadSpec
    layers: Sequence[MultiHeadLayer]

    def __init__(self, spec: MultiHeadSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size, [MultiHeadLayer(spec)])
