"""What storing a model's state in few bits will cost: the law of rounded states, fed with the model's own numbers.

`measure_heads` gives what the closed form of `theory/laws/precision.py` asks for, head by head: A, rho, and how many
roundings' noise is still in the state. `PredictedState` puts the law's noise on what the unrounded model reads: entry
by entry and token by token it adds the error that a step of this size makes, and lets it fade as the state does. Where
one rounding is all there is, every entry keeps the gain that rounding leaves it: those far below a step are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import Step, StepsState, Stored
from recallscope.architectures.model import RecallModel
from recallscope.architectures.stored_state import StoredState
from recallscope.ops.state_rounding import group_absmax, spacing, step_of
from recallscope.state_precision import StatePrecision
from recallscope.tasks.batch import Batch
from recallscope.theory.laws.precision import NEAREST, bits_needed, residual_share


@dataclass(frozen=True)
class HeadBits:
    """One head of one layer, and the bits that the law asks for if its state is stored after every token."""

    layer: int
    head: int
    absmax_over_rms: float
    """A of its scale groups, after the last token"""
    kept: float
    """rho: share of the state's power that a token leaves, mean over tokens"""
    roundings: float
    """T: roundings whose noise is in the state after the last token, counted in those of today's scale"""
    bits: int
    """of an integer rounded to the nearest after every token, for a loss of 1% at accuracy 0.9"""
    bits_once: int
    """the same for a single rounding: a cached prefix, or error feedback"""

    def sentence(self) -> str:
        """In one line."""
        return (
            f"layer {self.layer} head {self.head}: absmax/rms {self.absmax_over_rms:.2f}, kept power {self.kept:.5f}, "
            f"noise of {self.roundings:.0f} roundings: {self.bits} bits, or {self.bits_once} if rounded once"
        )


@torch.no_grad()
def measure_heads(model: RecallModel, batch: Batch, *, scale: str = "row") -> list[HeadBits]:
    """A, rho, T and bits of every head, on some sequences; scales are per `scale` group."""
    noise: dict[int, Tensor] = {}
    kept: dict[int, list[Tensor]] = {}
    last: dict[int, tuple[Tensor, Tensor]] = {}

    def look(step: Step) -> Stored:
        left = step.kept()
        largest = group_absmax(step.state, scale).square().mean(dim=(-2, -1))
        noise[step.layer] = left * noise.get(step.layer, torch.zeros_like(largest)) + largest
        kept.setdefault(step.layer, []).append(left.mean(dim=0).expand(largest.shape[1]))
        last[step.layer] = largest.mean(dim=0), step.state.square().mean(dim=(0, -2, -1))
        return step.state, step.state

    model.require(StepsState).answer_stored(batch.tokens, batch.query_positions, look)
    found = []
    for layer, (largest, power) in last.items():
        rho = torch.stack(kept[layer]).mean(dim=0)
        for head in range(len(power)):
            own = float(power[head])
            if own == 0:
                continue
            A = sqrt(float(largest[head]) / own)
            T = 2 * float(noise[layer].mean(dim=0)[head]) / float(largest[head])
            found.append(HeadBits(layer, head, A, float(rho[head]), T, bits_needed(T, A), bits_needed(1, A)))
    return found


@dataclass
class NoiseOfLaw:
    """Leaves the state as it is, and lets queries read it with the noise that rounding would have left in it."""

    precision: StatePrecision
    generator: torch.Generator
    first: Int[Tensor, " batch"]
    asked: set[int]
    noise: dict[int, Tensor] = field(default_factory=dict)
    before: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __call__(self, step: Step) -> Stored:
        """Power of the noise in every entry: what is left of it, and what this rounding adds."""
        precision, state = self.precision, step.state
        noise = self.noise.get(step.layer, torch.zeros_like(state)) * step.kept()[..., None, None]
        unit = self._unit(state)
        grown = 1 + noise.mean(dim=(-2, -1), keepdim=True) / state.square().mean(dim=(-2, -1), keepdim=True).clamp(
            min=1e-30
        )
        read, shown = torch.zeros_like(unit), torch.ones_like(unit)
        if precision.every == "once":
            now = (self.first - 1 == step.t)[:, None, None, None]
            gain, own = self._single(state / unit)
            noise = torch.where(now, gain.square() * noise + unit.square() * own, noise)
            state = torch.where(now, gain * state, state)
        elif (step.t + 1) % precision.every == 0:
            noise = noise + residual_share(precision) * grown * unit.square() * self._error(step.layer, state, unit)
            if precision.rounding == "error-feedback":
                shown, own = self._single(state / unit)
                read = grown * unit.square() * own
        self.noise[step.layer], self.before[step.layer] = noise, (state, unit)
        if step.t not in self.asked:
            return state, state
        drawn = torch.randn(state.shape, generator=self.generator, dtype=state.dtype, device=state.device)
        return state, shown * state + drawn * (noise + read).sqrt()

    def _unit(self, state: Float[Tensor, "*heads P N"]) -> Float[Tensor, "*#heads #P #N"]:
        """Distance between neighbouring stored numbers."""
        d = step_of(state, self.precision)
        return d * spacing(state / d, self.precision.number)

    def _error(self, layer: int, state: Tensor, unit: Tensor) -> Tensor:
        """Mean square error of rounding this token's change, in steps: what does not change is not rounded again."""
        old, old_unit = self.before.get(layer, (torch.zeros_like(state), unit))
        change = (state - old) / unit if self.precision.number.is_float else state / unit - old / old_unit
        if self.precision.rounding == "error-feedback":
            return torch.full_like(change, NEAREST)
        return self._rounded(change)

    def _single(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What one rounding leaves of every entry, as a gain, and the mean square of the rest, over the sequences."""
        if self.precision.rounding == "stochastic":
            return torch.ones_like(x), self._rounded(x)
        rounded = x.round()
        power = x.square().mean(dim=0, keepdim=True).clamp(min=1e-30)
        gain = (x * rounded).mean(dim=0, keepdim=True) / power
        return gain, (rounded - gain * x).square().mean(dim=0, keepdim=True)

    def _rounded(self, x: Tensor) -> Tensor:
        """Square error of rounding numbers of steps."""
        if self.precision.rounding == "stochastic":
            part = x - x.floor()
            return part * (1 - part)
        return (x - x.round()).square()


class PredictedState(StoredState):
    """A model that answers as the law says it would with its state stored in few bits."""

    def _answer(self, tokens: Tensor, positions: Tensor, first: Tensor) -> Tensor:
        noise = NoiseOfLaw(self.precision, self.generator, first, set(positions.flatten().tolist()))
        return self.model.require(StepsState).answer_stored(tokens, positions, noise)
