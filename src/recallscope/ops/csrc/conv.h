/* Causal depthwise convolution of looked-up rows, and SiLU: out_t = act(bias + sum_j w_j table[id_{t-width+1+j}]).
 * Before the first token there is nothing. Each piece of work owns W channels and goes through all tokens in order. */

typedef struct {
    real w[BLOCK], sum[BLOCK];
} NAME(tap);

typedef struct {
    int64_t c, n; /* first channel, and how many */
    real bias[BLOCK], bias_sum[BLOCK];
    NAME(tap) *taps;
} NAME(conv_room);

static void NAME(open_conv)(const conv_arguments *a, int64_t piece, NAME(conv_room) *room, void *taps, int W) {
    const int64_t c = piece * W, n = a->channels - c < W ? a->channels - c : W;
    *room = (NAME(conv_room)){.c = c, .n = n, .taps = taps};
    memset(taps, 0, a->width * sizeof(NAME(tap)));
    if (a->bias) memcpy(room->bias, (const real *)a->bias + c, n * sizeof(real));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < a->width; j++) room->taps[j].w[i] = ((const real *)a->weight)[(c + i) * a->width + j];
}

INLINE void NAME(convolve)(const conv_arguments *a, const NAME(conv_room) *room, int64_t row, int64_t t, real *sum,
                           const int W) {
    memcpy(sum, room->bias, W * sizeof(real));
    for (int64_t j = 0; j < a->width; j++) {
        const int64_t id = seen_by_tap(a, row, t, j);
        if (id < 0) continue;
        const real *w = room->taps[j].w;
        real x[BLOCK];
        NAME(take)(x, (const real *)a->table + id * a->table_stride + room->c, room->n, W);
#pragma omp simd
        for (int i = 0; i < W; i++) sum[i] += w[i] * x[i];
    }
}

INLINE void NAME(conv_forward_of)(const conv_arguments *a, NAME(conv_room) *room, const int W) {
    for (int64_t row = 0; row < a->batch; row++)
        for (int64_t t = 0; t < a->length; t++) {
            real v[BLOCK];
            NAME(convolve)(a, room, row, t, v, W);
            if (a->silu) {
#pragma omp simd
                for (int i = 0; i < W; i++) v[i] *= NAME(sigmoid)(v[i]);
            }
            NAME(give)((real *)a->out + (row * a->length + t) * a->channels + room->c, v, room->n, W);
        }
}

INLINE void NAME(conv_backward_of)(const conv_arguments *a, NAME(conv_room) *room, const int W) {
    for (int64_t row = 0; row < a->batch; row++)
        for (int64_t t = 0; t < a->length; t++) {
            real grad[BLOCK];
            NAME(take)(grad, (const real *)a->out_grad + (row * a->length + t) * a->channels + room->c, room->n, W);
            if (a->silu) {
                real v[BLOCK];
                NAME(convolve)(a, room, row, t, v, W);
#pragma omp simd
                for (int i = 0; i < W; i++) {
                    const real s = NAME(sigmoid)(v[i]);
                    grad[i] *= s * (1 + v[i] * (1 - s));
                }
            }
#pragma omp simd
            for (int i = 0; i < W; i++) room->bias_sum[i] += grad[i];
            for (int64_t j = 0; j < a->width; j++) {
                const int64_t id = seen_by_tap(a, row, t, j);
                if (id < 0) continue;
                const int64_t n = room->n == W ? W : room->n;
                const real *restrict x = (const real *)a->table + id * a->table_stride + room->c;
                real *restrict x_grad = (real *)a->table_grad + id * a->channels + room->c;
                NAME(tap) *restrict tap = &room->taps[j];
#pragma omp simd
                for (int64_t i = 0; i < n; i++) {
                    tap->sum[i] += grad[i] * x[i];
                    x_grad[i] += tap->w[i] * grad[i];
                }
            }
        }
}

static int NAME(conv_piece)(void *context, int64_t piece, void *taps) {
    const conv_arguments *a = context;
    const int W = conv_width(a);
    NAME(conv_room) room;
    NAME(open_conv)(a, piece, &room, taps, W);
    FOR_BOTH_WIDTHS(conv_forward_of, a, &room);
    return DONE;
}

static int NAME(conv_back_piece)(void *context, int64_t piece, void *taps) {
    const conv_arguments *a = context;
    const int W = conv_width(a);
    NAME(conv_room) room;
    NAME(open_conv)(a, piece, &room, taps, W);
    FOR_BOTH_WIDTHS(conv_backward_of, a, &room);
    for (int64_t i = 0; i < room.n; i++)
        for (int64_t j = 0; j < a->width; j++)
            ((real *)a->weight_grad)[(room.c + i) * a->width + j] = room.taps[j].sum[i];
    if (a->bias_grad) memcpy((real *)a->bias_grad + room.c, room.bias_sum, room.n * sizeof(real));
    return DONE;
}

int NAME(conv_forward)(conv_arguments *a) {
    if (!ids_in_table(a)) return OUT_OF_RANGE;
    const int64_t pieces = ceil_div(a->channels, conv_width(a));
    return run_pieces(NAME(conv_piece), a, a->width * sizeof(NAME(tap)), pieces, a->threads);
}

int NAME(conv_backward)(conv_arguments *a) {
    if (!ids_in_table(a)) return OUT_OF_RANGE;
    const int64_t pieces = ceil_div(a->channels, conv_width(a));
    return run_pieces(NAME(conv_back_piece), a, a->width * sizeof(NAME(tap)), pieces, a->threads);
}
