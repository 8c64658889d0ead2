/* The way back through scan.h, written v' for the gradient of the loss by v:
 *
 *   x'_t = delta_t (g_t B_t) + skip y'_t,   delta'_t = x_t (g_t B_t) + sum_n A g_t exp(delta_t A) h_{t-1},
 *   B'_t = sum_d g_t delta_t x_t,   C'_t = sum_d h_t y'_t,   A' = sum_t delta_t g_t exp(delta_t A) h_{t-1}.
 *
 * Sums over channels end in one slab, sums over sequences in one group; slabs and groups are added up in order. */

typedef struct {
    const scan_arguments *s;
    real *B_grad, *C_grad;       /* slabs batch L N, slabs batch Q N */
    real *A_grad;                /* groups N padded D; then, groups padded D each, those of skip and bias */
    real *skip_grad, *bias_grad;
} NAME(sums);

typedef struct {
    real *A, *g, *h, *decay; /* N BLOCK; N BLOCK; chunk+1 N BLOCK; chunk N BLOCK */
    NAME(token) * tokens;    /* chunk */
    int64_t *list;
} NAME(room);

/* States and decays of one chunk, from the state that was kept before it. */
static void NAME(recompute)(const scan_arguments *s, const real *bias, int64_t row, int64_t c, int64_t n, int64_t start,
                            int64_t end, NAME(room) * room) {
    const int64_t L = s->length, N = s->state, wide = padded(s->channels), step = N * BLOCK;
    if (start == 0) {
        memset(room->h, 0, step * sizeof(real));
    } else {
        const real *kept = (const real *)s->states + (row * ((L - 1) / s->chunk) + start / s->chunk - 1) * N * wide + c;
        for (int64_t j = 0; j < N; j++) memcpy(room->h + j * BLOCK, kept + j * wide, BLOCK * sizeof(real));
    }
    for (int64_t t = start; t < end; t++) {
        NAME(token) *now = room->tokens + (t - start);
        NAME(read_token)(s, bias, row * L + t, c, n, now);
        const real *B = (const real *)s->B + (row * L + t) * s->B_stride;
        for (int64_t j = 0; j < N; j++) {
            const real B_j = B[j];
            const real *restrict A_j = room->A + j * BLOCK, *restrict h_j = room->h + (t - start) * step + j * BLOCK;
            real *restrict h_next = room->h + (t - start + 1) * step + j * BLOCK;
            real *restrict decay_j = room->decay + (t - start) * step + j * BLOCK;
#pragma omp simd
            for (int i = 0; i < BLOCK; i++) {
                decay_j[i] = NAME(exp)(now->delta[i] * A_j[i]);
                h_next[i] = decay_j[i] * h_j[i] + now->write[i] * B_j;
            }
        }
    }
}

static void NAME(back_block)(const NAME(sums) * sums, const asked_tokens *asked, int64_t row, int64_t c, int64_t group,
                             int64_t slab, NAME(room) * room) {
    const scan_arguments *s = sums->s;
    const int64_t L = s->length, N = s->state, D = s->channels, Q = s->asked, wide = padded(D), step = N * BLOCK;
    const int64_t n = D - c < BLOCK ? D - c : BLOCK;
    real skip[BLOCK] = {0}, bias[BLOCK] = {0}, y_grad[BLOCK];
    if (s->skip) NAME(take)(skip, (const real *)s->skip + c, n);
    if (s->bias) NAME(take)(bias, (const real *)s->bias + c, n);
    NAME(read_A)(s, c, n, room->A);
    memset(room->g, 0, step * sizeof(real));
    real *A_grad = sums->A_grad + group * N * wide + c;
    real *skip_grad = sums->skip_grad + group * wide + c, *bias_grad = sums->bias_grad + group * wide + c;
    const int64_t last = asked->end > 0 ? (asked->end - 1) / s->chunk * s->chunk : -1;
    for (int64_t start = last; start >= 0; start -= s->chunk) {
        const int64_t end = start + s->chunk < asked->end ? start + s->chunk : asked->end;
        NAME(recompute)(s, bias, row, c, n, start, end, room);
        for (int64_t t = end - 1; t >= start; t--) {
            const NAME(token) *now = room->tokens + (t - start);
            real x_grad[BLOCK] = {0}, delta_grad[BLOCK] = {0}, g_B[BLOCK] = {0};
            for (int64_t q = first_asked(asked, t); q >= 0; q = next_asked(asked, q)) {
                const real *C = (const real *)s->C + (row * Q + q) * s->C_stride;
                real *C_grad = sums->C_grad + ((slab * s->batch + row) * Q + q) * N;
                NAME(take)(y_grad, (const real *)s->y_grad + (row * Q + q) * D + c, n);
#pragma omp simd
                for (int i = 0; i < BLOCK; i++) {
                    x_grad[i] += skip[i] * y_grad[i];
                    skip_grad[i] += now->x[i] * y_grad[i];
                }
                for (int64_t j = 0; j < N; j++) {
                    const real C_j = C[j];
                    real *restrict g_j = room->g + j * BLOCK;
                    const real *restrict h_j = room->h + (t - start + 1) * step + j * BLOCK;
                    real sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (int i = 0; i < BLOCK; i++) {
                        g_j[i] += y_grad[i] * C_j;
                        sum += h_j[i] * y_grad[i];
                    }
                    C_grad[j] += sum;
                }
            }
            const real *B = (const real *)s->B + (row * L + t) * s->B_stride;
            real *B_grad = sums->B_grad + ((slab * s->batch + row) * L + t) * N;
            for (int64_t j = 0; j < N; j++) {
                const real B_j = B[j];
                real *restrict g_j = room->g + j * BLOCK, *restrict A_grad_j = A_grad + j * wide;
                const real *restrict A_j = room->A + j * BLOCK;
                const real *restrict h_j = room->h + (t - start) * step + j * BLOCK;
                const real *restrict decay_j = room->decay + (t - start) * step + j * BLOCK;
                real sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int i = 0; i < BLOCK; i++) {
                    const real g = g_j[i], passed_on = decay_j[i] * g, by_exponent = passed_on * h_j[i];
                    g_j[i] = passed_on;
                    g_B[i] += g * B_j;
                    sum += g * now->write[i];
                    delta_grad[i] += by_exponent * A_j[i];
                    A_grad_j[i] += by_exponent * now->delta[i];
                }
                B_grad[j] += sum;
            }
#pragma omp simd
            for (int i = 0; i < BLOCK; i++) {
                x_grad[i] += now->delta[i] * g_B[i];
                delta_grad[i] += now->x[i] * g_B[i];
            }
            if (s->softplus) {
#pragma omp simd
                for (int i = 0; i < BLOCK; i++) {
                    delta_grad[i] *= NAME(softplus_slope)(now->v[i]);
                    bias_grad[i] += delta_grad[i];
                }
            }
            memcpy((real *)s->x_grad + (row * L + t) * s->x_grad_stride + c, x_grad, n * sizeof(real));
            memcpy((real *)s->delta_grad + (row * L + t) * s->delta_grad_stride + c, delta_grad, n * sizeof(real));
        }
    }
    for (int64_t t = asked->end; t < L; t++) { /* nobody asks after these */
        memset((real *)s->x_grad + (row * L + t) * s->x_grad_stride + c, 0, n * sizeof(real));
        memset((real *)s->delta_grad + (row * L + t) * s->delta_grad_stride + c, 0, n * sizeof(real));
    }
}

