"""Full Mamba-2: pre-norm, mixer with heads, residual, as often as there are layers; a last norm, and the head."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.models.base import RecallLayer, RecallModel
from recallscope.models.details import OURS, Details
from recallscope.models.full2_mixer import Full2Mixer
from recallscope.models.trace import LayerTrace
from recallscope.ops import at_positions
from recallscope.specs import Full2Spec


def _norm(spec: Full2Spec, details: Details) -> nn.Module:
    return nn.RMSNorm(spec.embed_dim, eps=details.norm_eps) if spec.norm == "rms" else nn.Identity()


@final
class Full2Layer(RecallLayer):
    """x + Mixer(norm(x)), residual and norm as the spec says.   Paper: Eq. 1 (`eq:output_block`)."""

    def __init__(self, spec: Full2Spec, details: Details = OURS) -> None:
        super().__init__()
        self.residual = spec.residual
        self.norm = _norm(spec, details)
        self.mixer = Full2Mixer(spec, details)

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The block, line by line. Δ is given for every channel, though those of a head share it."""
        u = self.norm(x)
        drive, gate = self.mixer.drive(self.mixer.project_in(u)), self.mixer.gate(u)
        y_heads = self.mixer.scan(drive)
        y_hat = y_heads.flatten(-2)
        y_out = self.mixer.project_out(y_hat, gate)
        return LayerTrace(
            x=x,
            x_hat=drive.x_hat,
            B=drive.B,
            C=drive.C,
            y_hat=y_hat,
            y=x + y_out if self.residual else y_out,
            x_heads=drive.x_heads,
            y_heads=y_heads,
            gate=gate,
            delta=drive.delta.repeat_interleave(self.mixer.spec.head_dim, dim=-1),
            h=self.mixer.states(drive) if states else None,
        )

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """Norm and what of in_proj is needed of every token."""
        return self.mixer.project_in(self.norm(x))

    def read(
        self,
        x_in: Float[Tensor, "batch L C"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """The scan runs through, what follows it is done at the positions."""
        y_hat = at_positions(self.mixer.scan(self.mixer.drive(x_in)).flatten(-2), positions)
        y_out = self.mixer.project_out(y_hat, self.mixer.gate(self.norm(x_q)))
        return x_q + y_out if self.residual else y_out

    def draw_weights(self, generator: torch.Generator) -> None:
        """The mixer's; norms stay at one."""
        self.mixer.draw_weights(generator)


@final
class Full2Mamba(RecallModel):
    """Full Mamba-2. Weights: `E`, `layers[l].norm`, `layers[l].mixer` under mamba-ssm's names, `norm_f`.

    Paper: App. H (`app:mamba-2-multi-head`) studies it without gate, norm, activation and decay; patterns of
        Tab. 5 (`tab:head-patterns`).
    """

    spec: Full2Spec
    layers: Sequence[Full2Layer]

    def __init__(self, spec: Full2Spec, vocab_size: int, details: Details = OURS) -> None:
        layers = [Full2Layer(spec, details) for _ in range(spec.num_layers)]
        super().__init__(spec, vocab_size, layers, details)
        self.norm_f = _norm(spec, details)

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """The norm before the head."""
        return self.norm_f(y)

    def undecayed(self) -> frozenset[str]:
        """A_log, the bias of Δ and the skip weights, as in mamba-ssm."""
        spared = (".A_log", ".dt_bias", ".mixer.D")
        return frozenset(name for name, _ in self.named_parameters() if name.endswith(spared))
