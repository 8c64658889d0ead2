"""Does a gated model keep its facts in banks? Which channels a key writes to, and which a query reads.

A fact is written with a factor per channel that depends on its key, and what is read is multiplied by the query's gate.
If both are one and the same bit, the channels are two banks, and a query hears only the facts of its own bank.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from recallscope.architectures.capabilities import HasMasks, all_facts
from recallscope.architectures.model import RecallModel
from recallscope.interp.rates import PAIRS, pair_kinds
from recallscope.interp.states import context_end, share
from recallscope.tasks.batch import Batch, answered

PARTNERS = 64  # values over which a key's writes are averaged, and keys for a value's
FAINTEST = 1e-3  # of the largest write of a channel: what is less counts as this
SAMPLES = 2000  # pairs of each kind in the noise budget
USED = 0.02  # recall that must be lost with the gate's dependence on keys, if it is to be called used
ONE_BIT = 0.8  # share of the first direction, and how near its coordinates are to two values
SAME = 0.9  # correlation from which two masks are called the same


@dataclass(frozen=True)
class MaskScores:
    """A factor per channel over all keys, seen along its first direction."""

    share: float
    """of the variance over keys that this direction has"""
    fourth_moment: float
    """of the keys' coordinates on it, standardised: 1 for a bit that half of the keys have, 3 for a Gaussian"""
    two_valued: float
    """(skewness² + 1) / fourth moment: 1 if and only if there are two values, however many keys have either"""
    in_one_bank: float
    """keys on the smaller side of the middle between the extremes"""
    directions: float
    """effective number of directions, (Σλ)² / Σλ²"""
    variation: float
    """variance over keys, in mean squares"""


def mask_scores(mask: Float[Tensor, "keys channels"]) -> tuple[MaskScores, Float[Tensor, " keys"]]:
    """Scores of a mask, and the coordinates of the keys on its first direction, standardised."""
    centred = (mask - mask.mean(dim=0)).double()
    left, singular, _ = torch.linalg.svd(centred, full_matrices=False)
    energy = singular.square()
    if not float(energy.sum()) > 1e-12 * float(mask.double().square().sum()):
        return MaskScores(0.0, float("nan"), float("nan"), 0.0, 0.0, 0.0), torch.zeros_like(left[:, 0])
    z = left[:, 0] * len(mask) ** 0.5
    fourth, above = float(z.pow(4).mean()), share(z > (z.max() + z.min()) / 2)
    scores = MaskScores(
        share=float(energy[0] / energy.sum()),
        fourth_moment=fourth,
        two_valued=(float(z.pow(3).mean()) ** 2 + 1) / fourth,
        in_one_bank=min(above, 1 - above),
        directions=float(energy.sum().square() / energy.square().sum()),
        variation=float(energy.sum() / mask.double().square().sum()),
    )
    return scores, z


@dataclass(frozen=True)
class Masks:
    """Factors over keys and channels."""

    read: Float[Tensor, "keys channels"]
    """the gate of a query"""
    write: Float[Tensor, "keys channels"]
    """log of the root mean square of what is written after a key, over values"""


@dataclass(frozen=True)
class _Writes:
    """What is written at (key, value) pairs, in means."""

    after_key: Float[Tensor, "V heads P"]
    of_value: Float[Tensor, "V heads P"]
    mean: Float[Tensor, "heads P"]
    size: Float[Tensor, "keys channels"]


def _written(memory: Any) -> Float[Tensor, "batch L heads P"]:
    """What every token brings to the state, step included."""
    return memory.values if memory.step is None else memory.step * memory.values