static int NAME(back_piece)(void *context, int64_t piece) {
    const NAME(sums) *sums = context;
    const scan_arguments *s = sums->s;
    const int64_t slabs = count_slabs(s), groups = count_groups(s), group = piece / slabs, slab = piece % slabs;
    const int64_t from = slab * SLAB, to = from + SLAB < s->channels ? from + SLAB : s->channels;
    const int64_t step = s->state * BLOCK, chunk = s->chunk < s->length ? s->chunk : s->length;
    NAME(room) room = {.A = malloc((2 * chunk + 3) * step * sizeof(real) + 1),
                       .tokens = malloc(chunk * sizeof(NAME(token)) + 1),
                       .list = malloc((s->length + s->asked + 1) * sizeof(int64_t))};
    int fault = room.A && room.tokens && room.list ? DONE : OUT_OF_MEMORY;
    room.g = room.A + step;
    room.h = room.g + step;
    room.decay = room.h + (chunk + 1) * step;
    const int64_t last_row = (group + 1) * s->batch / groups;
    for (int64_t row = group * s->batch / groups; row < last_row && !fault; row++) {
        asked_tokens asked;
        fault = list_asked(s, row, room.list, &asked);
        for (int64_t c = from; c < to && !fault; c += BLOCK)
            NAME(back_block)(sums, &asked, row, c, group, slab, &room);
    }
    free(room.A);
    free(room.tokens);
    free(room.list);
    return fault;
}

/* parts: count of rows wide; their sum, the first n of each row, to rows of the given stride */
static void NAME(add_up)(const real *parts, int64_t count, int64_t rows, int64_t wide, int64_t n, real *to, int64_t stride) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < n; i++) {
            real sum = 0;
            for (int64_t part = 0; part < count; part++) sum += parts[(part * rows + row) * wide + i];
            to[row * stride + i] = sum;
        }
}

int NAME(scan_backward)(scan_arguments *s) {
    const int64_t N = s->state, D = s->channels, wide = padded(D), slabs = count_slabs(s), groups = count_groups(s);
    const int64_t tokens = s->batch * s->length, queries = s->batch * s->asked;
    real *space = calloc(slabs * (tokens + queries) * N + groups * (N + 2) * wide + N * wide + 1, sizeof(real));
    if (!space) return OUT_OF_MEMORY;
    NAME(sums) sums = {.s = s, .B_grad = space};
    sums.C_grad = sums.B_grad + slabs * tokens * N;
    sums.A_grad = sums.C_grad + slabs * queries * N;
    sums.skip_grad = sums.A_grad + groups * N * wide;
    sums.bias_grad = sums.skip_grad + groups * wide;
    real *A_grad = sums.bias_grad + groups * wide;
    const int fault = run_pieces(NAME(back_piece), &sums, groups * slabs, s->threads);
    if (!fault) {
        NAME(add_up)(sums.B_grad, slabs, tokens, N, N, s->B_grad, s->B_grad_stride);
        NAME(add_up)(sums.C_grad, slabs, queries, N, N, s->C_grad, s->C_grad_stride);
        NAME(add_up)(sums.A_grad, groups, N, wide, wide, A_grad, wide);
        for (int64_t c = 0; c < D; c++)
            for (int64_t j = 0; j < N; j++) ((real *)s->A_grad)[c * N + j] = A_grad[j * wide + c];
        if (s->skip_grad) NAME(add_up)(sums.skip_grad, groups, 1, wide, D, s->skip_grad, D);
        if (s->bias_grad) NAME(add_up)(sums.bias_grad, groups, 1, wide, D, s->bias_grad, D);
    }
    free(space);
    return fault;
}
