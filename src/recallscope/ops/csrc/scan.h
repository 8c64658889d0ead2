/* The selective scan, h_t = exp(delta_t A) h_{t-1} + delta_t x_t B_t and y_t = h_t C_t, and its way back. One
 * sequence and BLOCK channels at a time, so that states stay in the nearest cache; vectors run over channels.
 *
 * The way back needs every state. Forward keeps one per chunk; backward walks the chunks from the last to the
 * first, computes the states of a chunk anew, then runs g_t = y'_t C_t + exp(delta_{t+1} A) g_{t+1} through it. */

/* n numbers, then zeros up to a whole block */
static inline void NAME(take)(real *to, const real *from, int64_t n) {
    memcpy(to, from, n * sizeof(real));
    memset(to + n, 0, (BLOCK - n) * sizeof(real));
}

/* x, delta and their product at one token; v is delta before softplus */
typedef struct {
    real x[BLOCK], v[BLOCK], delta[BLOCK], write[BLOCK];
} NAME(token);

static inline void NAME(read_token)(const scan_arguments *s, const real *bias, int64_t place, int64_t c, int64_t n,
                                    NAME(token) * now) {
    NAME(take)(now->x, (const real *)s->x + place * s->x_stride + c, n);
    NAME(take)(now->v, (const real *)s->delta + place * s->delta_stride + c, n);
    if (s->softplus) {
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) {
            now->v[i] += bias[i];
            now->delta[i] = NAME(softplus)(now->v[i]);
        }
    } else {
        memcpy(now->delta, now->v, sizeof now->v);
    }
#pragma omp simd
    for (int i = 0; i < BLOCK; i++) now->write[i] = now->delta[i] * now->x[i];
}

/* A of a block, one row of channels per state entry */
static inline void NAME(read_A)(const scan_arguments *s, int64_t c, int64_t n, real *A) {
    const int64_t N = s->state;
    memset(A, 0, N * BLOCK * sizeof(real));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < N; j++) A[j * BLOCK + i] = ((const real *)s->A)[(c + i) * N + j];
}

static void NAME(scan_block)(const scan_arguments *s, const asked_tokens *asked, int64_t row, int64_t c, real *A, real *h) {
    const int64_t L = s->length, N = s->state, D = s->channels, n = D - c < BLOCK ? D - c : BLOCK;
    real skip[BLOCK] = {0}, bias[BLOCK] = {0}, y[BLOCK];
    if (s->skip) NAME(take)(skip, (const real *)s->skip + c, n);
    if (s->bias) NAME(take)(bias, (const real *)s->bias + c, n);
    NAME(read_A)(s, c, n, A);
    memset(h, 0, N * BLOCK * sizeof(real));
    const int64_t chunks = L > 0 ? (L - 1) / s->chunk : 0;
    for (int64_t t = 0; t < asked->end; t++) {
        if (s->states && t > 0 && t % s->chunk == 0) {
            real *kept = (real *)s->states + (row * chunks + t / s->chunk - 1) * N * padded(D) + c;
            for (int64_t j = 0; j < N; j++) memcpy(kept + j * padded(D), h + j * BLOCK, BLOCK * sizeof(real));
        }
        NAME(token) now;
        NAME(read_token)(s, bias, row * L + t, c, n, &now);
        const real *B = (const real *)s->B + (row * L + t) * s->B_stride;
        for (int64_t j = 0; j < N; j++) {
            const real B_j = B[j];
            real *restrict h_j = h + j * BLOCK;
            const real *restrict A_j = A + j * BLOCK;
#pragma omp simd
            for (int i = 0; i < BLOCK; i++) h_j[i] = NAME(exp)(now.delta[i] * A_j[i]) * h_j[i] + now.write[i] * B_j;
        }
        for (int64_t q = first_asked(asked, t); q >= 0; q = next_asked(asked, q)) {
            const real *C = (const real *)s->C + (row * s->asked + q) * s->C_stride;
#pragma omp simd
            for (int i = 0; i < BLOCK; i++) y[i] = skip[i] * now.x[i];
            for (int64_t j = 0; j < N; j++) {
                const real C_j = C[j];
#pragma omp simd
                for (int i = 0; i < BLOCK; i++) y[i] += h[j * BLOCK + i] * C_j;
            }
            memcpy((real *)s->y + (row * s->asked + q) * D + c, y, n * sizeof(real));
        }
    }
}

static int NAME(scan_piece)(void *context, int64_t piece) {
    const scan_arguments *s = context;
    const int64_t row = piece / count_slabs(s), from = piece % count_slabs(s) * SLAB, N = s->state;
    const int64_t to = from + SLAB < s->channels ? from + SLAB : s->channels;
    real *A = malloc(2 * N * BLOCK * sizeof(real) + 1);
    int64_t *space = malloc((s->length + s->asked + 1) * sizeof(int64_t));
    asked_tokens asked;
    int fault = A && space ? list_asked(s, row, space, &asked) : OUT_OF_MEMORY;
    for (int64_t c = from; c < to && !fault; c += BLOCK) NAME(scan_block)(s, &asked, row, c, A, A + N * BLOCK);
    free(space);
    free(A);
    return fault;
}

int NAME(scan_forward)(scan_arguments *s) {
    return run_pieces(NAME(scan_piece), s, s->batch * count_slabs(s), s->threads);
}