def _some(tokens: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """At most `PARTNERS` of the tokens, evenly chosen."""
    return tokens[:: -(-len(tokens) // PARTNERS)]


@torch.no_grad()
def _writes(model: RecallModel) -> _Writes:
    able, (keys, values) = model.require(HasMasks), all_facts(model.vocab_size, _device(model))

    def at_pairs(k: Tensor, v: Tensor) -> Float[Tensor, "k v heads P"]:
        (memory,) = able.memories(torch.cartesian_prod(k, v))
        return _written(memory)[:, 1].unflatten(0, (len(k), len(v)))

    by_key, by_value = at_pairs(keys, _some(values)), at_pairs(_some(keys), values)
    after_key, of_value = (by_key.new_zeros(model.vocab_size, *by_key.shape[2:]) for _ in range(2))
    after_key[keys], of_value[values] = by_key.mean(dim=1), by_value.mean(dim=0)
    size = by_key.square().mean(dim=1).sqrt().flatten(1)
    return _Writes(after_key, of_value, by_value.mean(dim=(0, 1)), size)


def _device(model: RecallModel) -> torch.device:
    return next(model.parameters()).device


@torch.no_grad()
def channel_masks(model: RecallModel) -> Masks:
    """The gate and the size of writes, over all keys and channels.   Holds for: one layer, windows of two tokens."""
    keys, _ = all_facts(model.vocab_size, _device(model))
    (asked,) = model.require(HasMasks).memories(keys[:, None])
    size = _writes(model).size
    least = FAINTEST * size.amax(dim=0, keepdim=True).clamp(min=1e-30)
    return Masks(read=asked.gate[:, 0].flatten(1), write=torch.maximum(size, least).log())


@dataclass(frozen=True)
class NoiseBudget:
    """What a pair adds to the logits of unrelated values, in squares of what a fact adds to its own value."""

    pairs: dict[str, float]
    """by kind of pair; (key, value) are other facts"""
    own_fact: float
    """what the fact asked for adds to the logits of other values: the value variance"""
    dimensions: float
    """one over the power of another fact"""
    shared_dimensions: float
    """N D: what they would be, were all facts readout"""
    bank_dimensions: float
    """N (2 D - N): with two banks"""


@torch.no_grad()
def noise_budget(model: RecallModel, generator: torch.Generator) -> NoiseBudget:
    """Draw pairs of every kind and a query for each; logits are centred over the values, decay is left out."""
    able, V, half, device = model.require(HasMasks), model.vocab_size, model.vocab_size // 2, generator.device

    def draw(low: int, high: int) -> Int[Tensor, " n"]:
        return torch.randint(low, high, (SAMPLES,), generator=generator, device=device)

    def added(before: Tensor, now: Tensor, query: Tensor) -> Float[Tensor, "n half"]:
        """To the logits of all values."""
        (held,) = able.memories(torch.stack((before, now), dim=1))
        (asked,) = able.memories(torch.stack((draw(1, V), query), dim=1))
        readout = einsum(held.write(1), asked.queries[:, 1], "n heads P N, n heads N -> n heads P") * asked.gate[:, 1]
        logits = einsum(
            readout, held.out, able.logit_directions()[:, half:], "n heads P, D heads P, D v -> n v"
        ).double()
        return logits - logits.mean(dim=1, keepdim=True)

    kinds = {"key": (1, half), "value": (half, V)}
    key, value = draw(*kinds["key"]), draw(*kinds["value"])
    own = added(key, value, key)
    right = torch.nn.functional.one_hot(value - half, V - half).bool()
    unit = own[right].mean().square()
    pairs = {}
    for name in PAIRS:
        before, now = (draw(*kinds[part]) for part in name.split(", "))
        query = torch.where((other := draw(1, half)) == before, other % (half - 1) + 1, other)
        pairs[name] = float(added(before, now, query).square().mean() / unit)
    (memory,) = able.memories(torch.stack((key, value), dim=1)[:1])
    D, N = memory.out.shape[0], memory.keys.shape[-1]
    own_fact = float(own[~right].square().mean() / unit)
    return NoiseBudget(pairs, own_fact, 1 / pairs[PAIRS[0]], float(N * D), float(N * (2 * D - N)))


def recall_ablated(model: RecallModel, batch: Batch) -> dict[str, float]:
    """Recall with parts of the masks taken away; what a model without Δ or decay cannot lose is left out.

    The gate is replaced by its mean over keys; writes at facts lose what depends on key and value together; only the
    facts of the context are written; Δ is the same for all facts, or at all places; nothing fades.
    """
    able, writes = model.require(HasMasks), _writes(model)
    tokens, positions = batch.tokens, batch.query_positions
    facts = pair_kinds(tokens, model.vocab_size)[PAIRS[0]][..., None, None]
    early = (torch.arange(tokens.shape[1], device=tokens.device) <= context_end(batch))[:, None, None]
    keys, _ = all_facts(model.vocab_size, tokens.device)
    (asked,) = able.memories(keys[:, None])
    without = writes.after_key[tokens.roll(1, dims=1)] + writes.of_value[tokens] - writes.mean

    def step_where(memory: Any, where: Tensor) -> Any:
        """Δ is the same at all these places, for every channel its mean over them."""
        mean = (memory.step * where).sum(dim=(0, 1)) / where.sum()
        return replace(memory, step=torch.where(where, mean, memory.step))

    changes: dict[str, Callable[[Any], Any]] = {
        "as_is": lambda m: m,
        "mean_gate": lambda m: replace(m, gate=asked.gate.mean(dim=0).expand_as(m.gate)),
        "no_interaction": lambda m: replace(m, values=torch.where(facts, without, _written(m)), step=None),
        "only_facts": lambda m: replace(m, values=_written(m) * (facts & early), step=None),
    }
    (memory,) = able.memories(tokens[:1])
    if memory.step is not None:
        changes["mean_delta_of_facts"] = lambda m: step_where(m, facts)
        changes["equal_delta"] = lambda m: step_where(m, torch.ones_like(facts))
    if memory.decay is not None:
        changes["no_decay"] = lambda m: replace(m, decay=None)
    return {name: share(answered(able.answer_changed(tokens, positions, how), batch)) for name, how in changes.items()}


@dataclass(frozen=True)
class BankScores:
    """What the gate and the writes choose by, and what that is worth."""

    read: MaskScores
    write: MaskScores
    correlation: float
    """of the keys' coordinates on the first directions of both masks; its sign means nothing"""
    noise: NoiseBudget
    ablations: dict[str, float]

    @property
    def mechanism(self) -> str:
        """What was found: two banks, several directions of masks, or none."""
        if not self.ablations["as_is"] - self.ablations["mean_gate"] > USED:
            return "none: the gate may be replaced by its mean over keys"
        bit = min(self.read.share, self.read.two_valued) > ONE_BIT
        if bit and self.correlation > SAME:
            return "two banks: each key is assigned to one, for its writes and its queries"
        if bit:
            return "the gate splits keys in two, but the writes do not follow it"
        return f"several directions of masks, about {self.read.directions:.0f}: not two banks"


def picture_masks(model: RecallModel) -> dict[str, NDArray[Any]]:
    """Both masks, keys and channels in the order of the gate's first direction, and the keys' coordinates on each.

    The gate is in units of its largest entry, writes of a channel in units of its largest one.
    """
    masks = channel_masks(model)
    (_, r), (_, w) = mask_scores(masks.read), mask_scores(masks.write)
    keys, channels = r.argsort(), (r.to(masks.read.dtype) @ masks.read).argsort()
    write = (masks.write - masks.write.amax(dim=0)).exp()
    shown = {"read": masks.read / masks.read.abs().max(), "write": write}
    found = {name: mask[keys][:, channels] for name, mask in shown.items()}
    found |= {"read_coordinate": r[keys], "write_coordinate": w[keys] * (r * w).mean().sign()}
    return {name: np.asarray(array.cpu()) for name, array in found.items()}


def measure_banks(model: RecallModel, batch: Batch, generator: torch.Generator) -> BankScores:
    """All of it.   Holds for: a gated model of one layer with windows of two tokens."""
    masks = channel_masks(model)
    (read, r), (write, w) = mask_scores(masks.read), mask_scores(masks.write)
    correlation = abs(float((r * w).mean()))
    return BankScores(read, write, correlation, noise_budget(model, generator), recall_ablated(model, batch))
