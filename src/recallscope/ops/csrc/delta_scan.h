/* Matrix memories: for each head S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T and o_t = S_t^T q_t, where
 * asked; and all of it backwards. S is N x P; w (a decay per head or per row of S) and the pair a, b may be absent.
 *
 * One sequence and head at a time, its P channels in blocks of up to 4 lanes (table_scan.h): a block of S stays in the
 * nearest cache. Forward keeps a state per chunk; backward computes those of a chunk anew. With u = S_{t-1}^T a and v'
 * for the gradient of the loss by v, G for that by S_t,
 *
 *   q' = S_t o',  G += q o'^T,  k' = G v,  v' = G^T k,  b' = G u,  u' = G^T b,  w' = rows of G * S_{t-1} summed,
 *   a' = S_{t-1} u',  and G_{t-1} = diag(w) G + a u'^T.
 *
 * Once per precision. */
#ifndef DELTA_LANES
#define DELTA_LANES 4
#define DELTA_PADDING 16 /* numbers that a row of a kept state is padded to; the Python side knows it too */
#define EACH_DELTA_LANE(i) _Pragma("GCC unroll 4") for (int i = 0; i < K; i++)
#define FOR_ALL_LANE_COUNTS(function, lanes, ...)            \
    switch (lanes) {                                         \
        case 1: NAME(function)(__VA_ARGS__, 1); break;       \
        case 2: NAME(function)(__VA_ARGS__, 2); break;       \
        case 3: NAME(function)(__VA_ARGS__, 3); break;       \
        default: NAME(function)(__VA_ARGS__, 4);             \
    }
static int64_t delta_wide(const delta_arguments *s) { return ceil_div(s->value, DELTA_PADDING) * DELTA_PADDING; }
#endif

