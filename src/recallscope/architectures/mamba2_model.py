"""Full Mamba-2. Its mixer has mamba-ssm's parameter names, so that weights move between them unchanged.

The letters of the mixer: E channels inside (D_in in the paper), M heads of P = E/M channels, K_B and K_C how many
heads have keys and queries of their own (M or 1).

| name | shape | |
|---|---|---|
| `in_proj.weight` | (2E + (K_B + K_C) N + M, D) | ẑ, x̂, B, C, Δ |
| `conv1d.weight`, `conv1d.bias` | (E + (K_B + K_C) N, 1, D_conv), as many | over x̂, B, C |
| `dt_bias`, `A_log`, `D` | (M) each | A = -exp(A_log); skip weight |
| `norm.weight` | (E) | RMSNorm of ŷ ⊙ SiLU(ẑ) |
| `out_proj.weight` | (D, E) | |
| `W_x` | (P, M), where the heads share values (MQA, MKA) | not in mamba-ssm, which has MHA and MVA only |
"""

import math
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from recallscope.architectures.blocks import BlockModel, Mixer, draw_delta_bias, zero_weights
from recallscope.architectures.layered import OURS, Details
from recallscope.architectures.mamba import Mamba2Spec
from recallscope.architectures.model import draw_normal, skip_init
from recallscope.architectures.outer_products import OuterProducts
from recallscope.ops.conv import causal_conv
from recallscope.ops.head_patterns import contract, head_counts, split
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.ssd import ssd_scan, ssd_states_loop

RATE_MIN, RATE_MAX = 1.0, 16.0  # mamba-ssm's range of -A at the start


class HeadDrive(NamedTuple):
    """What drives the heads: x̂ before and after it is dealt to them, and what Eq. 2 makes of the input."""

    x_hat: Float[Tensor, "batch L D_in"]
    x_heads: Float[Tensor, "batch L #M P"]
    delta: Float[Tensor, "batch L M"]
    B: Float[Tensor, "batch L #M N"]
    C: Float[Tensor, "batch L #M N"]


