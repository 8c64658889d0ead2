/* The simplified SSM between a table of token rows and what is read: look up, convolve, then for each head
 * h_t = h_{t-1} + u_t B_t^T, y_t = h_t C_t, where asked; and all of it backwards. No L x L matrix and no kept states:
 * backward runs the state forwards once more for the gradient by C, and carries sum dy C^T backwards for u and B.
 *
 * A row of the table holds, by tap, what a token adds to keys (B_heads N), values (x_heads P) and queries (C_heads N).
 * A head's P channels go in blocks of up to 4 lanes; K, the lanes of a block, is known to the compiler. Lanes past the
 * last channel carry what stands next in memory, and meet zeros (dy) or are dropped (y, du). Once per precision.
 */
#ifndef SCAN_LANES
#define LANE 16
#define SCAN_LANES 4
#define FOR_EACH_LANE(k) _Pragma("GCC unroll 4") for (int k = 0; k < K; k++)
#define FOR_ALL_LANE_COUNTS(function, lanes, ...)            \
    switch (lanes) {                                         \
        case 1: NAME(function)(__VA_ARGS__, 1); break;       \
        case 2: NAME(function)(__VA_ARGS__, 2); break;       \
        case 3: NAME(function)(__VA_ARGS__, 3); break;       \
        default: NAME(function)(__VA_ARGS__, 4);             \
    }
static int64_t scan_columns(const table_scan_arguments *s) {
    return (s->B_heads + s->C_heads) * s->state + s->x_heads * s->value;
}
#endif

/* Numbers side by side, as one value: a compiler keeps it in vector registers, which it would not do with an array. */
typedef real NAME(lane) __attribute__((vector_size(LANE * sizeof(real)), aligned(sizeof(real)), may_alias));

/* One sequence and, in turn, each block of channels of each head. */
typedef struct {
    asked_tokens asked;
    real *hashed, *grad; /* L R: keys, values and queries of every token, and their gradients */
    NAME(lane) *h;       /* N K: the state, or on the way back the gradient by it */
    int64_t R, N, B, x, C; /* columns of a row; entries of the state; where B, u and C of this block begin */
    int64_t out, n;        /* where its channels begin among all of y's, and how many */
    int64_t outs;          /* channels of y */
} NAME(scan_block_at);

typedef real NAME(half_lane) __attribute__((vector_size(LANE / 2 * sizeof(real))));
typedef real NAME(quarter_lane) __attribute__((vector_size(LANE / 4 * sizeof(real))));

