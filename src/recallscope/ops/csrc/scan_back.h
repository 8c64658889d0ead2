/* The way back through scan.h, from the last chunk of tokens to the first. Written v' for the gradient of the loss
 * by v, and g for h', it is the same recurrence from the end, g_t = y'_t C_t + exp(delta_{t+1} A) g_{t+1}, and then
 *
 *   x'_t = delta_t (g_t B_t) + skip y'_t,   delta'_t = x_t (g_t B_t) + sum_n A g_t exp(delta_t A) h_{t-1},
 *   B'_t = sum_d g_t delta_t x_t,   C'_t = sum_d h_t y'_t,   A' = sum_t delta_t g_t exp(delta_t A) h_{t-1}.
 *
 * Sums over channels end in one slab, sums over sequences in one group; slabs and groups are added up in order. */

typedef struct {
    const scan_arguments *s;
    real *B_grad, *C_grad;                /* slabs batch L N; slabs batch Q N */
    real *A_grad, *skip_grad, *bias_grad; /* groups N wide; groups wide; groups wide; wide is padded(channels) */
} NAME(sums);

typedef struct {
    real *g, *h, *decay;  /* N W; chunk+1 N W, from the state before the chunk; chunk N W */
    NAME(token) *tokens;  /* chunk */
    int64_t slab, start;  /* of channels; first token of the chunk */
    real *A_grad, *skip_grad, *bias_grad; /* the group's, from the block's first channel */
} NAME(chunk);

/* States and decays of the tokens up to end, from the state that was kept before the chunk. */
INLINE void NAME(recompute_of)(const scan_arguments *s, const NAME(block) *b, NAME(chunk) *k, int64_t end,
                               const int W) {
    const int64_t N = s->state, wide = padded(s->channels), step = N * W;
    const real *kept = NAME(kept_state)(s, b, k->start);
    if (!kept) memset(k->h, 0, step * sizeof(real));
    for (int64_t j = 0; j < N && kept; j++) memcpy(k->h + j * W, kept + j * wide, W * sizeof(real));
    for (int64_t t = k->start; t < end; t++) {
        NAME(token) *now = k->tokens + (t - k->start);
        NAME(read_token)(s, b, t, now, W);
        const real *B = (const real *)s->B + (b->row * s->length + t) * s->B_stride;
        for (int64_t j = 0; j < N; j++) {
            const int64_t at = (t - k->start) * step + j * W;
            const real B_j = B[j];
            const real *restrict A_j = b->A + j * W, *restrict h_j = k->h + at;
            real *restrict h_next = k->h + at + step, *restrict decay_j = k->decay + at;
#pragma omp simd
            for (int i = 0; i < W; i++) {
                decay_j[i] = NAME(exp2)(now->delta[i] * A_j[i]);
                h_next[i] = decay_j[i] * h_j[i] + now->write[i] * B_j;
            }
        }
    }
}

APART void NAME(recompute)(const scan_arguments *s, const NAME(block) *b, NAME(chunk) *k, int64_t end, int W) {
    FOR_BOTH_WIDTHS(recompute_of, s, b, k, end);
}

/* What query q at token t adds to g, to its own C' and, by the skip weight, to x'. */
INLINE void NAME(back_query_of)(const NAME(sums) *sums, const NAME(block) *b, NAME(chunk) *k, int64_t t, int64_t q,
                             real *restrict x_grad, const int W) {
    const scan_arguments *s = sums->s;
    const int64_t N = s->state, place = b->row * s->asked + q;
    const real *x = k->tokens[t - k->start].x, *h = k->h + (t - k->start + 1) * N * W;
    const real *C = (const real *)s->C + place * s->C_stride;
    real *C_grad = sums->C_grad + (k->slab * s->batch * s->asked + place) * N;
    real y_grad[BLOCK];
    NAME(take)(y_grad, (const real *)s->y_grad + place * s->channels + b->c, b->n, W);
#pragma omp simd
    for (int i = 0; i < W; i++) {
        x_grad[i] += b->skip[i] * y_grad[i];
        k->skip_grad[i] += x[i] * y_grad[i];
    }
    for (int64_t j = 0; j < N; j++) {
        const real C_j = C[j];
        real *restrict g_j = k->g + j * W;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < W; i++) {
            g_j[i] += y_grad[i] * C_j;
            sum += h[j * W + i] * y_grad[i];
        }
        C_grad[j] += sum;
    }
}

