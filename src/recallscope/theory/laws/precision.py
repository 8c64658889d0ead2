"""How many bits a number of a recurrent state needs: what rounding the state after its tokens costs in recall.

A memory S of N x D entries, written as S <- a S + k vᵀ with |k| = 1 and |v|² = D, so that a write has power p = 1/N per
entry. A query for fact i reads g_i v_i and noise. All of the state but the fact's own write is noise to it, so that two
numbers say what a number format costs: the power s² of an entry, and the gain g_i that a write keeps,

    SNR_i² = D g_i² / (s² - g_i² / N),    without rounding and fading N D / (n - 1).

**Noise.** Rounding adds c d² per entry, c = 1/12 to the nearest and 1/6 at random; with an absmax scale d = A s / q,
q = 2^(bits - 1) - 1, and with floats E d² = 0.541 4^-mantissa s² (their mantissas being distributed by Benford's law).
Every rounding thus multiplies the power by 1 + lam, lam = c A² / q² or 0.541 c 4^-mantissa, and a token keeps a share
rho of it: a², or 1 - b (2 - b) / N in a delta rule. (Derived, for steps d up to the size of a write.) Without fading
n roundings cost SNR² a factor lam n / (e^(lam n) - 1); with it the noise ends at lam / (1 - rho) of the state's power,
so that 2 / (1 - rho) takes the place of n. Solved for the bits, with a loss delta of SNR² allowed:

    bits = 1 + log2(1 + A sqrt(c T / (2 delta))),    T = min(roundings, 2 / (1 - rho)).

Rounding every m tokens counts T / m roundings, once or with exact error feedback one, and error feedback with r bits
leaves a noise smaller by (2^r - 2)².

**Large steps.** Stochastic rounding stays right on average; a token's noise is d² E {ru}(1 - {ru}) with r = sqrt(p) / d
and u the product of two normals. (Derived.) Nearest rounding becomes a dead zone: small writes and slow fading are
lost, old facts grow with the scale. Where steps are that large, `played` puts drawn keys and values through the format
and takes power and gains from the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, stdtr

from recallscope.state_precision import Format, StatePrecision
from recallscope.theory.extremes import success_integral
from recallscope.theory.laws.ageing import delta_moments
from recallscope.theory.problem import Array
from recallscope.theory.quadrature import beta_rule, normal_rule

NEAREST, STOCHASTIC = 1 / 12, 1 / 6  # c, mean square of the rounding error in steps
FLOAT_SPACING = (1 - 1 / 4) / (2 * np.log(2))  # E ulp² 4^mantissa / s², by Benford's law
BLOCKS = {"block16": 16, "block32": 32}
SMALL_STEP = 2.0  # sqrt(p) / d: above, nearest rounding is noise to within 1%
PLAYED = 40_000  # entries, at least
WHOLE_MATRICES = 6  # of them, at least: each has one scale, or one per row
SEED = 0


@cache
def absmax_square(count: int) -> float:
    """A²: mean square of the largest of `count` standard normals, by size."""
    x = np.linspace(0, 9, 9001)
    inside = np.exp(count * np.log1p(-2 * np.exp(log_ndtr(-np.maximum(x, 1e-12)))))
    return float(np.trapezoid(2 * x * (1 - inside), x))


@dataclass(frozen=True)
class Memory:
    """A memory of random codes and what is written into it: facts, then further writes that nobody asks about."""

    vocab_size: int
    """words that an answer is chosen from"""
    num_facts: int
    key_dim: int
    value_dim: int
    decay: float = 1.0
    """a: what a token leaves of every entry"""
    rate: float = 0.0
    """b of a delta rule; 0: writes add up"""
    later_writes: int = 0
    later_strength: float = 1.0
    """of later writes, in strengths of a fact"""

    @property
    def tokens(self) -> int:
        """Writes in all."""
        return self.num_facts + self.later_writes

    @property
    def strengths(self) -> Array:
        """Of every write."""
        return np.concatenate([np.ones(self.num_facts), np.full(self.later_writes, self.later_strength)])

    @property
    def kept(self) -> float:
        """rho: share of the power that a token leaves."""
        return self.decay**2 * (1 - self.rate * (2 - self.rate) / self.key_dim)

    def group(self, scale: str) -> int:
        """Numbers that share a scale; rows have `key_dim` of them."""
        if scale in BLOCKS:
            return min(BLOCKS[scale], self.key_dim)
        return {"row": self.key_dim, "column": self.value_dim}.get(scale, self.key_dim * self.value_dim)


def error_square(precision: StatePrecision) -> float:
    """c."""
    return STOCHASTIC if precision.rounding == "stochastic" else NEAREST


def noise_per_rounding(precision: StatePrecision, absmax_over_rms_square: float) -> float:
    """lam: noise that one rounding adds, over the power of the state."""
    number, c = precision.number, error_square(precision)
    if number.is_float:
        return FLOAT_SPACING * c * 4.0**-number.mantissa
    return c * absmax_over_rms_square / number.levels**2


def residual_share(precision: StatePrecision) -> float:
    """How much of a rounding's noise stays with every token: all of it, or what a residual of r bits misses."""
    if precision.rounding != "error-feedback":
        return 1.0
    return 0.0 if precision.residual_bits is None else 1 / (2**precision.residual_bits - 2) ** 2


