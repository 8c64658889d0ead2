/* Causal depthwise convolution of looked-up rows, and SiLU: out_t = act(bias + sum_j w_j table[id_{t-width+1+j}]).
 * Rows before the first token are zero. Each piece of work owns BLOCK channels and goes through all tokens in order. */

typedef struct {
    real w[BLOCK], sum[BLOCK];
} NAME(tap);

typedef struct {
    int64_t c, n;
    real bias[BLOCK], bias_sum[BLOCK];
    NAME(tap) * taps;
} NAME(conv_room);

static int NAME(open_conv)(const conv_arguments *a, int64_t piece, NAME(conv_room) * room) {
    const int64_t c = piece * BLOCK, n = a->channels - c < BLOCK ? a->channels - c : BLOCK;
    *room = (NAME(conv_room)){.c = c, .n = n, .taps = calloc(a->width, sizeof(NAME(tap)))};
    if (!room->taps) return OUT_OF_MEMORY;
    if (a->bias) memcpy(room->bias, (const real *)a->bias + c, n * sizeof(real));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < a->width; j++) room->taps[j].w[i] = ((const real *)a->weight)[(c + i) * a->width + j];
    return DONE;
}

/* The row that tap j sees from token t, or NULL before the start; the padded copy goes to space. */
static inline int64_t NAME(seen)(const conv_arguments *a, int64_t row, int64_t t, int64_t j) {
    const int64_t tau = t - (a->width - 1) + j;
    return tau < 0 ? -1 : a->ids[row * a->length + tau];
}

static inline void NAME(convolve)(const conv_arguments *a, const NAME(conv_room) * room, int64_t row, int64_t t, real *sum) {
    memcpy(sum, room->bias, sizeof room->bias);
    for (int64_t j = 0; j < a->width; j++) {
        const int64_t id = NAME(seen)(a, row, t, j);
        if (id < 0) continue;
        real x[BLOCK];
        NAME(take)(x, (const real *)a->table + id * a->table_stride + room->c, room->n);
        const real *w = room->taps[j].w;
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) sum[i] += w[i] * x[i];
    }
}

static int NAME(conv_piece)(void *context, int64_t piece) {
    const conv_arguments *a = context;
    NAME(conv_room) room;
    if (NAME(open_conv)(a, piece, &room)) return OUT_OF_MEMORY;
    for (int64_t row = 0; row < a->batch; row++)
        for (int64_t t = 0; t < a->length; t++) {
            real v[BLOCK];
            NAME(convolve)(a, &room, row, t, v);
            if (a->silu) {
#pragma omp simd
                for (int i = 0; i < BLOCK; i++) v[i] *= NAME(sigmoid)(v[i]);
            }
            memcpy((real *)a->out + (row * a->length + t) * a->channels + room.c, v, room.n * sizeof(real));
        }
    free(room.taps);
    return DONE;
}

static int NAME(conv_back_piece)(void *context, int64_t piece) {
    const conv_arguments *a = context;
    NAME(conv_room) room;
    if (NAME(open_conv)(a, piece, &room)) return OUT_OF_MEMORY;
    for (int64_t row = 0; row < a->batch; row++)
        for (int64_t t = 0; t < a->length; t++) {
            real v[BLOCK], grad[BLOCK];
            NAME(take)(grad, (const real *)a->out_grad + (row * a->length + t) * a->channels + room.c, room.n);
            if (a->silu) {
                NAME(convolve)(a, &room, row, t, v);
#pragma omp simd
                for (int i = 0; i < BLOCK; i++) {
                    const real s = NAME(sigmoid)(v[i]);
                    grad[i] *= s * (1 + v[i] * (1 - s));
                }
            }
#pragma omp simd
            for (int i = 0; i < BLOCK; i++) room.bias_sum[i] += grad[i];
            for (int64_t j = 0; j < a->width; j++) {
                const int64_t id = NAME(seen)(a, row, t, j);
                if (id < 0) continue;
                const real *x = (const real *)a->table + id * a->table_stride + room.c;
                real *x_grad = (real *)a->table_grad + id * a->channels + room.c;
                NAME(tap) *tap = &room.taps[j];
#pragma omp simd
                for (int64_t i = 0; i < room.n; i++) {
                    tap->sum[i] += grad[i] * x[i];
                    x_grad[i] += tap->w[i] * grad[i];
                }
            }
        }
    for (int64_t i = 0; i < room.n; i++)
        for (int64_t j = 0; j < a->width; j++)
            ((real *)a->weight_grad)[(room.c + i) * a->width + j] = room.taps[j].sum[i];
    if (a->bias_grad) memcpy((real *)a->bias_grad + room.c, room.bias_sum, room.n * sizeof(real));
    free(room.taps);
    return DONE;
}

static int NAME(ids_in_table)(const conv_arguments *a) {
    for (int64_t i = 0; i < a->batch * a->length; i++)
        if (a->ids[i] < 0 || a->ids[i] >= a->rows) return OUT_OF_RANGE;
    return DONE;
}

int NAME(conv_forward)(conv_arguments *a) {
    if (NAME(ids_in_table)(a)) return OUT_OF_RANGE;
    return run_pieces(NAME(conv_piece), a, ceil_div(a->channels, BLOCK), a->threads);
}

int NAME(conv_backward)(conv_arguments *a) {
    if (NAME(ids_in_table)(a)) return OUT_OF_RANGE;
    return run_pieces(NAME(conv_back_piece), a, ceil_div(a->channels, BLOCK), a->threads);
}