APART void NAME(back_query)(const NAME(sums) *sums, const NAME(block) *b, NAME(chunk) *k, int64_t t, int64_t q,
                            real *x_grad, int W) {
    FOR_BOTH_WIDTHS(back_query_of, sums, b, k, t, q, x_grad);
}

/* g from token t to token t-1, and all gradients at t. */
INLINE void NAME(back_token_of)(const NAME(sums) *sums, const NAME(block) *b, NAME(chunk) *k, int64_t t,
                             real *restrict x_grad, const int W) {
    const scan_arguments *s = sums->s;
    const int64_t N = s->state, wide = padded(s->channels), place = b->row * s->length + t;
    const NAME(token) *now = k->tokens + (t - k->start);
    const real *B = (const real *)s->B + place * s->B_stride;
    real *B_grad = sums->B_grad + (k->slab * s->batch * s->length + place) * N;
    real delta_grad[BLOCK] = {0}, g_B[BLOCK] = {0};
    for (int64_t j = 0; j < N; j++) {
        const int64_t at = ((t - k->start) * N + j) * W;
        const real B_j = B[j];
        const real *restrict A_j = b->A + j * W, *restrict h_j = k->h + at, *restrict decay_j = k->decay + at;
        real *restrict g_j = k->g + j * W, *restrict A_grad_j = k->A_grad + j * wide;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < W; i++) {
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
    for (int i = 0; i < W; i++) {
        x_grad[i] += now->delta[i] * g_B[i];
        delta_grad[i] = delta_grad[i] * (real)LOG_OF_2 + now->x[i] * g_B[i]; /* A came times log2(e) */
    }
    if (s->softplus) {
#pragma omp simd
        for (int i = 0; i < W; i++) {
            delta_grad[i] *= NAME(softplus_slope)(now->v[i]);
            k->bias_grad[i] += delta_grad[i];
        }
    }
    NAME(give)((real *)s->x_grad + place * s->x_grad_stride + b->c, x_grad, b->n, W);
    NAME(give)((real *)s->delta_grad + place * s->delta_grad_stride + b->c, delta_grad, b->n, W);
}

APART void NAME(back_token)(const NAME(sums) *sums, const NAME(block) *b, NAME(chunk) *k, int64_t t, real *x_grad,
                            int W) {
    FOR_BOTH_WIDTHS(back_token_of, sums, b, k, t, x_grad);
}

static void NAME(back_block)(const NAME(sums) *sums, const asked_tokens *asked, NAME(block) *b, NAME(chunk) *k,
                             int64_t row, int64_t c, int64_t group, int W) {
    const scan_arguments *s = sums->s;
    const int64_t N = s->state, wide = padded(s->channels), size = s->chunk;
    NAME(open_block)(s, b, row, c, W);
    memset(k->g, 0, N * W * sizeof(real));
    k->A_grad = sums->A_grad + group * N * wide + c;
    k->skip_grad = sums->skip_grad + group * wide + c;
    k->bias_grad = sums->bias_grad + group * wide + c;
    for (k->start = asked->end > 0 ? (asked->end - 1) / size * size : -1; k->start >= 0; k->start -= size) {
        const int64_t end = k->start + size < asked->end ? k->start + size : asked->end;
        NAME(recompute)(s, b, k, end, W);
        for (int64_t t = end - 1; t >= k->start; t--) {
            real x_grad[BLOCK] = {0};
            for (int64_t q = first_asked(asked, t); q >= 0; q = next_asked(asked, q))
                NAME(back_query)(sums, b, k, t, q, x_grad, W);
            NAME(back_token)(sums, b, k, t, x_grad, W);
        }
    }
    for (int64_t place = row * s->length + asked->end; place < (row + 1) * s->length; place++) { /* nobody asks later */
        memset((real *)s->x_grad + place * s->x_grad_stride + c, 0, b->n * sizeof(real));
        memset((real *)s->delta_grad + place * s->delta_grad_stride + c, 0, b->n * sizeof(real));
    }
}

static int64_t NAME(back_room)(const scan_arguments *s) { /* A, g; states and decays; tokens; the list */
    const int64_t size = s->chunk < s->length ? s->chunk : s->length, states = (2 * size + 3) * s->state * BLOCK;
    return states * sizeof(real) + size * sizeof(NAME(token)) + list_size(s) * sizeof(int64_t);
}

static int NAME(back_piece)(void *context, int64_t piece, void *room) {
    const NAME(sums) *sums = context;
    const scan_arguments *s = sums->s;
    const int64_t slabs = count_slabs(s), groups = count_groups(s), group = piece / slabs, slab = piece % slabs;
    const int64_t from = slab * SLAB, to = from + SLAB < s->channels ? from + SLAB : s->channels;
    const int64_t step = s->state * BLOCK, size = s->chunk < s->length ? s->chunk : s->length;
    int64_t *list = room;
    NAME(chunk) k = {.slab = slab, .tokens = (NAME(token) *)(list + list_size(s))};
    NAME(block) b = {.A = (real *)(k.tokens + size)};
    k.g = b.A + step;
    k.h = k.g + step;
    k.decay = k.h + (size + 1) * step;
    int fault = DONE;
    const int64_t last_row = (group + 1) * s->batch / groups;
    for (int64_t row = group * s->batch / groups; row < last_row && !fault; row++) {
        asked_tokens asked;
        fault = list_asked(s, row, list, &asked);
        for (int64_t c = from; c < to && !fault; c += BLOCK)
            NAME(back_block)(sums, &asked, &b, &k, row, c, group, to - c > HALF ? BLOCK : HALF);
    }
    return fault;
}

/* parts: count of rows wide; their sum, the first n of each row, to rows of the given stride */
static void NAME(add_up)(const real *parts, int64_t count, int64_t rows, int64_t wide, int64_t n, real *to,
                         int64_t stride) {
    for (int64_t row = 0; row < rows; row++) {
        memcpy(to + row * stride, parts + row * wide, n * sizeof(real));
        for (int64_t part = 1; part < count; part++)
            for (int64_t i = 0; i < n; i++) to[row * stride + i] += parts[(part * rows + row) * wide + i];
    }
}

int NAME(scan_backward)(scan_arguments *s) {
    const int64_t N = s->state, D = s->channels, wide = padded(D), slabs = count_slabs(s), groups = count_groups(s);
    const int64_t tokens = s->batch * s->length, queries = s->batch * s->asked;
    real *space = calloc(slabs * (tokens + queries) * N + (groups + 1) * (N + 2) * wide + 1, sizeof(real));
    if (!space) return OUT_OF_MEMORY;
    NAME(sums) sums = {.s = s, .B_grad = space, .C_grad = space + slabs * tokens * N};
    sums.A_grad = sums.C_grad + slabs * queries * N;
    sums.skip_grad = sums.A_grad + groups * N * wide;
    sums.bias_grad = sums.skip_grad + groups * wide;
    real *A_grad = sums.bias_grad + groups * wide; /* N wide: the sum, to be turned into D N */
    const int fault = run_pieces(NAME(back_piece), &sums, NAME(back_room)(s), groups * slabs, s->threads);
    if (!fault && groups > 0) {
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
