/* Logits to the gradient of the loss by them, row by row and in place: softmax less (1 - e) at the answer. Three passes over a row
 * that stays in the nearest cache. Included once per precision. */

int NAME(softmax_gradient)(const softmax_arguments *s) {
    const real keep = (real)(1 - s->smoothing);
    for (int64_t row = 0; row < s->rows; row++) {
        real *x = (real *)s->logits + row * s->columns, highest = x[0], mass = 0;
        const int64_t answer = s->answers[row];
        if (answer < 0 || answer >= s->columns) return OUT_OF_RANGE;
#pragma omp simd reduction(max : highest)
        for (int64_t c = 0; c < s->columns; c++) highest = x[c] > highest ? x[c] : highest;
        ((real *)s->right)[row] = x[answer];
#pragma omp simd reduction(+ : mass)
        for (int64_t c = 0; c < s->columns; c++) {
            x[c] = NAME(exp)(x[c] - highest);
            mass += x[c];
        }
        const real scale = 1 / mass;
#pragma omp simd
        for (int64_t c = 0; c < s->columns; c++) x[c] *= scale;
        x[answer] -= keep;
        ((real *)s->highest)[row] = highest;
        ((real *)s->mass)[row] = mass;
    }
    return DONE;
}
