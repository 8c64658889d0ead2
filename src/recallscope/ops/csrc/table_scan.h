/* The simplified SSM between a table of token rows and what is read: look up, convolve, then for each head
 * h_t = h_{t-1} + u_t B_t^T, y_t = h_t C_t, where asked; and all of it backwards. No L x L matrix and no kept states.
 *
 * One function does all of it (`scan_tile`): a state that sums key_t value_t^T over the tokens, in their order or
 * against it, and is read by query_t. Its keys, values and queries are B, u and C for y. The gradients have its form too:
 *     dC_t = sum over tau <= t of B_tau  (u_tau . dy_t)      keys u,  values B,  queries dy
 *     du_t = sum over tau >= t of dy_tau (C_tau . B_t)       keys C,  values dy, queries B
 *     dB_t = sum over tau >= t of C_tau  (dy_tau . u_t)      keys dy, values C,  queries u
 * A tile of the state, J keys by K lanes of values, stays in registers for a whole sequence. J and K are known to the
 * compiler. Lanes past the last value carry zeros.
 *
 * A row of the table holds, by tap, what a token adds to keys (B_heads N), values (x_heads P) and queries (C_heads N).
 * Included once per precision.
 */
#ifndef MOST_LANES
#define MOST_LANES 2
#define MOST_KEYS 8
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE 16 /* registers of the state, of 32 */
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE 8 /* registers, of 16 */
#else
#define VECTOR_BYTES 16
#define TILE 8
#endif
#define LANE ((int)(VECTOR_BYTES / sizeof(real)))
#define FOR_EACH_KEY(j) _Pragma("GCC unroll 8") for (int j = 0; j < J; j++)
#define FOR_EACH_LANE(k) _Pragma("GCC unroll 2") for (int k = 0; k < K; k++)
static int64_t scan_columns(const table_scan_arguments *s) {
    return (s->B_heads + s->C_heads) * s->state + s->x_heads * s->value;
}
#endif

/* Numbers side by side: one vector register, as gcc splits wider ones by way of memory. */
typedef real NAME(lane) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef bits NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));

/* Some columns of the rows of all tokens. */
typedef struct {
    real *first;
    int64_t stride, count;
} NAME(columns);

typedef struct {
    const asked_tokens *asked;
    NAME(columns) keys, values, queries, out; /* out is added to */
} NAME(meeting);

/* Every token writes, and those asked for read; against the order of tokens, those asked for write, and all read. */
INLINE void NAME(scan_tile)(const NAME(meeting) *m, int64_t key, int64_t value, const int reverse, const int J,
                            const int K) {
    const int64_t end = m->asked->end, last = m->values.count - value - (K - 1) * LANE;
    NAME(lane) h[MOST_KEYS][MOST_LANES];
    NAME(mask) there;
    for (int i = 0; i < LANE; i++) there[i] = i < last ? ~(bits)0 : 0;
    FOR_EACH_KEY(j) FOR_EACH_LANE(k) h[j][k] = (NAME(lane)){0};
    for (int64_t step = 0; step < end; step++) {
        const int64_t t = reverse ? end - 1 - step : step;
        const int asked = first_asked(m->asked, t) >= 0;
        if (asked || !reverse) {
            const real *keys = m->keys.first + t * m->keys.stride + key;
            const NAME(lane) *values = (const NAME(lane) *)(m->values.first + t * m->values.stride + value);
            FOR_EACH_LANE(k) {
                const NAME(lane) v = k < K - 1 ? values[k] : (NAME(lane))((NAME(mask))values[k] & there);
                FOR_EACH_KEY(j) h[j][k] += keys[j] * v;
            }
        }
        if (asked || reverse) {
            const real *queries = m->queries.first + t * m->queries.stride + key;
            NAME(lane) *out = (NAME(lane) *)(m->out.first + t * m->out.stride + value);
            FOR_EACH_LANE(k) {
                NAME(lane) sum = out[k];
                FOR_EACH_KEY(j) sum += queries[j] * h[j][k];
                out[k] = sum;
            }
        }
    }
}

INLINE void NAME(scan_lanes)(const NAME(meeting) *m, int64_t value, const int reverse, const int K) {
    for (int64_t key = 0, J; key < m->keys.count; key += J) {
        const int64_t left = m->keys.count - key;
        if (left >= 8 && K * 8 <= TILE) NAME(scan_tile)(m, key, value, reverse, J = 8, K);
        else if (left >= 4) NAME(scan_tile)(m, key, value, reverse, J = 4, K);
        else if (left == 3) NAME(scan_tile)(m, key, value, reverse, J = 3, K);
        else if (left == 2) NAME(scan_tile)(m, key, value, reverse, J = 2, K);
        else NAME(scan_tile)(m, key, value, reverse, J = 1, K);
    }
}
INLINE void NAME(scan_all)(const NAME(meeting) *m, const int reverse) {
    for (int64_t value = 0; value < m->values.count; value += MOST_LANES * LANE)
        if (m->values.count - value > LANE) NAME(scan_lanes)(m, value, reverse, MOST_LANES);
        else NAME(scan_lanes)(m, value, reverse, 1);
}
APART void NAME(scan_in_order)(const NAME(meeting) *m) { NAME(scan_all)(m, 0); }
APART void NAME(scan_against_order)(const NAME(meeting) *m) { NAME(scan_all)(m, 1); }

