"""Full Mamba. Its mixer has mamba-ssm's parameter names, so that weights move between them unchanged.

The forward pass of `--model mamba`, in reading order:

1. `layered.py`, `LayeredModel.trace`: embedding E, the layers, then the head Eᵀ. `forward` returns its logits.
2. `blocks.py`, `BlockLayer.trace`: x + Mixer(norm(x)); and `BlockModel.finish`, the norm before the head.
3. this file, `MambaMixer`, from top to bottom: `project_in` and `gate`, halves of in_proj; `drive`, convolution,
   SiLU, then Δ, B and C; `scan`; `project_out`.
4. `ops/conv.py` and `ops/selective_scan.py`: `causal_conv_loop` and `selective_scan_loop` are the plain forms.

Training and evaluation need the answers at the queries only: `LayeredModel.hidden_at`, `BlockLayer.read`,
`MambaMixer.read`. `mamba_step.py` is a training step of one layer without an autograd graph. All three agree (tested).

The letters of the mixer: E channels inside (D_in in the paper), R the rank of the Δ projection.

| name | shape | |
|---|---|---|
| `in_proj.weight` | (2E, D), or (E, D) without gate | x̂ half, then ẑ half |
| `conv1d.weight`, `conv1d.bias` | (E, 1, D_conv), (E) | |
| `x_proj.weight` | (R + 2N, E); (2N, E) if Δ is full rank or absent | Δ, B, C |
| `dt_proj.weight`, `dt_proj.bias` | (E, R), or (E, E) at full rank; (E) | S_Δ |
| `A_log` | (E, N) | A = -exp(A_log); none, and A = 0, without decay |
| `D` | (E) | skip weight |
| `out_proj.weight` | (D, E) | |
| `in_proj.bias`, `out_proj.bias` | (2E), (D) | only in checkpoints that have them |
"""

import math
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, silu, softplus

from recallscope.architectures.blocks import BlockModel, Mixer, draw_delta_bias, zero_weights
from recallscope.architectures.layered import OURS, Details
from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_step import full_step
from recallscope.architectures.model import draw_uniform, skip_init
from recallscope.architectures.outer_products import OuterProducts
from recallscope.ops.conv import causal_conv
from recallscope.ops.linear_scan import at_positions, hidden_states, linear_scan, read_at
from recallscope.ops.selective_scan import pick_form, selective_read_at, selective_scan, selective_states_loop
from recallscope.tasks.batch import Batch


class Drive(NamedTuple):
    """What drives the SSM: x̂, and what Eq. 2 makes of it. Δ is None where Ā = I."""

    x_hat: Float[Tensor, "batch L D_in"]
    delta: Float[Tensor, "batch L D_in"] | None
    B: Float[Tensor, "batch L N"]
    C: Float[Tensor, "batch L N"]


