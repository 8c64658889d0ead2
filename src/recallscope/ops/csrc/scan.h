/* The selective scan, h_t = exp(delta_t A) h_{t-1} + delta_t x_t B_t and y_t = h_t C_t. One sequence and W channels
 * at a time, so that states stay in the nearest cache; vectors run over channels.
 *
 * The way back (scan_back.h) needs every state. Forward keeps one per chunk, and backward computes the rest anew. */

/* x, delta and their product at one token; v is delta before softplus */
typedef struct {
    real x[BLOCK], v[BLOCK], delta[BLOCK], write[BLOCK];
} NAME(token);

/* What a block of channels has of its own. A stands with a row of channels per state entry, and times log2(e):
 * exp(delta A) is then a power of two. */
typedef struct {
    int64_t row, c, n; /* sequence, first channel, how many */
    real skip[BLOCK], bias[BLOCK];
    real *A; /* N W */
} NAME(block);

static void NAME(open_block)(const scan_arguments *s, NAME(block) *b, int64_t row, int64_t c, int W) {
    const int64_t N = s->state;
    b->row = row;
    b->c = c;
    b->n = s->channels - c < W ? s->channels - c : W;
    memset(b->skip, 0, sizeof b->skip);
    memset(b->bias, 0, sizeof b->bias);
    if (s->skip) memcpy(b->skip, (const real *)s->skip + c, b->n * sizeof(real));
    if (s->bias) memcpy(b->bias, (const real *)s->bias + c, b->n * sizeof(real));
    memset(b->A, 0, N * W * sizeof(real));
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t j = 0; j < N; j++) b->A[j * W + i] = ((const real *)s->A)[(c + i) * N + j] * (real)LOG2_OF_E;
}

INLINE void NAME(read_token)(const scan_arguments *s, const NAME(block) *b, int64_t t, NAME(token) *now, const int W) {
    const int64_t place = b->row * s->length + t;
    NAME(take)(now->x, (const real *)s->x + place * s->x_stride + b->c, b->n, W);
    NAME(take)(now->v, (const real *)s->delta + place * s->delta_stride + b->c, b->n, W);
    if (s->softplus) {
#pragma omp simd
        for (int i = 0; i < W; i++) {
            now->v[i] += b->bias[i];
            now->delta[i] = NAME(softplus)(now->v[i]);
        }
    } else {
        memcpy(now->delta, now->v, W * sizeof(real));
    }
#pragma omp simd
    for (int i = 0; i < W; i++) now->write[i] = now->delta[i] * now->x[i];
}

/* Where the state before token t is kept, or NULL if it is not. Rows of channels are padded(channels) apart. */
INLINE real *NAME(kept_state)(const scan_arguments *s, const NAME(block) *b, int64_t t) {
    if (!s->states || t == 0 || t % s->chunk) return NULL;
    const int64_t before = b->row * ((s->length - 1) / s->chunk) + t / s->chunk - 1;
    return (real *)s->states + before * s->state * padded(s->channels) + b->c;
}

INLINE void NAME(scan_block_of)(const scan_arguments *s, const asked_tokens *asked, const NAME(block) *b, real *h,
                                const int W) {
    const int64_t N = s->state, wide = padded(s->channels);
    memset(h, 0, N * W * sizeof(real));
    for (int64_t t = 0; t < asked->end; t++) {
        real *kept = NAME(kept_state)(s, b, t);
        for (int64_t j = 0; j < N && kept; j++) memcpy(kept + j * wide, h + j * W, W * sizeof(real));
        NAME(token) now;
        NAME(read_token)(s, b, t, &now, W);
        const real *B = (const real *)s->B + (b->row * s->length + t) * s->B_stride;
        for (int64_t j = 0; j < N; j++) {
            const real B_j = B[j];
            real *restrict h_j = h + j * W;
            const real *restrict A_j = b->A + j * W;
#pragma omp simd
            for (int i = 0; i < W; i++) h_j[i] = NAME(exp2)(now.delta[i] * A_j[i]) * h_j[i] + now.write[i] * B_j;
        }
        for (int64_t q = first_asked(asked, t); q >= 0; q = next_asked(asked, q)) {
            const int64_t place = b->row * s->asked + q;
            const real *C = (const real *)s->C + place * s->C_stride;
            real y[BLOCK];
#pragma omp simd
            for (int i = 0; i < W; i++) y[i] = b->skip[i] * now.x[i];
            for (int64_t j = 0; j < N; j++) {
                const real C_j = C[j];
#pragma omp simd
                for (int i = 0; i < W; i++) y[i] += h[j * W + i] * C_j;
            }
            NAME(give)((real *)s->y + place * s->channels + b->c, y, b->n, W);
        }
    }
}

APART void NAME(scan_block)(const scan_arguments *s, const asked_tokens *asked, const NAME(block) *b, real *h, int W) {
    FOR_BOTH_WIDTHS(scan_block_of, s, asked, b, h);
}

static int NAME(scan_piece)(void *context, int64_t piece, void *room) {
    const scan_arguments *s = context;
    const int64_t row = piece / count_slabs(s), from = piece % count_slabs(s) * SLAB, size = s->state * BLOCK;
    const int64_t to = from + SLAB < s->channels ? from + SLAB : s->channels;
    int64_t *list = room;
    NAME(block) b = {.A = (real *)(list + list_size(s))};
    asked_tokens asked;
    const int fault = list_asked(s, row, list, &asked);
    for (int64_t c = from; c < to && !fault; c += BLOCK) {
        const int W = to - c > HALF ? BLOCK : HALF;
        NAME(open_block)(s, &b, row, c, W);
        NAME(scan_block)(s, &asked, &b, b.A + size, W);
    }
    return fault;
}

int NAME(scan_forward)(scan_arguments *s) {
    const size_t room = list_size(s) * sizeof(int64_t) + 2 * s->state * BLOCK * sizeof(real);
    return run_pieces(NAME(scan_piece), s, room, s->batch * count_slabs(s), s->threads);
}