def stochastic_noise(r: float) -> float:
    """phi(r) = E {ru}(1 - {ru}), u the product of two normals: error of stochastic rounding where a write is r steps.

    By the Fourier series 1/6 - Σ cos(2 π k ru) / (π k)² and E cos(tu) = 1 / sqrt(1 + t²). (2/π) r for small r.
    """
    k = np.arange(1, 4001)
    return float(1 / 6 - (1 / np.sqrt(1 + (2 * np.pi * k * r) ** 2) / (np.pi * k) ** 2).sum())


@dataclass(frozen=True)
class Stored:
    """The state as it is read: its power per entry, and the gain of every fact."""

    power: float
    gains: Array


def exact_state(memory: Memory) -> Stored:
    """Without rounding."""
    return noisy_state(memory, None)


def noisy_state(memory: Memory, precision: StatePrecision | None) -> Stored:
    """Rounding as noise: the power token by token, gains as without rounding.

    Holds for: stochastic rounding of any size of step; other rounding where a write is at least about a step.
    """
    p, power, noise = memory.strengths**2 / memory.key_dim, 0.0, 0.0
    beta = memory.rate or 1.0
    share, A2 = 1.0, 0.0
    if precision is not None:
        share, A2 = residual_share(precision), absmax_square(memory.group(precision.scale))
    every = precision.every if precision is not None else "once"
    for t, write in enumerate(p * beta**2):
        power, noise = memory.kept * power + write, memory.kept * noise
        if precision is not None and every != "once" and (t + 1) % every == 0:
            noise += share * _noise(precision, A2, power + noise, write)
    last = p[-1] * beta**2
    if precision is not None and (every == "once" or share < 1):  # the one rounding that is read
        noise += _noise(precision, A2, power + noise, last, once=True)
    m = memory.tokens - 1 - np.arange(memory.num_facts)
    gains = beta * (memory.decay * (1 - memory.rate / memory.key_dim)) ** m
    return Stored(power + noise, np.asarray(gains, float))


def _noise(precision: StatePrecision, A2: float, power: float, write: float, *, once: bool = False) -> float:
    """What one rounding adds to the power of a state."""
    number = precision.number
    if precision.scale == "fixed":
        d2 = float(precision.step or 0) ** 2
    elif number.is_float:
        d2 = FLOAT_SPACING * 4.0**-number.mantissa * power
    else:
        d2 = A2 * power / number.levels**2
    if precision.rounding == "stochastic" and not once:
        return d2 * stochastic_noise(sqrt(write / d2))
    return d2 * error_square(precision)


def played(memory: Memory, precision: StatePrecision) -> Stored:
    """Matrices with drawn keys and values, rounded as the format says: power, and the gain of every fact.

    Holds for: any format, rounding and step, without a delta rule. Gains are those of the exact state and what rounding
    adds, which scatters less. Drawn with its own seed: equal memories give equal numbers.
    """
    rng = np.random.default_rng(SEED)
    rows, columns, facts = memory.value_dim, memory.key_dim, memory.num_facts
    count = max(WHOLE_MATRICES, ceil(PLAYED / (rows * columns)))
    keys = rng.standard_normal((memory.tokens, count, 1, columns), np.float32) / np.float32(sqrt(columns))
    values = rng.standard_normal((memory.tokens, count, rows, 1), np.float32)
    exact = np.zeros((count, rows, columns), np.float32)
    state = exact
    every = 1 if precision.every == "once" else precision.every
    for t, strength in enumerate(memory.strengths):
        write = np.float32(strength) * values[t] * keys[t]
        exact, state = (np.float32(memory.decay) * one + write for one in (exact, state))
        if (t + 1) % every == 0:
            state = quantised(state, precision, rng)
    added = state - exact
    extra = [float((values[i] * (added @ keys[i].swapaxes(-1, -2))).mean()) for i in range(facts)]
    ages = memory.tokens - 1 - np.arange(facts)
    power = float((state.astype(float) ** 2).mean() - (exact.astype(float) ** 2).mean()) + exact_state(memory).power
    return Stored(power, memory.decay**ages + smooth(np.array(extra)))


