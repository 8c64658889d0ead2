/* Scalar functions written so that a compiler turns a loop over channels into vector instructions: no branches,
 * no calls. Included once per precision; real, bits and NAME() are set by the includer (kernels.c).
 *
 * NaN goes through all of them. Compile without -ffast-math: rounding by a magic number needs honest sums.
 */

/* n numbers of an array, then zeros up to W. W is a known size: a few vector moves, not a call. */
INLINE void NAME(take)(real *to, const real *from, int64_t n, const int W) {
    if (n == W) {
        memcpy(to, from, W * sizeof(real));
    } else {
        memcpy(to, from, n * sizeof(real));
        memset(to + n, 0, (W - n) * sizeof(real));
    }
}

/* The first n numbers of W, to an array. */
INLINE void NAME(give)(real *to, const real *from, int64_t n, const int W) {
    if (n == W) {
        memcpy(to, from, W * sizeof(real));
    } else {
        memcpy(to, from, n * sizeof(real));
    }
}

/* Variables, though nobody changes them: knowing the values, gcc splits the loop by cases instead of clamping. */
real NAME(exp2_lowest) = EXP2_LOWEST, NAME(exp2_highest) = EXP2_HIGHEST;

INLINE real NAME(clamp)(real x, real lowest, real highest) {
    x = lowest > x ? lowest : x; /* in this order NaN stays NaN */
    return highest < x ? highest : x;
}

/* 2^(k + r), k the integer in the lowest bits of shifted, |r| <= 1/2. The polynomial is minimax, and doubled:
 * 2^(k-1) then has a normal exponent up to the largest finite result. */
INLINE real NAME(power_of_two)(real shifted, real r) {
    bits shift;
    memcpy(&shift, &shifted, sizeof shift);
    shift = (shift << MANTISSA_BITS) + ((bits)(EXPONENT_BIAS - 1) << MANTISSA_BITS);
    real power;
    memcpy(&power, &shift, sizeof power);
    return NAME(twice_exp2_poly)(r) * power;
}

/* 2^x, to within one unit in the last place. What would be smaller than the smallest normal number stays near it
 * (1e-38); what is too large is infinite. */
INLINE real NAME(exp2)(real x) {
    x = NAME(clamp)(x, NAME(exp2_lowest), NAME(exp2_highest));
    const real shifted = x + ROUNDING_MAGIC;
    return NAME(power_of_two)(shifted, x - (shifted - ROUNDING_MAGIC));
}

/* e^x, likewise: log 2 in two parts, as x log2(e) would lose digits where x is large. */
INLINE real NAME(exp)(real x) {
    x = NAME(clamp)(x, NAME(exp2_lowest) * (real)LOG_OF_2, NAME(exp2_highest) * (real)LOG_OF_2);
    const real shifted = x * (real)LOG2_OF_E + ROUNDING_MAGIC, k = shifted - ROUNDING_MAGIC;
    const real r = (x - k * LOG_OF_2_HIGH) - k * LOG_OF_2_LOW;
    return NAME(power_of_two)(shifted, r * (real)LOG2_OF_E);
}

/* 1 / (1 + e^-v) */
INLINE real NAME(sigmoid)(real v) { return 1 / (1 + NAME(exp)(-v)); }

/* log(1 + e^v), and v itself above 20, as torch has it. With u = e^-|v| and s = u / (2 + u),
 * log(1 + u) = 2 atanh(s) = 2 s poly(s^2), which keeps all digits of a small u. */
INLINE real NAME(softplus)(real v) {
    const real u = NAME(exp)(v < 0 ? v : -v);
    const real s = u / (2 + u);
    const real soft = (v < 0 ? 0 : v) + 2 * s * NAME(atanh_poly)(s * s);
    return v > 20 ? v : soft;
}

/* its derivative */
INLINE real NAME(softplus_slope)(real v) { return v > 20 ? 1 : NAME(sigmoid)(v); }
