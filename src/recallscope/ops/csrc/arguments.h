/* What Python hands over; the Python structures of ops have the same fields in the same order. Strides count numbers from
 * one token to the next, sequences follow each other without gaps, and the last axis is dense. Optional arrays
 * may be NULL. In comments: batch, L tokens, D channels, N state entries, Q tokens asked per sequence. */

typedef struct {
    int64_t batch, length, channels, state, asked, chunk, softplus, threads;
    int64_t x_stride, delta_stride, B_stride, C_stride, x_grad_stride, delta_grad_stride, B_grad_stride, C_grad_stride;
    const void *x, *delta, *A, *B, *C; /* batch L D; batch L D; D N; batch L N; batch Q N */
    const void *skip, *bias;           /* D, optional: the skip weight; what is added to delta before softplus */
    const int64_t *positions;          /* batch Q, optional: without it Q = L and every token is asked */
    void *y;                           /* batch Q D */
    void *states;                      /* batch (L-1)/chunk N padded D, optional: states before chunks 1, 2, .. */
    const void *y_grad;                /* batch Q D */
    void *x_grad, *delta_grad, *A_grad, *B_grad, *C_grad, *skip_grad, *bias_grad; /* as x .. bias */
} scan_arguments;

typedef struct {
    int64_t batch, length, channels, width, rows, silu, threads;
    int64_t table_stride;
    const int64_t *ids;               /* batch L: which row of the table a token is */
    const void *table, *weight, *bias; /* rows D; D width; D, optional */
    void *out;                        /* batch L D */
    const void *out_grad;             /* batch L D */
    void *table_grad, *weight_grad, *bias_grad; /* rows D, added to; D width; D */
} conv_arguments;

typedef struct {
    int64_t rows, columns;
    double smoothing;
    const int64_t *answers;       /* rows */
    void *logits;                 /* rows columns: becomes the gradient by the logits, but for the e/V that all share */
    void *right, *highest, *mass; /* rows: logit of the answer, largest logit, sum of exp(logit - largest) */
} softmax_arguments;

typedef struct {
    int64_t batch, length, asked, width, rows, state, value, heads, B_heads, x_heads, C_heads, threads;
    int64_t list_from;        /* for the kernel's own use */
    const int64_t *ids;       /* batch L, optional: which row a token is; without it rows are tokens in order */
    const int64_t *positions; /* batch Q, optional: without it Q = L and every token is asked */
    const void *table;        /* rows width R: what a token adds, by tap, to keys, values and queries of the heads */
    void *y;                  /* batch Q heads P */
    const void *y_grad;       /* as y */
    void *table_grad;         /* as table, added to; NULL on the way forward */
} table_scan_arguments;

typedef struct {
    int64_t batch, length, asked, heads, key, value, decays, chunk, threads; /* decays: 0, 1 or N numbers of w a head */
    const int64_t *positions;            /* batch Q, optional: without it Q = L and every token is asked */
    const void *q, *k, *v, *w, *a, *b;   /* batch Q M N; batch L M N; batch L M P; batch L M decays; a, b as k */
    void *o;                             /* batch Q M P */
    void *states;                        /* batch M (L-1)/chunk N whole lanes, optional: before chunks 1, 2, .. */
    const void *o_grad;                  /* as o; NULL on the way forward */
    void *q_grad, *k_grad, *v_grad, *w_grad, *a_grad, *b_grad; /* as q .. b, added to */
} delta_arguments;

typedef struct {
    int64_t groups, size, levels;
    const void *x, *chance; /* groups size; as x, optional: uniform numbers, for stochastic rounding */
    void *out;              /* as x */
} round_arguments;
