/* Numbers in groups, each divided by its scale, rounded to whole codes and multiplied back: what round_groups_torch in
 * ops/state_rounding.py says, in one pass, bit for bit. Codes are far below 2^22, so adding a magic number rounds, ties to
 * even. Included once per precision. */

int NAME(round_groups)(const round_arguments *a) {
    const int64_t n = a->size;
    for (int64_t group = 0; group < a->groups; group++) {
        const real *x = (const real *)a->x + group * n;
        real *out = (real *)a->out + group * n, largest = 0;
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < n; i++) {
            const real size = x[i] < 0 ? -x[i] : x[i];
            largest = size > largest ? size : largest;
        }
        const real scale = largest / (real)a->levels, d = scale > 0 ? scale : 1;
        if (a->chance == NULL) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) out[i] = (x[i] / d + ROUNDING_MAGIC - ROUNDING_MAGIC) * d;
        } else {
            const real *chance = (const real *)a->chance + group * n, most = (real)a->levels;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                const real code = x[i] / d, near = code + ROUNDING_MAGIC - ROUNDING_MAGIC;
                const real below = near > code ? near - 1 : near;
                const real drawn = chance[i] < code - below ? below + 1 : below;
                out[i] = NAME(clamp)(drawn, -most, most) * d;
            }
        }
    }
    return DONE;
}
