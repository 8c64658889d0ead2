"""The block around the mixers of full Mamba and Mamba-2: pre-norm, mixer, residual; a last norm before the head."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from recallscope.architectures.capabilities import (
    FactCodes,
    HasMasks,
    HasOperators,
    HasRates,
    HasRotations,
    WritesFacts,
    all_facts,
    why_not_by_pairs,
)
from recallscope.architectures.layered import OURS, Details, LayerTrace
from recallscope.architectures.mamba import MambaBlock
from recallscope.architectures.model import draw_log_uniform, draw_uniform
from recallscope.architectures.outer_products import OuterProductLayer, OuterProductModel, OuterProducts
from recallscope.ops.linear_scan import at_positions

DELTA_MIN, DELTA_MAX, DELTA_FLOOR = 1e-3, 1e-1, 1e-4  # mamba-ssm's range of Δ at the start


class Mixer(nn.Module, ABC):
    """What a block asks of its mixer; weights are under mamba-ssm's names."""

    spec: MambaBlock
    in_proj: nn.Linear
    conv1d: nn.Conv1d
    A_log: nn.Parameter | None
    out_proj: nn.Linear
    UNDECAYED: tuple[str, ...] = ("A_log", "D")  # weights that mamba-ssm spares from weight decay

    @abstractmethod
    def project_in(self, u: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """What of in_proj is needed of every token."""

    @abstractmethod
    def gate(self, u: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D_in"] | None:
        """ẑ after SiLU; None without a gate."""

    @abstractmethod
    def read(
        self, x_in: Float[Tensor, "batch L C"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D_in"]:
        """ŷ at the positions, skip included."""

    @abstractmethod
    def project_out(
        self, y_hat: Float[Tensor, "batch T D_in"], gate: Float[Tensor, "batch T D_in"] | None
    ) -> Float[Tensor, "batch T D"]:
        """From ŷ and ẑ back to D dimensions."""

    @abstractmethod
    def trace(self, u: Float[Tensor, "batch L D"], *, states: bool) -> dict[str, Tensor | None]:
        """The named tensors of a `LayerTrace` that are the mixer's own."""

    @abstractmethod
    def skip(self, u: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D_in"] | None:
        """The part of ŷ that does not pass through the state; None where there is none."""

    @abstractmethod
    def memory(self, u: Float[Tensor, "batch L D"]) -> OuterProducts:
        """What the mixer writes and reads."""

    @abstractmethod
    def draw_weights(self, generator: torch.Generator) -> None:
        """Overwrite the weights with a fresh draw, as mamba-ssm starts."""

    def transition(self) -> Float[Tensor, "..."]:
        """A = -exp(A_log), where there is one: for every channel and state entry, or one number per head."""
        assert self.A_log is not None
        return -torch.exp(self.A_log)

    def draw_projections(self, generator: torch.Generator, *between: Callable[[], None]) -> None:
        """torch's default for in_proj, conv1d and out_proj; `between` draws what comes before out_proj.

        The last projection shrinks with depth, so that residuals of many layers add up to the size of one.
        """
        spec = self.spec
        draw_uniform(self.in_proj.weight, spec.embed_dim, generator)
        draw_uniform(self.conv1d.weight, spec.conv_width, generator)
        if self.conv1d.bias is not None:
            draw_uniform(self.conv1d.bias, spec.conv_width, generator)
        for draw in between:
            draw()
        draw_uniform(self.out_proj.weight, spec.inner_dim, generator)
        if spec.residual:
            self.out_proj.weight /= math.sqrt(spec.num_layers)

    def rows_of_in_proj(self, u: Tensor, rows: slice) -> Tensor:
        """A part of in_proj, with its part of the bias where a checkpoint has one."""
        bias = self.in_proj.bias
        return linear(u, self.in_proj.weight[rows], None if bias is None else bias[rows])


def draw_delta_bias(bias: Tensor, generator: torch.Generator) -> None:
    """Softplus of it is log-uniform in [.001, .1], as in mamba-ssm."""
    draw_log_uniform(bias, DELTA_MIN, DELTA_MAX, generator)
    start = bias.clamp(min=DELTA_FLOOR)
    bias.copy_(start + torch.log(-torch.expm1(-start)))  # the inverse of softplus


def zero_weights(module: nn.Module) -> None:
    """A blank module."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()


def _norm(spec: MambaBlock, details: Details) -> nn.Module:
    return nn.RMSNorm(spec.embed_dim, eps=details.norm_eps) if spec.norm == "rms" else nn.Identity()


class BlockLayer(OuterProductLayer):
    """x + Mixer(norm(x)), residual and norm as the spec says.   Paper: Eq. 1 (`eq:output_block`)."""

    mixer: Mixer

    def __init__(self, spec: MambaBlock, mixer: Mixer, details: Details = OURS) -> None:
        super().__init__()
        self.residual = spec.residual
        self.norm = _norm(spec, details)
        self.mixer = mixer

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The block, line by line."""
        u = self.norm(x)
        tensors = self.mixer.trace(u, states=states)
        y_hat, gate = tensors["y_hat"], self.mixer.gate(u)
        assert y_hat is not None
        y = self.passed_on(x, self.mixer.project_out(y_hat, gate))
        return LayerTrace(x=x, y=y, gate=gate, **tensors)  # type: ignore[arg-type]

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """Norm and what of in_proj is needed of every token: both treat each token alone."""
        return self.mixer.project_in(self.norm(x))

    def read(
        self, x_in: Float[Tensor, "batch L C"], x_q: Float[Tensor, "batch Q D"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """The scan runs through, what follows it is done at the positions."""
        y_hat, gate = self.mixer.read(x_in, positions), self.mixer.gate(self.norm(x_q))
        return self.passed_on(x_q, self.mixer.project_out(y_hat, gate))

    def memory(self, x: Float[Tensor, "batch L D"]) -> OuterProducts:
        """What the mixer writes and reads, after the norm."""
        return self.mixer.memory(self.norm(x))

    def read_instead(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """The skip is added, then gate and norm act as ever."""
        u, y_hat = self.norm(x), readout.flatten(2)
        skip = self.mixer.skip(u)
        y_hat = y_hat if skip is None else y_hat + skip
        return self.passed_on(x, self.mixer.project_out(y_hat, self.mixer.gate(u)))

    def read_more(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """Gate and, in Mamba-2, norm act on what is read and on what is added to it together."""
        trace = self.trace(x)
        return self.passed_on(x, self.mixer.project_out(trace.y_hat + readout.flatten(2), trace.gate))

    def draw_weights(self, generator: torch.Generator) -> None:
        """The mixer's; norms stay at one."""
        self.mixer.draw_weights(generator)


class BlockModel(OuterProductModel):
    """Blocks between the embedding and the head. Weights: `E`, `layers[l].norm`, `layers[l].mixer`, `norm_f`."""

    spec: MambaBlock
    layers: Sequence[BlockLayer]

    def __init__(self, spec: MambaBlock, vocab_size: int, mixers: Sequence[Mixer], details: Details = OURS) -> None:
        super().__init__(spec, vocab_size, [BlockLayer(spec, mixer, details) for mixer in mixers], details)
        self.norm_f = _norm(spec, details)

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """The norm before the head."""
        return self.norm_f(y)

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """The head, with the weights of the norm before it."""
        weight = getattr(self.norm_f, "weight", None)
        return (self.head if weight is None else self.head * weight[:, None]).detach()

    @torch.no_grad()
    def fact_codes(self) -> tuple[FactCodes, ...]:
        """Value codes averaged over keys, key codes averaged over values: a write is not v' k'ᵀ by construction.

        Paper: App. D.3 (`app-subsec:hidden-as-hash`).   Holds for: one layer with windows of two tokens.
        """
        keys, values = all_facts(self.vocab_size, self.E.device)
        (memory,) = self.memories(torch.cartesian_prod(keys, values))
        x = memory.values[:, 1] if memory.step is None else memory.step[:, 1] * memory.values[:, 1]
        return (FactCodes.averaged(x, memory.keys[:, 1], keys, values),)

    @torch.no_grad()
    def answer_changed(
        self,
        tokens: Int[Tensor, "batch L"],
        positions: Int[Tensor, "batch Q"],
        change: Callable[[OuterProducts], OuterProducts],
    ) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions, had the one layer written and read otherwise; its skip stays as it is."""
        (layer,), x = self.layers, self.embed(tokens)
        memory, trace = layer.memory(x), layer.trace(x)
        changed = change(memory)
        y_hat = trace.y_hat + (changed.read() - memory.read()).flatten(2)
        gate = None if changed.gate is None else changed.gate.flatten(2)
        y = layer.passed_on(x, layer.mixer.project_out(y_hat, gate))
        return self.unembed(self.finish(at_positions(y, positions)))

    def why_not(self, protocol: type) -> str | None:
        """What gate, SiLU, norm and decay stand in the way of."""
        if protocol is HasOperators:
            return "gate, SiLU and decay depend on the input: no fixed G_vv and G_kq, no Alg. 2"
        if protocol is HasRotations:
            return "SiLU, gate, norm and decay act on each channel separately: no rotation leaves the function as it is"
        if protocol is HasRates:
            return "SiLU, Δ and gate act on each channel separately: it has masks instead of a single rate"
        if protocol is HasMasks and self.layers[0].mixer.gate(self.E.new_zeros(1, 1, len(self.E))) is None:
            return "without a gate every query reads all channels alike, so it has no masks"
        if protocol in (WritesFacts, HasMasks) and not self.reads_pairs:
            return why_not_by_pairs(len(self.layers), self.spec.conv_width)
        return super().why_not(protocol)

    def undecayed(self) -> frozenset[str]:
        """What mamba-ssm spares: A_log, the skip weights, and what the mixer names besides."""
        spared = tuple(f".mixer.{name}" for name in self.layers[0].mixer.UNDECAYED)
        return frozenset(name for name, _ in self.named_parameters() if name.endswith(spared))