/* The row of token t as tap j sees it; -1 before the start. */
INLINE int64_t NAME(scanned_row)(const table_scan_arguments *s, int64_t sequence, int64_t t, int64_t tap) {
    const int64_t from = t - (s->width - 1 - tap);
    if (from < 0) return -1;
    return s->ids ? s->ids[sequence * s->length + from] : sequence * s->length + from;
}

INLINE void NAME(add)(real *restrict to, const real *restrict from, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* Keys, values and queries of every token. */
static int NAME(hash_tokens)(const table_scan_arguments *s, int64_t sequence, int64_t end, real *hashed) {
    const int64_t R = scan_columns(s);
    for (int64_t t = 0; t < s->length && s->ids; t++) {
        const int64_t id = s->ids[sequence * s->length + t];
        if (id < 0 || id >= s->rows) return OUT_OF_RANGE;
    }
    for (int64_t t = 0; t < end; t++)
        for (int64_t tap = s->width - 1; tap >= 0; tap--) {
            const int64_t row = NAME(scanned_row)(s, sequence, t, tap);
            if (row < 0) break;
            const real *entry = (const real *)s->table + (row * s->width + tap) * R;
            if (tap == s->width - 1) memcpy(hashed + t * R, entry, R * sizeof(real));
            else NAME(add)(hashed + t * R, entry, R);
        }
    return DONE;
}

/* Their gradients, to the rows they came from. */
static void NAME(hash_tokens_back)(const table_scan_arguments *s, int64_t sequence, int64_t end, const real *grad) {
    const int64_t R = scan_columns(s);
    for (int64_t t = 0; t < end; t++)
        for (int64_t tap = s->width - 1; tap >= 0; tap--) {
            const int64_t row = NAME(scanned_row)(s, sequence, t, tap);
            if (row < 0) break;
            NAME(add)((real *)s->table_grad + (row * s->width + tap) * R, grad + t * R, R);
        }
}

/* Keys, values and queries of a sequence, then every head, forwards or backwards. */
static int NAME(scan_sequence)(void *context, int64_t sequence, void *room) {
    const table_scan_arguments *s = context;
    const int64_t R = scan_columns(s), N = s->state, P = s->value, outs = s->heads * P, slack = MOST_LANES * LANE;
    const scan_arguments where = {.length = s->length, .asked = s->asked, .positions = s->positions};
    real *hashed = (real *)(((uintptr_t)room + 63) & ~(uintptr_t)63); /* rows in as few cache lines as may be */
    real *read = hashed + s->length * R + slack, *grad = read + s->length * P + slack; /* read: y or dy by token */
    asked_tokens asked;
    const int fault = list_asked(&where, sequence, (int64_t *)((char *)hashed + s->list_from), &asked);
    if (fault || NAME(hash_tokens)(s, sequence, asked.end, hashed)) return OUT_OF_RANGE;
    if (s->table_grad) memset(grad, 0, asked.end * R * sizeof(real));
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t B_at = (s->B_heads > 1 ? head : 0) * N;
        const int64_t u_at = s->B_heads * N + (s->x_heads > 1 ? head : 0) * P;
        const int64_t C_at = s->B_heads * N + s->x_heads * P + (s->C_heads > 1 ? head : 0) * N;
        const int64_t y_at = sequence * s->asked * outs + head * P;
        const NAME(columns) B = {hashed + B_at, R, N}, u = {hashed + u_at, R, P}, C = {hashed + C_at, R, N};
        const NAME(columns) y = {read, P, P};
        memset(read, 0, asked.end * P * sizeof(real));
        if (!s->table_grad) {
            NAME(scan_in_order)(&(NAME(meeting)){&asked, B, u, C, y});
            for (int64_t t = 0; t < asked.end; t++)
                for (int64_t q = first_asked(&asked, t); q >= 0; q = next_asked(&asked, q))
                    memcpy((real *)s->y + y_at + q * outs, read + t * P, P * sizeof(real));
            continue;
        }
        for (int64_t t = 0; t < asked.end; t++)
            for (int64_t q = first_asked(&asked, t); q >= 0; q = next_asked(&asked, q))
                NAME(add)(read + t * P, (const real *)s->y_grad + y_at + q * outs, P);
        const NAME(columns) dy = y, dB = {grad + B_at, R, N}, du = {grad + u_at, R, P}, dC = {grad + C_at, R, N};
        NAME(scan_in_order)(&(NAME(meeting)){&asked, u, B, dy, dC});
        NAME(scan_against_order)(&(NAME(meeting)){&asked, C, dy, B, du});
        NAME(scan_against_order)(&(NAME(meeting)){&asked, dy, C, u, dB});
    }
    if (s->table_grad) NAME(hash_tokens_back)(s, sequence, asked.end, grad);
    return DONE;
}

/* Forward, or backward where there is a table_grad, which is added to. Sequences that share rows of it must not be
 * worked on at once: then threads is 1. */
int NAME(table_scan)(table_scan_arguments *s) {
    const int64_t slack = MOST_LANES * LANE;
    const int64_t numbers = s->length * (2 * scan_columns(s) + s->value) + 3 * slack;
    s->list_from = ceil_div(numbers * sizeof(real), sizeof(int64_t)) * sizeof(int64_t);
    const size_t room = 64 + s->list_from + (s->length + s->asked) * sizeof(int64_t);
    return run_pieces(NAME(scan_sequence), s, room, s->batch, s->ids && s->table_grad ? 1 : s->threads);
}
