/* The linear recall circuit between its table and its head: look up, convolve, write, match, read, and all of it
 * backwards. One sequence at a time, on one thread: the batches are small, and starting threads would cost more.
 *
 * A row of the table holds what a token adds to key (N), value (D) and query (N). Sizes are padded to whole tiles
 * with zeros, so that the matrix product below has no rests. Included once per precision.
 */
#ifndef RECALL_TILE
#define RECALL_TILE 16
static int64_t whole_tiles(int64_t n) { return ceil_div(n, RECALL_TILE) * RECALL_TILE; }
#endif

/* A row of a tile, as one value: a compiler keeps it in vector registers, which it would not do with an array. */
typedef real NAME(lane) __attribute__((vector_size(RECALL_TILE * sizeof(real)), aligned(sizeof(real)), may_alias));

/* C = A B, A given by the steps between its rows and columns; n a multiple of 16, B and C dense in their rows. */
static void NAME(product)(int64_t m, int64_t n, int64_t k, const real *A, int64_t row, int64_t column, const real *B,
                          int64_t B_row, real *C, int64_t C_row) {
    for (int64_t j = 0; j < n; j += RECALL_TILE) {
        int64_t i = 0;
        for (; i + 8 <= m; i += 8) {
            NAME(lane) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
            const real *a = A + i * row;
            for (int64_t p = 0; p < k; p++, a += column) {
                const NAME(lane) b = *(const NAME(lane) *)(B + p * B_row + j);
                s0 += a[0] * b, s1 += a[row] * b, s2 += a[2 * row] * b, s3 += a[3 * row] * b;
                s4 += a[4 * row] * b, s5 += a[5 * row] * b, s6 += a[6 * row] * b, s7 += a[7 * row] * b;
            }
            real *c = C + i * C_row + j;
            *(NAME(lane) *)c = s0, *(NAME(lane) *)(c + C_row) = s1, *(NAME(lane) *)(c + 2 * C_row) = s2;
            *(NAME(lane) *)(c + 3 * C_row) = s3, *(NAME(lane) *)(c + 4 * C_row) = s4, *(NAME(lane) *)(c + 5 * C_row) = s5;
            *(NAME(lane) *)(c + 6 * C_row) = s6, *(NAME(lane) *)(c + 7 * C_row) = s7;
        }
        for (; i < m; i++) {
            NAME(lane) sum = {0};
            for (int64_t p = 0; p < k; p++) sum += A[i * row + p * column] * *(const NAME(lane) *)(B + p * B_row + j);
            *(NAME(lane) *)(C + i * C_row + j) = sum;
        }
    }
}

typedef struct {
    int64_t L, Q, N, D;                      /* padded: L, N and D to whole tiles */
    real *B, *B_turned, *u, *u_turned, *C;   /* L N; N L; L D; D L; Q N */
    real *match, *match_grad;                /* Q L */
    real *y, *B_grad, *u_grad, *C_grad;      /* Q D; L N; L D; Q N */
    void *space;
} NAME(recall_room);

static int NAME(recall_open)(const recall_arguments *s, NAME(recall_room) *room) {
    const int64_t L = whole_tiles(s->length), N = whole_tiles(s->state), D = whole_tiles(s->value), Q = s->asked;
    const int64_t total = 3 * L * N + 3 * L * D + 2 * Q * N + 2 * Q * L + Q * D;
    real *next = calloc(total, sizeof(real));
    if (!next) return OUT_OF_MEMORY;
    *room = (NAME(recall_room)){.L = L, .Q = Q, .N = N, .D = D, .space = next};
    real **parts[] = {&room->B, &room->B_turned, &room->B_grad, &room->u, &room->u_turned, &room->u_grad,
                      &room->C, &room->C_grad, &room->match, &room->match_grad, &room->y};
    const int64_t sizes[] = {L * N, L * N, L * N, L * D, L * D, L * D, Q * N, Q * N, Q * L, Q * L, Q * D};
    for (int i = 0; i < 11; i++) {
        *parts[i] = next;
        next += sizes[i];
    }
    return DONE;
}

/* The row of the table that tap j of token t reads; NULL before the start of the sequence. */
static inline int64_t NAME(recall_row)(const recall_arguments *s, const int64_t *ids, int64_t t, int64_t tap) {
    const int64_t from = t - (s->width - 1 - tap);
    return from < 0 ? -1 : tap * s->rows + ids[from];
}

