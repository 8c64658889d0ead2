/* What is the same in both precisions: how work is cut into pieces, and which tokens are asked for. */

enum { SLAB = 2 * BLOCK /* channels of one piece of work */, MOST_GROUPS = 32 /* of rows, each one piece */ };

/* Which queries stand at token t: a chain first[t], next[...], ended by -1. */
typedef struct {
    const int64_t *positions;
    int64_t *first, *next;
    int64_t end; /* tokens up to the last one asked */
} asked_tokens;

static int64_t list_size(const scan_arguments *s) { return s->length + s->asked; }

static int list_asked(const scan_arguments *s, int64_t row, int64_t *space, asked_tokens *asked) {
    *asked = (asked_tokens){.first = space, .next = space + s->length, .end = s->length};
    if (!s->positions) return s->asked == s->length ? DONE : OUT_OF_RANGE;
    asked->positions = s->positions + row * s->asked;
    asked->end = 0;
    for (int64_t t = 0; t < s->length; t++) asked->first[t] = -1;
    for (int64_t q = s->asked - 1; q >= 0; q--) {
        const int64_t t = asked->positions[q];
        if (t < 0 || t >= s->length) return OUT_OF_RANGE;
        asked->next[q] = asked->first[t];
        asked->first[t] = q;
        if (t >= asked->end) asked->end = t + 1;
    }
    return DONE;
}

static int64_t first_asked(const asked_tokens *a, int64_t t) { return a->positions ? a->first[t] : t; }
static int64_t next_asked(const asked_tokens *a, int64_t q) { return a->positions ? a->next[q] : -1; }
static int64_t padded(int64_t channels) { return ceil_div(channels, HALF) * HALF; }
static int64_t count_groups(const scan_arguments *s) { return s->batch < MOST_GROUPS ? s->batch : MOST_GROUPS; }
static int64_t count_slabs(const scan_arguments *s) { return ceil_div(s->channels, SLAB); }

/* Channels of one piece of a convolution. */
static int conv_width(const conv_arguments *a) { return a->channels > HALF ? BLOCK : HALF; }

/* The row of the table that tap j sees from token t, or -1 before the start. */
static inline int64_t seen_by_tap(const conv_arguments *a, int64_t row, int64_t t, int64_t j) {
    const int64_t tau = t - (a->width - 1) + j;
    return tau < 0 ? -1 : a->ids[row * a->length + tau];
}

static int ids_in_table(const conv_arguments *a) {
    for (int64_t i = 0; i < a->batch * a->length; i++)
        if (a->ids[i] < 0 || a->ids[i] >= a->rows) return 0;
    return 1;
}