@final
class Mamba2Mixer(Mixer):
    """Project, convolve, activate, scan, gate and normalise, project back.

    Paper: the block of Eq. 1 (`eq:output_block`) as Mamba-2 has it: B, C and Δ come from the input, not from x̂, as
        in Alg. 4 (`alg:mamba-2`), whose head patterns are those of Tab. 5 (`tab:head-patterns`).
    Departs: where the heads share values the paper's contraction W_x makes them (`ops.contract`); heads are stacked,
        and W_y is left to out_proj. Groups between 1 and M, which mamba-ssm has, are loaded as MHA.
    """

    spec: Mamba2Spec
    A_log: nn.Parameter
    UNDECAYED = ("A_log", "dt_bias", "D")

    def __init__(self, spec: Mamba2Spec, details: Details = OURS) -> None:
        super().__init__()
        D, E, N, M, P = spec.embed_dim, spec.inner_dim, spec.state_dim, spec.num_heads, spec.head_dim
        self.heads = head_counts(spec.head_pattern, M)
        conv_rows = E + (self.heads.B + self.heads.C) * N
        self.spec, self.delta_limits = spec, details.delta_limits
        self.in_proj_rows = [E, conv_rows, M]
        self.conv_parts = [E, self.heads.B * N, self.heads.C * N]
        self.in_proj = skip_init(nn.Linear, D, sum(self.in_proj_rows), bias=details.projection_bias)
        self.conv1d = skip_init(nn.Conv1d, conv_rows, conv_rows, spec.conv_width, groups=conv_rows, bias=spec.conv_bias)
        self.dt_bias = nn.Parameter(torch.empty(M))
        self.A_log = nn.Parameter(torch.empty(M))
        self.D = nn.Parameter(torch.empty(M)) if spec.skip else None
        self.W_x = nn.Parameter(torch.empty(P, M)) if self.heads.x == 1 < M else None
        self.out_proj = skip_init(nn.Linear, E, D, bias=details.projection_bias)
        zero_weights(self)
        self.norm = nn.RMSNorm(E, eps=details.norm_eps)

    def project_in(self, u: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """What goes to the convolution (x̂, B, C), and Δ beside it."""
        return self.rows_of_in_proj(u, slice(self.spec.inner_dim, None))

    def gate(self, u: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D_in"]:
        """ẑ after SiLU, from the first rows of in_proj."""
        return silu(self.rows_of_in_proj(u, slice(None, self.spec.inner_dim)))

    def drive(self, x_in: Float[Tensor, "batch L C"]) -> HeadDrive:
        """x̂, B and C by convolution and SiLU; Δ by softplus."""
        M, N = self.spec.num_heads, self.spec.state_dim
        before, raw = x_in.split(self.in_proj_rows[1:], dim=-1)
        x_hat, B, C = silu(causal_conv(before, self.conv1d.weight[:, 0], self.conv1d.bias)).split(
            self.conv_parts, dim=-1
        )
        delta = softplus(raw + self.dt_bias)
        if self.delta_limits != (0.0, math.inf):
            delta = delta.clamp(*self.delta_limits)
        x_heads = split(x_hat, M)
        if self.W_x is not None:
            x_heads = contract(x_heads, self.W_x)
        return HeadDrive(x_hat, x_heads, delta, B.unflatten(-1, (self.heads.B, N)), C.unflatten(-1, (self.heads.C, N)))

    def scan(self, drive: HeadDrive) -> Float[Tensor, "batch L M P"]:
        """ŷ of every head after every token, skip included."""
        _, x_heads, delta, B, C = drive
        y_heads = ssd_scan(x_heads, delta, self.transition(), B, C)
        return y_heads if self.D is None else y_heads + self.D[:, None] * x_heads

    def states(self, drive: HeadDrive) -> Float[Tensor, "batch L M P N"]:
        """h of every head after every token."""
        return ssd_states_loop(drive.x_heads, drive.delta, self.transition(), drive.B)

    def project_out(
        self, y_hat: Float[Tensor, "batch T D_in"], gate: Float[Tensor, "batch T D_in"] | None
    ) -> Float[Tensor, "batch T D"]:
        """Linear(norm(ŷ ⊙ ẑ)): the gate comes before the norm."""
        assert gate is not None
        return self.out_proj(self.norm(y_hat * gate))

    def read(
        self, x_in: Float[Tensor, "batch L C"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D_in"]:
        """ŷ at the positions."""
        return at_positions(self.scan(self.drive(x_in)).flatten(-2), positions)

    def trace(self, u: Float[Tensor, "batch L D"], *, states: bool) -> dict[str, Tensor | None]:
        """Every tensor of the heads; Δ is given for every channel, though those of a head share it."""
        x_hat, x_heads, delta, B, C = drive = self.drive(self.project_in(u))
        y_heads = self.scan(drive)
        h = self.states(drive) if states else None
        per_channel = delta.repeat_interleave(self.spec.head_dim, dim=-1)
        own: dict[str, Tensor | None] = {"x_hat": x_hat, "B": B, "C": C, "delta": per_channel, "h": h}
        return own | {"x_heads": x_heads, "y_heads": y_heads, "y_hat": y_heads.flatten(-2)}

    def skip(self, u: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D_in"] | None:
        """D x̂ of every head."""
        if self.D is None:
            return None
        x_heads = self.drive(self.project_in(u)).x_heads
        return (self.D[:, None] * x_heads).expand(-1, -1, self.spec.num_heads, -1).flatten(2)

    def memory(self, u: Float[Tensor, "batch L D"]) -> OuterProducts:
        """Heads whose channels decay alike; the skip, and the length that the gated norm divides by, are left out."""
        _, x_heads, delta, B, C = self.drive(self.project_in(u))
        M, A = self.spec.num_heads, self.transition()
        gate = split(self.gate(u) * self.norm.weight, M)
        out = self.out_proj.weight.unflatten(1, (M, -1))

        def decay(t: int) -> Tensor:
            return torch.exp(delta[:, t] * A)[..., None, None]

        return OuterProducts(x_heads, B, C, out, step=delta[..., None], decay=decay, gate=gate)

    @torch.no_grad()
    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for Linear and Conv1d, W_x ~ N(0, 1); Δ log-uniform in [.001, .1], -A uniform in [1, 16],
        skip 1."""
        self.draw_projections(generator)
        draw_delta_bias(self.dt_bias, generator)
        rates = torch.empty(self.spec.num_heads, device=generator.device)
        self.A_log.copy_(rates.uniform_(RATE_MIN, RATE_MAX, generator=generator).log())
        if self.D is not None:
            self.D.fill_(1.0)
        if self.W_x is not None:
            draw_normal(self.W_x, 1.0, generator)


@final
class Mamba2(BlockModel):
    """Full Mamba-2. Weights: `E`, `layers[l].norm`, `layers[l].mixer` under mamba-ssm's names, `norm_f`.

    Paper: App. H (`app:mamba-2-multi-head`) studies it without gate, norm, activation and decay; patterns of
        Tab. 5 (`tab:head-patterns`).
    """

    spec: Mamba2Spec

    def __init__(self, spec: Mamba2Spec, vocab_size: int, details: Details = OURS) -> None:
        super().__init__(spec, vocab_size, [Mamba2Mixer(spec, details) for _ in range(spec.num_layers)], details)
