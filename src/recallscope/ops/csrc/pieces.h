/* Independent pieces of work, handed to a number of threads that live for one call: nothing to shut down, and
 * nothing to go wrong after a fork. */
#include <pthread.h>
#include <stdatomic.h>

/* States that fade pass through numbers below 1e-38, which most CPUs are slow with: they are zero while we work. */
#if defined(__SSE__)
#include <xmmintrin.h>
static unsigned int flush_tiny(void) {
    const unsigned int before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zero */
    return before;
}
static void restore_tiny(unsigned int before) { _mm_setcsr(before); }
#else
static unsigned int flush_tiny(void) { return 0; }
static void restore_tiny(unsigned int before) { (void)before; }
#endif

enum { MOST_THREADS = 256 };

/* room: scratch space of the thread that runs the piece, not cleared */
typedef int (*piece_function)(void *context, int64_t piece, void *room);

typedef struct {
    piece_function run;
    void *context;
    int64_t count;
    size_t room;
    atomic_llong next;
    atomic_int fault;
} piece_queue;

static void *work_through(void *argument) {
    piece_queue *queue = argument;
    const unsigned int before = flush_tiny();
    void *room = malloc(queue->room + 1);
    if (!room) atomic_store(&queue->fault, OUT_OF_MEMORY);
    for (;;) {
        const int64_t piece = atomic_fetch_add(&queue->next, 1);
        if (piece >= queue->count || atomic_load(&queue->fault)) break;
        const int fault = queue->run(queue->context, piece, room);
        if (fault) atomic_store(&queue->fault, fault);
    }
    free(room);
    restore_tiny(before);
    return NULL;
}

static int run_pieces(piece_function run, void *context, size_t room, int64_t count, int64_t threads) {
    piece_queue queue = {.run = run, .context = context, .count = count, .room = room};
    atomic_init(&queue.next, 0);
    atomic_init(&queue.fault, DONE);
    if (threads > count) threads = count;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    pthread_t helpers[MOST_THREADS];
    int64_t started = 0;
    while (started + 1 < threads && pthread_create(&helpers[started], NULL, work_through, &queue) == 0) started++;
    work_through(&queue); /* the caller works too: if no thread can be had, it does everything */
    for (int64_t i = 0; i < started; i++) pthread_join(helpers[i], NULL);
    return atomic_load(&queue.fault);
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