/* The sum over a lane, by halves. */
INLINE real NAME(across)(NAME(lane) v) {
    real sum[LANE];
    memcpy(sum, &v, sizeof sum);
    for (int half = LANE / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sum[i] += sum[i + half];
    return sum[0];
}

/* One block of channels of one head of one sequence. */
typedef struct {
    asked_tokens asked;
    int64_t row, head, d, n; /* sequence; head; first channel and how many */
    NAME(lane) *S, *u, *v;   /* chunk+1 N K: states, the first before the chunk; chunk K each */
    NAME(lane) *G;           /* N K */
} NAME(delta_block);

INLINE int64_t NAME(delta_place)(const delta_arguments *s, const NAME(delta_block) *b, int64_t t) {
    return (b->row * s->length + t) * s->heads + b->head;
}
INLINE int64_t NAME(delta_asked_place)(const delta_arguments *s, const NAME(delta_block) *b, int64_t q) {
    return (b->row * s->asked + q) * s->heads + b->head;
}

/* Where the state before token t is kept, or NULL if it is not; rows are whole lanes. */
INLINE real *NAME(delta_kept)(const delta_arguments *s, const NAME(delta_block) *b, int64_t t) {
    if (!s->states || t == 0 || t % s->chunk) return NULL;
    const int64_t chunks = (s->length - 1) / s->chunk;
    const int64_t before = (b->row * s->heads + b->head) * chunks + t / s->chunk - 1;
    return (real *)s->states + before * s->key * delta_wide(s) + b->d;
}

INLINE void NAME(take_lanes)(NAME(lane) *to, const real *from, int64_t n, const int K) {
    real whole[DELTA_LANES * LANE];
    NAME(take)(whole, from, n, K * LANE);
    EACH_DELTA_LANE(i) to[i] = ((const NAME(lane) *)whole)[i];
}

INLINE void NAME(give_lanes)(real *to, const NAME(lane) *from, int64_t n, const int K) {
    real whole[DELTA_LANES * LANE];
    EACH_DELTA_LANE(i) ((NAME(lane) *)whole)[i] = from[i];
    NAME(give)(to, whole, n, K * LANE);
}

/* From the state before token t to the one after it, which may be the same memory. u is S^T a. */
INLINE void NAME(delta_step)(const delta_arguments *s, int64_t place, const NAME(lane) *S, NAME(lane) *next,
                             NAME(lane) *u, const NAME(lane) *v, const int K) {
    const int64_t N = s->key, channel = s->decays > 1;
    const real *k = (const real *)s->k + place * N, *w = s->w ? (const real *)s->w + place * s->decays : NULL;
    if (s->a) {
        const real *a = (const real *)s->a + place * N, *b = (const real *)s->b + place * N;
        EACH_DELTA_LANE(i) u[i] = (NAME(lane)){0};
        for (int64_t j = 0; j < N; j++) EACH_DELTA_LANE(i) u[i] += a[j] * S[j * K + i];
        for (int64_t j = 0; j < N; j++) {
            const real w_j = w ? w[j * channel] : 1;
            EACH_DELTA_LANE(i) next[j * K + i] = w_j * S[j * K + i] + (b[j] * u[i] + k[j] * v[i]);
        }
    } else {
        for (int64_t j = 0; j < N; j++) {
            const real w_j = w ? w[j * channel] : 1;
            EACH_DELTA_LANE(i) next[j * K + i] = w_j * S[j * K + i] + k[j] * v[i];
        }
    }
}

INLINE void NAME(delta_forward_of)(const delta_arguments *s, const NAME(delta_block) *b, const int K) {
    const int64_t N = s->key, P = s->value;
    NAME(lane) *S = b->S, v[DELTA_LANES], u[DELTA_LANES];
    memset(S, 0, N * K * sizeof *S);
    for (int64_t t = 0; t < b->asked.end; t++) {
        const int64_t place = NAME(delta_place)(s, b, t);
        real *kept = NAME(delta_kept)(s, b, t);
        for (int64_t j = 0; j < N && kept; j++) memcpy(kept + j * delta_wide(s), S + j * K, K * sizeof *S);
        NAME(take_lanes)(v, (const real *)s->v + place * P + b->d, b->n, K);
        NAME(delta_step)(s, place, S, S, u, v, K);
        for (int64_t query = first_asked(&b->asked, t); query >= 0; query = next_asked(&b->asked, query)) {
            const int64_t at = NAME(delta_asked_place)(s, b, query);
            const real *q = (const real *)s->q + at * N;
            NAME(lane) o[DELTA_LANES] = {{0}};
            for (int64_t j = 0; j < N; j++) EACH_DELTA_LANE(i) o[i] += q[j] * S[j * K + i];
            NAME(give_lanes)((real *)s->o + at * P + b->d, o, b->n, K);
        }
    }
}

/* What query `query` at the state S after its token adds to G, and to its own gradient. */
INLINE void NAME(delta_back_query)(const delta_arguments *s, const NAME(delta_block) *b, int64_t query,
                                   const NAME(lane) *S, const int K) {
    const int64_t N = s->key, at = NAME(delta_asked_place)(s, b, query);
    const real *q = (const real *)s->q + at * N;
    real *restrict q_grad = (real *)s->q_grad + at * N;
    NAME(lane) o_grad[DELTA_LANES];
    NAME(take_lanes)(o_grad, (const real *)s->o_grad + at * s->value + b->d, b->n, K);
    for (int64_t j = 0; j < N; j++) {
        NAME(lane) met = {0};
        EACH_DELTA_LANE(i) {
            b->G[j * K + i] += q[j] * o_grad[i];
            met += S[j * K + i] * o_grad[i];
        }
        q_grad[j] += NAME(across)(met);
    }
}

/* All gradients at a token, S the state before it; then G from the token to the one before. */
INLINE void NAME(delta_back_token)(const delta_arguments *s, const NAME(delta_block) *b, int64_t place,
                                   const NAME(lane) *S, const NAME(lane) *u, const NAME(lane) *v, const int K) {
    const int64_t N = s->key, channel = s->decays > 1;
    const real *k = (const real *)s->k + place * N, *w = s->w ? (const real *)s->w + place * s->decays : NULL;
    const real *a = s->a ? (const real *)s->a + place * N : NULL, *by = s->a ? (const real *)s->b + place * N : NULL;
    real *restrict k_grad = (real *)s->k_grad + place * N;
    NAME(lane) *G = b->G, v_grad[DELTA_LANES] = {{0}}, u_grad[DELTA_LANES] = {{0}};
    for (int64_t j = 0; j < N; j++) {
        NAME(lane) met = {0};
        EACH_DELTA_LANE(i) {
            v_grad[i] += k[j] * G[j * K + i];
            met += G[j * K + i] * v[i];
        }
        k_grad[j] += NAME(across)(met);
    }
    if (w) {
        real *restrict w_grad = (real *)s->w_grad + place * s->decays;
        NAME(lane) met = {0};
        for (int64_t j = 0; j < N; j++) {
            EACH_DELTA_LANE(i) met += G[j * K + i] * S[j * K + i];
            if (channel || j == N - 1) {
                w_grad[j * channel] += NAME(across)(met);
                met = (NAME(lane)){0};
            }
        }
    }
    if (a) {
        real *restrict a_grad = (real *)s->a_grad + place * N, *restrict b_grad = (real *)s->b_grad + place * N;
        for (int64_t j = 0; j < N; j++) {
            NAME(lane) met = {0};
            EACH_DELTA_LANE(i) {
                u_grad[i] += by[j] * G[j * K + i];
                met += G[j * K + i] * u[i];
            }
            b_grad[j] += NAME(across)(met);
        }
        for (int64_t j = 0; j < N; j++) {
            const real w_j = w ? w[j * channel] : 1;
            NAME(lane) met = {0};
            EACH_DELTA_LANE(i) {
                met += S[j * K + i] * u_grad[i];
                G[j * K + i] = w_j * G[j * K + i] + a[j] * u_grad[i];
            }
            a_grad[j] += NAME(across)(met);
        }
    } else if (w) {
        for (int64_t j = 0; j < N; j++) EACH_DELTA_LANE(i) G[j * K + i] *= w[j * channel];
    }
    NAME(give_lanes)((real *)s->v_grad + place * s->value + b->d, v_grad, b->n, K);
}

INLINE void NAME(delta_back_of)(const delta_arguments *s, const NAME(delta_block) *b, const int K) {
    const int64_t N = s->key, P = s->value, step = N * K, size = s->chunk;
    memset(b->G, 0, step * sizeof *b->G);
    for (int64_t start = b->asked.end > 0 ? (b->asked.end - 1) / size * size : -1; start >= 0; start -= size) {
        const int64_t end = start + size < b->asked.end ? start + size : b->asked.end;
        const real *kept = NAME(delta_kept)(s, b, start);
        if (!kept) memset(b->S, 0, step * sizeof *b->S);
        for (int64_t j = 0; j < N && kept; j++) memcpy(b->S + j * K, kept + j * delta_wide(s), K * sizeof *b->S);
        for (int64_t t = start; t < end; t++) {
            const int64_t place = NAME(delta_place)(s, b, t), i = t - start;
            NAME(take_lanes)(b->v + i * K, (const real *)s->v + place * P + b->d, b->n, K);
            NAME(delta_step)(s, place, b->S + i * step, b->S + (i + 1) * step, b->u + i * K, b->v + i * K, K);
        }
        for (int64_t t = end - 1; t >= start; t--) {
            const int64_t i = t - start;
            for (int64_t query = first_asked(&b->asked, t); query >= 0; query = next_asked(&b->asked, query))
                NAME(delta_back_query)(s, b, query, b->S + (i + 1) * step, K);
            NAME(delta_back_token)(s, b, NAME(delta_place)(s, b, t), b->S + i * step, b->u + i * K, b->v + i * K, K);
        }
    }
}

APART void NAME(delta_forward)(const delta_arguments *s, const NAME(delta_block) *b, int lanes) {
    FOR_ALL_LANE_COUNTS(delta_forward_of, lanes, s, b)
}
APART void NAME(delta_back)(const delta_arguments *s, const NAME(delta_block) *b, int lanes) {
    FOR_ALL_LANE_COUNTS(delta_back_of, lanes, s, b)
}

static int NAME(delta_piece)(void *context, int64_t piece, void *room) {
    const delta_arguments *s = context;
    const scan_arguments where = {.length = s->length, .asked = s->asked, .positions = s->positions};
    const int64_t most = DELTA_LANES * LANE, size = s->chunk < s->length ? s->chunk : s->length;
    NAME(delta_block) b = {.row = piece / s->heads, .head = piece % s->heads};
    b.S = (void *)(((uintptr_t)room + 63) & ~(uintptr_t)63); /* a lane of the state in one cache line */
    b.G = b.S + (size + 1) * s->key * DELTA_LANES;
    b.u = b.G + s->key * DELTA_LANES;
    b.v = b.u + size * DELTA_LANES;
    if (list_asked(&where, b.row, (int64_t *)(b.v + size * DELTA_LANES), &b.asked)) return OUT_OF_RANGE;
    for (b.d = 0; b.d < s->value; b.d += most) {
        b.n = s->value - b.d < most ? s->value - b.d : most;
        const int lanes = (int)ceil_div(b.n, LANE);
        if (s->o_grad)
            NAME(delta_back)(s, &b, lanes);
        else
            NAME(delta_forward)(s, &b, lanes);
    }
    return DONE;
}

/* Forward, or backward where there is an o_grad; gradients are added to. */
int NAME(delta_scan)(delta_arguments *s) {
    const int64_t size = s->chunk < s->length ? s->chunk : s->length;
    const size_t lanes = ((size + 2) * s->key + 2 * size) * DELTA_LANES;
    const size_t room = 64 + lanes * sizeof(NAME(lane)) + (s->length + s->asked) * sizeof(int64_t);
    return run_pieces(NAME(delta_piece), s, room, s->batch * s->heads, s->threads);
}
