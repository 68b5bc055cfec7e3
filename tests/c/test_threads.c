/* The pool: every task once, by workers within their number; several callers; nested calls; forked children. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "nets.h"
#include "node.h"

enum { TASKS = 1000 };

typedef struct { atomic_int done[TASKS]; atomic_int outside, nested; int threads; } record;

static void count(void *context, int index, int worker)
{
    record *r = context;
    atomic_fetch_add(&r->done[index], 1);
    if (worker < 0 || worker >= r->threads)
        atomic_fetch_add(&r->outside, 1);
}

static void each_task_runs_once(void)
{
    static record r;
    for (int round = 0; round < 40; round++)
        for (int threads = 1; threads <= 9; threads += round % 3 + 1) {
            int tasks = round % 7 == 0 ? 0 : 1 + (round * 31 + threads * 7) % TASKS;
            memset(&r, 0, sizeof r);
            r.threads = threads;
            ga_parallel(threads, tasks, count, &r);
            for (int i = 0; i < TASKS; i++)
                CHECK_EQ(atomic_load(&r.done[i]), i < tasks);
            CHECK_EQ(atomic_load(&r.outside), 0);
        }
}

static void inner(void *context, int index, int worker)
{
    (void)index;
    atomic_fetch_add((atomic_int *)context, worker == 0 ? 1 : 1000);     /* the pool is taken: the caller works alone, as number 0 */
}

static void outer(void *context, int index, int worker)
{
    record *r = context;
    (void)worker;
    atomic_fetch_add(&r->done[index], 1);
    ga_parallel(4, 10, inner, &r->nested);
}

static void tasks_may_have_tasks(void)
{
    static record r;
    memset(&r, 0, sizeof r);
    ga_parallel(4, 50, outer, &r);
    CHECK_EQ(atomic_load(&r.nested), 500);
}

/* Threads return NULL, or what went wrong: the checks are counted by the main thread alone. */
static void *caller(void *argument)
{
    record *r = argument;
    for (int round = 0; round < 100; round++) {
        memset(r, 0, sizeof *r);
        r->threads = 3;
        ga_parallel(3, 37, count, r);
        for (int i = 0; i < TASKS; i++)
            if (atomic_load(&r->done[i]) != (i < 37) || atomic_load(&r->outside))
                return "a task did not run exactly once";
    }
    return NULL;
}

static void joined(pthread_t thread)
{
    void *problem;
    CHECK_EQ(pthread_join(thread, &problem), 0);
    CHECK(problem == NULL);
}

static void several_callers(void)
{
    static record r[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, caller, &r[i]), 0);
    for (int i = 0; i < 4; i++)
        joined(thread[i]);
}

/* A network wide enough that its products are divided, with its data. */
enum { WIDTH = 160, SAMPLES = 96, LAYERS = 2, UPDATES = 2 };
typedef struct { run r; float *x, *y; } trainee;