/* Keys and values of every token, queries where asked, and how well they match: Q L, nothing from the future. */
static int NAME(recall_match)(const recall_arguments *s, int64_t sequence, NAME(recall_room) *room) {
    const int64_t N = s->state, D = s->value, all = 2 * N + D;
    const int64_t *ids = s->ids + sequence * s->length, *positions = s->positions + sequence * s->asked;
    for (int64_t t = 0; t < s->length; t++) {
        if (ids[t] < 0 || ids[t] >= s->rows) return OUT_OF_RANGE;
        real *B = room->B + t * room->N, *u = room->u + t * room->D;
        memset(B, 0, N * sizeof(real));
        memset(u, 0, D * sizeof(real));
        for (int64_t tap = 0; tap < s->width; tap++) {
            const int64_t row = NAME(recall_row)(s, ids, t, tap);
            if (row < 0) continue;
            const real *entry = (const real *)s->table + row * all;
            for (int64_t n = 0; n < N; n++) B[n] += entry[n];
            for (int64_t d = 0; d < D; d++) u[d] += entry[N + d];
        }
        for (int64_t n = 0; n < N; n++) room->B_turned[n * room->L + t] = B[n];
        for (int64_t d = 0; d < D; d++) room->u_turned[d * room->L + t] = u[d];
    }
    for (int64_t q = 0; q < s->asked; q++) {
        if (positions[q] < 0 || positions[q] >= s->length) return OUT_OF_RANGE;
        real *C = room->C + q * room->N;
        memset(C, 0, N * sizeof(real));
        for (int64_t tap = 0; tap < s->width; tap++) {
            const int64_t row = NAME(recall_row)(s, ids, positions[q], tap);
            if (row < 0) continue;
            const real *entry = (const real *)s->table + row * all + N + D;
            for (int64_t n = 0; n < N; n++) C[n] += entry[n];
        }
    }
    NAME(product)(s->asked, room->L, N, room->C, room->N, 1, room->B_turned, room->L, room->match, room->L);
    for (int64_t q = 0; q < s->asked; q++)
        memset(room->match + q * room->L + positions[q] + 1, 0, (room->L - positions[q] - 1) * sizeof(real));
    return DONE;
}

int NAME(recall_forward)(const recall_arguments *s) {
    NAME(recall_room) room;
    int fault = NAME(recall_open)(s, &room);
    for (int64_t sequence = 0; !fault && sequence < s->batch; sequence++) {
        fault = NAME(recall_match)(s, sequence, &room);
        if (fault) break;
        NAME(product)(s->asked, room.D, s->length, room.match, room.L, 1, room.u, room.D, room.y, room.D);
        real *y = (real *)s->y + sequence * s->asked * s->value;
        for (int64_t q = 0; q < s->asked; q++) memcpy(y + q * s->value, room.y + q * room.D, s->value * sizeof(real));
    }
    if (fault != OUT_OF_MEMORY) free(room.space);
    return fault;
}

/* Adds to table_grad. */
int NAME(recall_backward)(const recall_arguments *s) {
    NAME(recall_room) room;
    int fault = NAME(recall_open)(s, &room);
    const int64_t N = s->state, D = s->value, all = 2 * N + D, L = s->length, Q = s->asked;
    for (int64_t sequence = 0; !fault && sequence < s->batch; sequence++) {
        fault = NAME(recall_match)(s, sequence, &room);
        if (fault) break;
        const int64_t *ids = s->ids + sequence * L, *positions = s->positions + sequence * Q;
        const real *y_grad = (const real *)s->y_grad + sequence * Q * D;
        for (int64_t q = 0; q < Q; q++) memcpy(room.y + q * room.D, y_grad + q * D, D * sizeof(real));
        NAME(product)(Q, room.L, D, room.y, room.D, 1, room.u_turned, room.L, room.match_grad, room.L);
        for (int64_t q = 0; q < Q; q++)
            memset(room.match_grad + q * room.L + positions[q] + 1, 0, (room.L - positions[q] - 1) * sizeof(real));
        NAME(product)(L, room.D, Q, room.match, 1, room.L, room.y, room.D, room.u_grad, room.D);
        NAME(product)(L, room.N, Q, room.match_grad, 1, room.L, room.C, room.N, room.B_grad, room.N);
        NAME(product)(Q, room.N, L, room.match_grad, room.L, 1, room.B, room.N, room.C_grad, room.N);
        for (int64_t t = 0; t < L; t++)
            for (int64_t tap = 0; tap < s->width; tap++) {
                const int64_t row = NAME(recall_row)(s, ids, t, tap);
                if (row < 0) continue;
                real *entry = (real *)s->table_grad + row * all;
                for (int64_t n = 0; n < N; n++) entry[n] += room.B_grad[t * room.N + n];
                for (int64_t d = 0; d < D; d++) entry[N + d] += room.u_grad[t * room.D + d];
            }
        for (int64_t q = 0; q < Q; q++)
            for (int64_t tap = 0; tap < s->width; tap++) {
                const int64_t row = NAME(recall_row)(s, ids, positions[q], tap);
                if (row < 0) continue;
                real *entry = (real *)s->table_grad + row * all + N + D;
                for (int64_t n = 0; n < N; n++) entry[n] += room.C_grad[q * room.N + n];
            }
    }
    if (fault != OUT_OF_MEMORY) free(room.space);
    return fault;
}
