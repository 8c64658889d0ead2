/* Scalar functions written so that a compiler turns a loop over channels into vector instructions: no branches,
 * no calls. Included once per precision; real, bits and NAME() are set by the includer (kernels.c).
 *
 * NaN goes through all of them. Compile without -ffast-math: rounding by a magic number needs honest sums.
 */

/* Variables, though nobody changes them: knowing the values, gcc splits the loop by cases instead of clamping. */
real NAME(exp_lowest) = EXP_LOWEST, NAME(exp_highest) = EXP_HIGHEST;

/* exp(x) = 2^k e^r, k the integer nearest to x / log 2. To within one unit in the last place; what would be
 * smaller than the smallest normal number stays near it (1e-38), what is too large is infinite. The polynomial
 * is minimax on |r| <= log(2) / 2, doubled: 2^(k-1) then has a normal exponent up to the largest finite result. */
static inline real NAME(exp)(real x) {
    x = NAME(exp_lowest) > x ? NAME(exp_lowest) : x; /* in this order NaN stays NaN */
    x = NAME(exp_highest) < x ? NAME(exp_highest) : x;
    const real shifted = x * (real)1.4426950408889634074 + ROUNDING_MAGIC;
    const real k = shifted - ROUNDING_MAGIC;
    const real r = (x - k * LOG2_HIGH) - k * LOG2_LOW;
    bits shift;
    memcpy(&shift, &shifted, sizeof shift);
    shift = (shift << MANTISSA_BITS) + ((bits)(EXPONENT_BIAS - 1) << MANTISSA_BITS);
    real power;
    memcpy(&power, &shift, sizeof power);
    return NAME(twice_exp_poly)(r) * power;
}

/* 1 / (1 + e^-v) */
static inline real NAME(sigmoid)(real v) { return 1 / (1 + NAME(exp)(-v)); }

/* log(1 + e^v), and v itself above 20, as torch has it. With u = e^-|v| and s = u / (2 + u),
 * log(1 + u) = 2 atanh(s) = 2 s poly(s^2), which keeps all digits of a small u. */
static inline real NAME(softplus)(real v) {
    const real u = NAME(exp)(v < 0 ? v : -v);
    const real s = u / (2 + u);
    const real soft = (v < 0 ? 0 : v) + 2 * s * NAME(atanh_poly)(s * s);
    return v > 20 ? v : soft;
}

/* its derivative */
static inline real NAME(softplus_slope)(real v) { return v > 20 ? 1 : NAME(sigmoid)(v); }