static trainee make(void)
{
    trainee t = {.r = {.dtype = GA_FLOAT32, .real = 4}, .x = block(SAMPLES * WIDTH * 4), .y = block(SAMPLES * WIDTH * 4)};
    ga_window_options options = plain();
    int v, n;
    CHECK_EQ(ga_net_create(GA_FLOAT32, GA_NATIVE, 1, &t.r.net), GA_OK);
    CHECK_EQ(ga_net_add_input(t.r.net, "x", &(ga_shape){1, {WIDTH}}, 0, 0, &v), GA_OK);
    for (int i = 0; i < LAYERS; i++) {
        CHECK_EQ(ga_net_add_node(t.r.net, "linear", "fc", &(ga_option){"out_features", WIDTH}, 1, &v, 1, NULL, &n, &v), GA_OK);
        CHECK_EQ(ga_net_add_node(t.r.net, "gelu", "gelu", NULL, 0, &v, 1, NULL, &n, &v), GA_OK);
    }
    CHECK_EQ(ga_net_add_node(t.r.net, "mse_loss", "loss", NULL, 0, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_plan(t.r.net, SAMPLES, &(ga_plan_options){0}), GA_OK);
    bind_all(&t.r, SAMPLES);
    add_optimizer(&t.r, GA_ADAM);
    add_window(&t.r, &options);
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        t.x[i] = (float)noise((uint64_t)i), t.y[i] = (float)noise((uint64_t)i + 99999);
    return t;
}

static ga_status update(trainee *t, int64_t piece)
{
    ga_batch b = {.samples = SAMPLES, .input = {t->x}, .target = t->y};
    ga_update u;
    return ga_window_update(t->r.window, &b, piece, NULL, NULL, &u);
}

static void drop(trainee *t)
{
    free(t->x);
    free(t->y);
    give_back(&t->r);
}

enum { COUNT = LAYERS * (WIDTH * WIDTH + WIDTH) * 4, NETS = 3 };
static trainee net[NETS], other;                             /* reachable, also in a child where their threads are not */
static char start[COUNT], expected[COUNT];

static int trains_as_expected(trainee *t)
{
    memcpy(t->r.memory[GA_PARAMETERS], start, COUNT);
    ga_net_touch(t->r.net);
    for (int i = 0; i < 2; i++)
        memset(t->r.state[i], 0, COUNT);
    *ga_optimizer_clock(t->r.optimizer) = 0;
    for (int i = 0; i < UPDATES; i++)
        if (update(t, SAMPLES - i))
            return 0;
    return !memcmp(t->r.memory[GA_PARAMETERS], expected, COUNT);
}

static void *trainer(void *argument)
{
    for (int i = 0; i < 3; i++)
        if (!trains_as_expected(argument))
            return "other bits";
    return NULL;
}

static void networks_in_several_threads(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        CHECK_EQ(ga_set_threads(threads), GA_OK);
        pthread_t thread[NETS];
        for (int i = 0; i < NETS; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, trainer, &net[i]), 0);
        for (int i = 0; i < NETS; i++)
            joined(thread[i]);
    }
}

/* Whether a child, and its children, train as their parent did, within two minutes. */
static int child(int depth)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120);
        _exit(!trains_as_expected(&net[0]) || (depth && !child(depth - 1)));
    }
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static atomic_int stop;
static void *busy(void *argument)
{
    (void)argument;
    while (!atomic_load(&stop))
        if (update(&other, SAMPLES))
            return "an update failed";
    return NULL;
}

static void forks(void)
{
    CHECK_EQ(ga_set_threads(2), GA_OK);
    for (int depth = 0; depth < 3; depth++)
        CHECK(child(depth));
    CHECK(trains_as_expected(&net[0]));
    pthread_t thread;                                        /* fork while another thread has the pool */
    CHECK_EQ(pthread_create(&thread, NULL, busy, NULL), 0);
    for (int i = 0; i < 3; i++) {
        usleep(2000);
        CHECK(child(0));
    }
    atomic_store(&stop, 1);
    joined(thread);
    CHECK(trains_as_expected(&net[0]));
}

int main(void)
{
    each_task_runs_once();
    tasks_may_have_tasks();
    several_callers();

    CHECK_EQ(ga_set_threads(1), GA_OK);
    for (int i = 0; i < NETS; i++)
        net[i] = make();
    other = make();
    memcpy(start, net[0].r.memory[GA_PARAMETERS], COUNT);
    for (int i = 0; i < UPDATES; i++)
        CHECK_EQ(update(&net[0], SAMPLES - i), GA_OK);
    memcpy(expected, net[0].r.memory[GA_PARAMETERS], COUNT);
    CHECK(memcmp(start, expected, COUNT) != 0);
    networks_in_several_threads();
    forks();
    for (int i = 0; i < NETS; i++)
        drop(&net[i]);
    drop(&other);
    return 0;
}