@final
class MambaMixer(Mixer):
    """Project, convolve, activate, scan, gate, project back; each part can be switched off.

    Paper: Eq. 1 (`eq:output_block`), Eq. 2 (`eq:TimeVariantMatrices1`), Eq. 3 (`eq:original-ssm`);
        switches of Tab. 8 (`fig:mqar_ablation`).
    Departs: like mamba-ssm, has the skip weight and the biases of conv and Δ that the print leaves out.
    """

    spec: MambaSpec

    def __init__(self, spec: MambaSpec, details: Details = OURS) -> None:
        super().__init__()
        bias = details.projection_bias
        D, E, N, D_conv = spec.embed_dim, spec.inner_dim, spec.state_dim, spec.conv_width
        steps, low_rank = spec.transition != "identity", spec.delta_rank == "low"
        R = (details.delta_rank or math.ceil(D / 16)) if low_rank else E
        self.spec = spec
        self.x_proj_rows = [R if steps and low_rank else 0, N, N]
        self.in_proj = skip_init(nn.Linear, D, 2 * E if spec.gate else E, bias=bias)
        self.conv1d = skip_init(nn.Conv1d, E, E, D_conv, groups=E, bias=spec.conv_bias)
        self.x_proj = skip_init(nn.Linear, E, sum(self.x_proj_rows), bias=False)
        self.dt_proj = skip_init(nn.Linear, R, E) if steps else None
        self.A_log = nn.Parameter(torch.empty(E, N)) if spec.transition == "selective" else None
        self.D = nn.Parameter(torch.empty(E)) if spec.skip else None
        self.out_proj = skip_init(nn.Linear, E, D, bias=bias)
        zero_weights(self)

    def transition(self) -> Float[Tensor, "D_in N"]:
        """A = -exp(A_log); 0 where only the write has a step size, so that Ā = exp(Δ A) = 1."""
        if self.A_log is None:
            return self.conv1d.weight.new_zeros(self.spec.inner_dim, self.spec.state_dim)
        return super().transition()

    def project_in(self, u: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D_in"]:
        """The half of in_proj that goes to the convolution."""
        return self.rows_of_in_proj(u, slice(None, self.spec.inner_dim))

    def gate(self, u: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D_in"] | None:
        """ẑ = SiLU(Linear(u)), the other half."""
        return silu(self.rows_of_in_proj(u, slice(self.spec.inner_dim, None))) if self.spec.gate else None

    def drive(self, x_in: Float[Tensor, "batch L D_in"]) -> Drive:
        """x̂ from the projected input, then Δ, B and C from x̂."""
        x_hat = self._convolve(x_in)
        low, B, C = self.x_proj(x_hat).split(self.x_proj_rows, dim=-1)
        if self.dt_proj is None:
            return Drive(x_hat, None, B, C)
        return Drive(x_hat, softplus(self.dt_proj(self._before_delta(low, x_hat))), B, C)

    def read(
        self, x_in: Float[Tensor, "batch L D_in"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D_in"]:
        """ŷ at the positions, skip included: x̂, Δ and B of every token, C where asked."""
        x_hat = self._convolve(x_in)
        *writing, _ = self.x_proj_rows
        W_write, W_read = self.x_proj.weight.split([sum(writing), self.spec.state_dim])
        low, B = linear(x_hat, W_write).split(writing, dim=-1)
        x_q = at_positions(x_hat, positions)
        C_q = linear(x_q, W_read)
        if self.dt_proj is None:
            return self._with_skip(read_at(x_hat, B, C_q, positions), x_q)
        delta = linear(self._before_delta(low, x_hat), self.dt_proj.weight)
        A, bias = self.transition(), self.dt_proj.bias
        return selective_read_at(x_hat, delta, A, B, C_q, positions, self.D, delta_bias=bias)

    def scan(self, drive: Drive) -> Float[Tensor, "batch L D_in"]:
        """ŷ after every token, skip included."""
        x_hat, delta, B, C = drive
        if delta is None:
            return self._with_skip(linear_scan(x_hat, B, C), x_hat)
        return selective_scan(x_hat, delta, self.transition(), B, C, self.D)

    def project_out(
        self, y_hat: Float[Tensor, "batch T D_in"], gate: Float[Tensor, "batch T D_in"] | None
    ) -> Float[Tensor, "batch T D"]:
        """Linear(ŷ ⊙ ẑ)."""
        return self.out_proj(y_hat if gate is None else y_hat * gate)

    def trace(self, u: Float[Tensor, "batch L D"], *, states: bool) -> dict[str, Tensor | None]:
        """x̂, B, C, Δ and ŷ of every token; the states, if asked for."""
        x_hat, delta, B, C = drive = self.drive(self.project_in(u))
        h = None
        if states:
            h = hidden_states(x_hat, B) if delta is None else selective_states_loop(x_hat, delta, self.transition(), B)
        return {"x_hat": x_hat, "B": B, "C": C, "delta": delta, "y_hat": self.scan(drive), "h": h}

    def skip(self, u: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D_in"] | None:
        """D x̂."""
        return None if self.D is None else self.D * self._convolve(self.project_in(u))

    def memory(self, u: Float[Tensor, "batch L D"]) -> OuterProducts:
        """One head of D_in channels, each with a decay of its own; the skip is left out."""
        (x_hat, delta, B, C), gate = self.drive(self.project_in(u)), self.gate(u)
        x_hat, B, C = (v[:, :, None] for v in (x_hat, B, C))
        gated, out = None if gate is None else gate[:, :, None], self.out_proj.weight[:, None]
        if delta is None:
            return OuterProducts(x_hat, B, C, out, gate=gated)
        A = self.transition()

        def decay(t: int) -> Tensor:
            return torch.exp(delta[:, t, None, :, None] * A)

        return OuterProducts(x_hat, B, C, out, step=delta[:, :, None], decay=decay, gate=gated)

    @torch.no_grad()
    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for every Linear and Conv1d but Δ's (see `_draw_delta`); A = -(1..N), skip = 1."""
        spec = self.spec
        self.draw_projections(generator, lambda: draw_uniform(self.x_proj.weight, spec.inner_dim, generator))
        if self.dt_proj is not None:
            self._draw_delta(self.dt_proj, generator)
        if self.A_log is not None:
            self.A_log.copy_(torch.arange(1, spec.state_dim + 1, device=self.A_log.device).log())
        if self.D is not None:
            self.D.fill_(1.0)

    def _draw_delta(self, dt_proj: nn.Linear, generator: torch.Generator) -> None:
        """Low rank: Δ starts log-uniform in [.001, .1], as in mamba-ssm.

        Full rank, as in the published ablations: a plain Linear with torch's default bias; Δ starts near log 2.
        """
        fan_in = dt_proj.weight.shape[1]
        draw_uniform(dt_proj.weight, fan_in, generator)
        if self.spec.delta_rank == "full":
            draw_uniform(dt_proj.bias, fan_in, generator)
        else:
            draw_delta_bias(dt_proj.bias, generator)

    def _convolve(self, x_in: Tensor) -> Tensor:
        x_hat = causal_conv(x_in, self.conv1d.weight[:, 0], self.conv1d.bias)
        return silu(x_hat) if self.spec.activation == "silu" else x_hat

    def _before_delta(self, low: Tensor, x_hat: Tensor) -> Tensor:
        return low if self.spec.delta_rank == "low" else x_hat

    def _with_skip(self, y_hat: Tensor, x_hat: Tensor) -> Tensor:
        return y_hat if self.D is None else y_hat + self.D * x_hat


@final
class Mamba(BlockModel):
    """Full Mamba-1. Weights: `E`, `layers[l].norm`, `layers[l].mixer` under mamba-ssm's names, `norm_f`.

    Paper: Eq. 1 (`eq:output_block`), Eq. 2 (`eq:TimeVariantMatrices1`), Eq. 3 (`eq:original-ssm`); ablations of
        Tab. 8 (`fig:mqar_ablation`).
    """

    spec: MambaSpec

    def __init__(self, spec: MambaSpec, vocab_size: int, details: Details = OURS) -> None:
        super().__init__(spec, vocab_size, [MambaMixer(spec, details) for _ in range(spec.num_layers)], details)

    @property
    def has_fast_step(self) -> bool:
        """One layer as a spec describes it, where the C kernels compute."""
        compiled = pick_form(self.E, self.spec.state_dim) == "compiled"
        return compiled and self.spec.num_layers == 1 and self.details == OURS

    def add_gradients(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """The loss of a batch, by a step without an autograd graph where there is one."""
        if self.has_fast_step:
            return full_step(self, batch, label_smoothing)
        return super().add_gradients(batch, label_smoothing)
