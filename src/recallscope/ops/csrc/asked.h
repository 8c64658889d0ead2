/* How a scan is cut into pieces, and which of its tokens are asked for: the same in both precisions. */

enum { SLAB = 4 * BLOCK /* channels of one piece of work */, MOST_GROUPS = 32 /* of rows, each one piece */ };

/* Which queries stand at token t: a chain first[t], next[...], ended by -1. */
typedef struct {
    const int64_t *positions;
    int64_t *first, *next;
    int64_t end; /* tokens up to the last one asked */
} asked_tokens;

static int list_asked(const scan_arguments *s, int64_t row, int64_t *space, asked_tokens *asked) {
    *asked = (asked_tokens){.first = space, .next = space + s->length, .end = s->length};
    if (!s->positions) return DONE;
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
static int64_t padded(int64_t channels) { return ceil_div(channels, BLOCK) * BLOCK; }
static int64_t count_groups(const scan_arguments *s) { return s->batch < MOST_GROUPS ? s->batch : MOST_GROUPS; }
static int64_t count_slabs(const scan_arguments *s) { return ceil_div(s->channels, SLAB); }
