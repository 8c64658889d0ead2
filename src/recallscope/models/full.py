"""Full Mamba: pre-norm, mixer, residual, as often as there are layers; a last norm, and the tied head."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.models.base import RecallLayer, RecallModel
from recallscope.models.details import OURS, Details
from recallscope.models.full_mixer import FullMixer
from recallscope.models.trace import LayerTrace
from recallscope.specs import FullSpec


def _norm(spec: FullSpec, details: Details) -> nn.Module:
    return nn.RMSNorm(spec.embed_dim, eps=details.norm_eps) if spec.norm == "rms" else nn.Identity()


@final
class FullLayer(RecallLayer):
    """x + Mixer(norm(x)), residual and norm as the spec says.   Paper: Eq. 1 (`eq:output_block`)."""

    def __init__(self, spec: FullSpec, details: Details = OURS) -> None:
        super().__init__()
        self.residual = spec.residual
        self.norm = _norm(spec, details)
        self.mixer = FullMixer(spec, details)

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The block, line by line."""
        u = self.norm(x)
        drive, gate = self.mixer.drive(self.mixer.project_in(u)), self.mixer.gate(u)
        y_hat = self.mixer.scan(drive)
        y_out = self.mixer.project_out(y_hat, gate)
        return LayerTrace(
            x=x,
            x_hat=drive.x_hat,
            B=drive.B,
            C=drive.C,
            y_hat=y_hat,
            y=x + y_out if self.residual else y_out,
            gate=gate,
            delta=drive.delta,
            h=self.mixer.states(drive) if states else None,
        )

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D_in"]:
        """Norm and the first half of in_proj: both treat each token alone."""
        return self.mixer.project_in(self.norm(x))

    def read(
        self,
        x_in: Float[Tensor, "batch L D_in"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """The scan runs through, what follows it is done at the positions."""
        y_q = self.mixer.read(x_in, positions)
        y_out = self.mixer.project_out(y_q, self.mixer.gate(self.norm(x_q)))
        return x_q + y_out if self.residual else y_out

    def draw_weights(self, generator: torch.Generator) -> None:
        """The mixer's; norms stay at one."""
        self.mixer.draw_weights(generator)


@final
class FullMamba(RecallModel):
    """Full Mamba-1. Weights: `E`, `layers[l].norm`, `layers[l].mixer` under mamba-ssm's names, `norm_f`.

    Paper: Eq. 1 (`eq:output_block`), Eq. 2 (`eq:TimeVariantMatrices1`), Eq. 3 (`eq:original-ssm`); ladder of
        Tab. 8 (`fig:mqar_ablation`).
    """

    spec: FullSpec
    layers: Sequence[FullLayer]

    def __init__(self, spec: FullSpec, vocab_size: int, details: Details = OURS) -> None:
        super().__init__(spec, vocab_size, [FullLayer(spec, details) for _ in range(spec.num_layers)], details)
        self.norm_f = _norm(spec, details)

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """The norm before the head."""
        return self.norm_f(y)

    def undecayed(self) -> frozenset[str]:
        """A_log and the skip weights, as in mamba-ssm."""
        return frozenset(name for name, _ in self.named_parameters() if name.endswith((".A_log", ".mixer.D")))