/* The sum over a lane, by halves. */
INLINE real NAME(across)(NAME(lane) v) {
    NAME(half_lane) h[2];
    memcpy(h, &v, sizeof h);
    h[0] += h[1];
    NAME(quarter_lane) q[2];
    memcpy(q, h, sizeof q);
    q[0] += q[1];
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

/* The row of token t as tap j sees it; -1 before the start. */
INLINE int64_t NAME(scanned_row)(const table_scan_arguments *s, int64_t sequence, int64_t t, int64_t tap) {
    const int64_t from = t - (s->width - 1 - tap);
    if (from < 0) return -1;
    return s->ids ? s->ids[sequence * s->length + from] : sequence * s->length + from;
}

static int NAME(hash_tokens)(const table_scan_arguments *s, int64_t sequence, const NAME(scan_block_at) *b) {
    const int64_t R = b->R;
    for (int64_t t = 0; t < s->length && s->ids; t++) {
        const int64_t id = s->ids[sequence * s->length + t];
        if (id < 0 || id >= s->rows) return OUT_OF_RANGE;
    }
    for (int64_t t = 0; t < b->asked.end; t++) {
        real *restrict sum = b->hashed + t * R;
        for (int64_t tap = s->width - 1; tap >= 0; tap--) {
            const int64_t row = NAME(scanned_row)(s, sequence, t, tap);
            if (row < 0) break;
            const real *restrict entry = (const real *)s->table + (row * s->width + tap) * R;
            if (tap == s->width - 1) {
                memcpy(sum, entry, R * sizeof(real));
            } else {
#pragma omp simd
                for (int64_t i = 0; i < R; i++) sum[i] += entry[i];
            }
        }
    }
    memset(b->hashed + b->asked.end * R, 0, SCAN_LANES * LANE * sizeof(real));
    return DONE;
}

INLINE void NAME(scan_channels)(const NAME(scan_block_at) *b, real *y_out, const int K) {
    NAME(lane) *h = b->h;
    const int64_t N = b->N;
    memset(h, 0, N * K * sizeof *h);
    for (int64_t t = 0; t < b->asked.end; t++) {
        const real *row = b->hashed + t * b->R, *B = row + b->B, *C = row + b->C;
        NAME(lane) u[SCAN_LANES], y[SCAN_LANES];
        FOR_EACH_LANE(k) u[k] = ((const NAME(lane) *)(row + b->x))[k], y[k] = (NAME(lane)){0};
        int64_t q = first_asked(&b->asked, t);
        if (q < 0) {
            for (int64_t j = 0; j < N; j++) FOR_EACH_LANE(k) h[j * K + k] += B[j] * u[k];
            continue;
        }
        for (int64_t j = 0; j < N; j++)
            FOR_EACH_LANE(k) {
                const NAME(lane) now = h[j * K + k] + B[j] * u[k];
                h[j * K + k] = now;
                y[k] += C[j] * now;
            }
        real whole[SCAN_LANES * LANE];
        FOR_EACH_LANE(k) ((NAME(lane) *)whole)[k] = y[k];
        for (; q >= 0; q = next_asked(&b->asked, q))
            NAME(give)(y_out + q * b->outs + b->out, whole, b->n, K * LANE);
    }
}

/* The sum of dy over all who asked at token t, zeros after the last channel. */
INLINE void NAME(take_asked)(const NAME(scan_block_at) *b, const real *y_grad, int64_t q, NAME(lane) *dy, const int K) {
    FOR_EACH_LANE(k) dy[k] = (NAME(lane)){0};
    for (; q >= 0; q = next_asked(&b->asked, q)) {
        real one[SCAN_LANES * LANE];
        NAME(take)(one, y_grad + q * b->outs + b->out, b->n, K * LANE);
        FOR_EACH_LANE(k) dy[k] += ((const NAME(lane) *)one)[k];
    }
}

INLINE void NAME(scan_channels_back)(const NAME(scan_block_at) *b, const real *y_grad, const int K) {
    NAME(lane) *h = b->h, dy[SCAN_LANES], u[SCAN_LANES];
    const int64_t N = b->N;
    memset(h, 0, N * K * sizeof *h);
    for (int64_t t = 0; t < b->asked.end; t++) {
        const real *row = b->hashed + t * b->R, *B = row + b->B;
        real *restrict C_grad = b->grad + t * b->R + b->C;
        FOR_EACH_LANE(k) u[k] = ((const NAME(lane) *)(row + b->x))[k];
        const int64_t q = first_asked(&b->asked, t);
        if (q < 0) {
            for (int64_t j = 0; j < N; j++) FOR_EACH_LANE(k) h[j * K + k] += B[j] * u[k];
            continue;
        }
        NAME(take_asked)(b, y_grad, q, dy, K);
        for (int64_t j = 0; j < N; j++) {
            NAME(lane) met = {0};
            FOR_EACH_LANE(k) {
                const NAME(lane) now = h[j * K + k] + B[j] * u[k];
                h[j * K + k] = now;
                met += now * dy[k];
            }
            C_grad[j] += NAME(across)(met);
        }
    }
    memset(h, 0, N * K * sizeof *h);
    for (int64_t t = b->asked.end - 1; t >= 0; t--) {
        const real *row = b->hashed + t * b->R, *B = row + b->B, *C = row + b->C;
        real *grad = b->grad + t * b->R, *restrict B_grad = grad + b->B;
        NAME(lane) du[SCAN_LANES];
        FOR_EACH_LANE(k) u[k] = ((const NAME(lane) *)(row + b->x))[k], du[k] = (NAME(lane)){0};
        const int64_t q = first_asked(&b->asked, t);
        if (q >= 0) {
            NAME(take_asked)(b, y_grad, q, dy, K);
            for (int64_t j = 0; j < N; j++) FOR_EACH_LANE(k) h[j * K + k] += C[j] * dy[k];
        }
        for (int64_t j = 0; j < N; j++) {
            NAME(lane) met = {0};
            FOR_EACH_LANE(k) {
                const NAME(lane) now = h[j * K + k];
                du[k] += B[j] * now;
                met += now * u[k];
            }
            B_grad[j] += NAME(across)(met);
        }
        real whole[SCAN_LANES * LANE];
        FOR_EACH_LANE(k) ((NAME(lane) *)whole)[k] = du[k];
        for (int64_t i = 0; i < b->n && i < K * LANE; i++) grad[b->x + i] += whole[i];
    }
}

APART void NAME(scan_block_forward)(const NAME(scan_block_at) *b, real *y, int lanes) {
    FOR_ALL_LANE_COUNTS(scan_channels, lanes, b, y)
}
APART void NAME(scan_block_back)(const NAME(scan_block_at) *b, const real *y_grad, int lanes) {
    FOR_ALL_LANE_COUNTS(scan_channels_back, lanes, b, y_grad)
}

/* Keys, values and queries of a sequence, then every block of every head, forwards or backwards. */
static int NAME(scan_sequence)(const table_scan_arguments *s, int64_t sequence, void *room) {
    const int64_t R = scan_columns(s), N = s->state, P = s->value, slack = SCAN_LANES * LANE;
    const scan_arguments where = {.length = s->length, .asked = s->asked, .positions = s->positions};
    const int64_t outs = s->heads * P;
    room = (void *)(((uintptr_t)room + 63) & ~(uintptr_t)63); /* a lane of the state in one cache line */
    NAME(scan_block_at) b = {.h = room, .R = R, .N = N, .outs = outs};
    b.hashed = (real *)room + N * slack;
    b.grad = b.hashed + s->length * R + slack;
    const int fault = list_asked(&where, sequence, (int64_t *)((char *)room + s->list_from), &b.asked);
    if (fault || NAME(hash_tokens)(s, sequence, &b)) return OUT_OF_RANGE;
    if (s->table_grad) memset(b.grad, 0, b.asked.end * R * sizeof(real));
    for (int64_t m = 0; m < s->heads; m++)
        for (int64_t d = 0; d < P; d += slack) {
            b.n = P - d < slack ? P - d : slack;
            b.B = (s->B_heads > 1 ? m : 0) * N;
            b.x = s->B_heads * N + (s->x_heads > 1 ? m : 0) * P + d;
            b.C = s->B_heads * N + s->x_heads * P + (s->C_heads > 1 ? m : 0) * N;
            b.out = m * P + d;
            const int lanes = (int)ceil_div(b.n, LANE);
            if (s->table_grad)
                NAME(scan_block_back)(&b, (const real *)s->y_grad + sequence * s->asked * outs, lanes);
            else
                NAME(scan_block_forward)(&b, (real *)s->y + sequence * s->asked * outs, lanes);
        }
    for (int64_t t = 0; t < b.asked.end && s->table_grad; t++)
        for (int64_t tap = s->width - 1; tap >= 0; tap--) {
            const int64_t row = NAME(scanned_row)(s, sequence, t, tap);
            if (row < 0) break;
            real *restrict entry = (real *)s->table_grad + (row * s->width + tap) * R;
            const real *restrict grad = b.grad + t * R;
#pragma omp simd
            for (int64_t i = 0; i < R; i++) entry[i] += grad[i];
        }
    return DONE;
}

static int NAME(scan_sequence_piece)(void *context, int64_t piece, void *room) {
    return NAME(scan_sequence)(context, piece, room);
}

/* Forward, or backward where there is a table_grad, which is added to. Sequences that share rows of it must not be
 * worked on at once: then threads is 1. */
int NAME(table_scan)(table_scan_arguments *s) {
    const int64_t slack = SCAN_LANES * LANE;
    const int64_t numbers = s->state * slack + 2 * (s->length * scan_columns(s) + slack);
    s->list_from = ceil_div(numbers * sizeof(real), sizeof(int64_t)) * sizeof(int64_t);
    const size_t room = 64 + s->list_from + (s->length + s->asked) * sizeof(int64_t);
    return run_pieces(NAME(scan_sequence_piece), s, room, s->batch, s->ids && s->table_grad ? 1 : s->threads);
}