def smooth(gains: Array) -> Array:
    """Gains by age, without the scatter of a few matrices: means over neighbours in the order of writing."""
    width = max(1, len(gains) // 8)
    parts = np.array_split(gains, ceil(len(gains) / width))
    centres = np.cumsum([len(part) for part in parts]) - [(len(part) + 1) / 2 for part in parts]
    return np.interp(np.arange(len(gains)), centres, [part.mean() for part in parts])


def quantised(state: NDArray[np.float32], precision: StatePrecision, rng: np.random.Generator) -> NDArray[np.float32]:
    """A numpy twin of `ops.state_rounding.round_state`."""
    d = _step(state, precision)
    x = state / d
    unit = _spacing(x, precision.number)
    counted = x / unit
    if precision.rounding == "stochastic":
        below = np.floor(counted)
        counted = below + (rng.random(x.shape, np.float32) < counted - below)
    else:
        counted = np.rint(counted)
    most = precision.number.full_scale
    return np.asarray(np.clip(counted * unit, -most, most) * d, np.float32)


def _step(state: NDArray[np.float32], precision: StatePrecision) -> NDArray[np.float32]:
    if precision.scale in ("none", "fixed"):
        return np.full((1, 1, 1), precision.step or 1.0, np.float32)
    size = np.abs(state)
    if precision.scale in BLOCKS:
        width = BLOCKS[precision.scale]
        starts = np.arange(0, state.shape[-1], width)
        largest = np.repeat(np.maximum.reduceat(size, starts, axis=-1), width, axis=-1)[..., : state.shape[-1]]
    else:
        over = {"tensor": (-2, -1), "row": (-1,), "column": (-2,)}[precision.scale]
        largest = size.max(axis=over, keepdims=True)
    d = largest / np.float32(precision.number.full_scale)
    return np.where(d > 0, d, np.float32(1))


def _spacing(x: NDArray[np.float32], number: Format) -> NDArray[np.float32]:
    if not number.is_float:
        return np.ones((), np.float32)
    exponent = np.maximum(np.frexp(x)[1] - 1, number.least_exponent) - number.mantissa
    return np.ldexp(np.float32(1), exponent)


def stored_state(memory: Memory, precision: StatePrecision) -> Stored:
    """Power and gains by the cheapest form that holds: noise where a write is a few steps, else played matrices.

    Noise, too, where one rounding is all there is (once, error feedback), and for a delta rule, whose entries mix.
    """
    one = precision.rounding == "error-feedback" or precision.every == "once"
    if one or memory.rate:
        return noisy_state(memory, precision)
    written = (
        float(memory.strengths.min()) * sqrt(float(precision.every)) / sqrt(memory.key_dim)
    )  # between two roundings
    scaled_float = precision.number.is_float and precision.scale != "none"
    fades_to_nearest = memory.decay < 1 and precision.rounding == "nearest"
    if scaled_float or fades_to_nearest or written < SMALL_STEP * _last_step(memory, precision):
        return played(memory, precision)
    return noisy_state(memory, precision)


def _last_step(memory: Memory, precision: StatePrecision) -> float:
    """The step at the end, the largest: what integers, or floats on average, are rounded to."""
    if precision.scale == "fixed":
        return float(precision.step or 1)
    power = noisy_state(memory, precision).power
    number = precision.number
    if number.is_float:
        return sqrt(FLOAT_SPACING * 4.0**-number.mantissa * power)
    return sqrt(absmax_square(memory.group(precision.scale)) * power) / number.levels


def snr_share(memory: Memory, precision: StatePrecision) -> float:
    """Share of SNR² that rounding leaves, mean over the facts; above 1 where a dead zone keeps later writes out."""
    exact, stored = exact_state(memory), stored_state(memory, precision)

    def level(state: Stored) -> float:
        squares = state.gains**2
        return float(np.mean(squares / np.maximum(state.power - squares / memory.key_dim, 1e-12)))

    return level(stored) / level(exact)


def recall(memory: Memory, precision: StatePrecision | None = None) -> float:
    """Probability that a query is answered correctly, mean over the facts: random words, random keys."""
    stored = exact_state(memory) if precision is None else stored_state(memory, precision)
    N, D = memory.key_dim, memory.value_dim
    if memory.rate:  # what the own write erased is no noise to it
        moments = delta_moments(N, memory.rate, memory.tokens)
        faded = memory.decay ** (2 * np.arange(memory.tokens))
        own = ((moments.interference + moments.mean_square - moments.amplitude**2) * faded)[::-1][: memory.num_facts]
        left = np.maximum(own + stored.power - exact_state(memory).power, 1e-12)
    else:
        left = np.maximum(stored.power - stored.gains**2 / N, 1e-12)
    snr = np.sqrt(D) * stored.gains / np.sqrt(left)
    rivals = np.sqrt(D) * np.sqrt(np.mean(stored.gains**2)) / np.sqrt(left)
    return float(np.mean(chance_right(snr, rivals, memory)))


def chance_right(snr: Array, rival: Array, memory: Memory) -> Array:
    """Word by word: those in no fact are random directions, those of other facts weigh the cosine of two random keys.

    The right word has x + z, z normal; the chance that a random one stays below is Student's t with D - 1 degrees of
    freedom, which holds its own sphere and the length of the noise.
    """
    z, weights = normal_rule(48)
    squares, own = beta_rule(np.array(0.5), np.array((memory.key_dim - 1) / 2), 12)
    cosines = np.concatenate([-np.sqrt(squares), np.sqrt(squares)])
    halves = np.concatenate([own, own]) / 2
    level = snr[:, None] + z
    nu = memory.value_dim - 1
    stored = (stdtr(nu, level[..., None] - cosines * rival[:, None, None]) * halves).sum(-1)
    with np.errstate(divide="ignore"):
        log_p = (memory.vocab_size - memory.num_facts) * np.log(stdtr(nu, level))
        log_p = log_p + (memory.num_facts - 1) * np.log(stored)
    return np.asarray((np.exp(log_p) * weights).sum(-1))


def allowed_loss(vocab_size: float, *, recall: float = 0.9, loss: float = 0.01) -> float:
    """delta: share of SNR² whose loss takes `loss` from this recall, for normal logits."""
    if not 0 < loss < recall < 1:
        raise ValueError(f"recall={recall}, loss={loss}: 0 < loss < recall < 1 is needed. Try recall=0.9, loss=0.01.")
    from scipy.optimize import brentq  # here, as it is slow to import

    def level(p: float) -> float:
        return float(brentq(lambda x: float(success_integral(x, vocab_size - 1)) - p, 0, 40))

    return 1 - (level(recall - loss) / level(recall)) ** 2


def effective_roundings(roundings: float, kept: float = 1.0, *, every: float = 1.0) -> float:
    """T: roundings whose noise is still there, min(roundings, 2 / (1 - rho)), of which one in `every` is made."""
    return max(1.0, (roundings if kept >= 1 else min(roundings, 2 / (1 - kept))) / every)


def bits_needed(
    roundings: float,
    absmax_over_rms: float,
    *,
    kept: float = 1.0,
    every: float = 1.0,
    stochastic: bool = False,
    delta: float | None = None,
    vocab_size: float = 32768,
) -> int:
    """Bits of an integer for which rounding costs less than `delta` of SNR²: 1% of recall 0.9 unless given.

    The noise of one rounding (a cached prefix, or exact error feedback) is there in full, as that of two of many.
    """
    allowed = allowed_loss(vocab_size) if delta is None else delta
    T = effective_roundings(roundings, kept, every=every)
    c = STOCHASTIC if stochastic else NEAREST
    levels = absmax_over_rms * sqrt(c * max(T, 2.0) / (2 * allowed))
    return max(2, ceil(1 + log2(1 + levels)))


def longest_context(
    precision: StatePrecision, absmax_over_rms: float = 1.0, *, delta: float | None = None, vocab_size: float = 32768
) -> float:
    """Roundings, or the decay time in tokens, at which a format has cost `delta` of SNR²; see `bits_needed`."""
    allowed = allowed_loss(vocab_size) if delta is None else delta
    return 2 * allowed / noise_per_rounding(precision, absmax_over_rms**2)


def undecayed_factor(lam: float, writes: float) -> float:
    """Of SNR², after as many roundings as writes without fading: lam n / (e^(lam n) - 1)."""
    x = lam * writes
    return x / (exp(x) - 1) if x > 1e-12 else 1.0
