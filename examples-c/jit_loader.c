/*
 * Ranks of one job, all of which want the same kernels, none of which is built yet; and the first builder is killed in
 * the middle of its compile.
 *
 *     jit_loader [-n RANKS] CACHE KERNEL.c...
 *
 * Shows a line for each rank and a summary. Exit status: 0 if every kernel was built once, the killed build was
 * recovered once and every surviving rank computed the right result; 1 if not; 2 for bad arguments.
 */

#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jitlock.h>

#include "kernel_cache.h"

enum { MOST_RANKS = 256, MOST_KERNELS = 16, ELEMENTS = 1000 };

/* What a rank reports, smaller than PIPE_BUF so that reports of many ranks do not mix. */
struct report {
    int rank, kernel;
    enum { EVENT, RESULT, FAILURE } kind;
    enum kernel_event event;
    pid_t pid;
    int right;
    double waited;
    char message[256];
};

struct rank {
    pid_t pid;
    int right, killed;
    double waited;
    char line[320];
};

static const char *cache;
static char **kernels;
static int kernel_count, rank_count = 8, live;
static struct rank ranks[MOST_RANKS];
static int *first_build_began; /* shared by all ranks */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static const char *kernel_name(int kernel) {
    const char *slash = strrchr(kernels[kernel], '/');
    return slash ? slash + 1 : kernels[kernel];
}

/* ---- One rank ------------------------------------------------------------------------------------------------- */

struct watch {
    struct report report;
    int pipe;
};

static void send_report(struct watch *watch) {
    if (write(watch->pipe, &watch->report, sizeof watch->report) != sizeof watch->report)
        _exit(1);
}

static void on_event(void *user, enum kernel_event event, pid_t pid) {
    struct watch *watch = user;
    watch->report.kind = EVENT;
    watch->report.event = event;
    watch->report.pid = pid;
    int doomed = event == KERNEL_BUILDING && !__atomic_exchange_n(first_build_began, 1, __ATOMIC_SEQ_CST);
    send_report(watch);
    while (doomed)
        pause(); /* The compiler goes on; this rank holds still until it is killed. */
}

/* What the kernel of that name should have made of x and y, computed the plain way. */
static int is_right(const char *name, const float *x, const float *before, const float *after) {
    double sum = 0, squares = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        sum += exp(x[i]);
        squares += (double)x[i] * x[i];
    }
    for (int i = 0; i < ELEMENTS; i++) {
        double expected = !strcmp(name, "saxpy.c")     ? x[i] + 2.5 * before[i]
                          : !strcmp(name, "softmax.c") ? exp(x[i]) / sum
                          : !strcmp(name, "rmsnorm.c") ? x[i] / sqrt(squares / ELEMENTS + 1e-6)
                                                       : NAN;
        if (!(fabs(after[i] - expected) <= 1e-4 * (1 + fabs(expected))))
            return 0;
    }
    return 1;
}

static void run_rank(int rank, int pipe) {
    struct watch watch = {.report = {.rank = rank}, .pipe = pipe};
    for (int i = 0; i < kernel_count; i++) {
        float x[ELEMENTS], y[ELEMENTS], before[ELEMENTS];
        for (int j = 0; j < ELEMENTS; j++) {
            x[j] = (float)((j * 37 + rank) % 100) / 50 - 1;
            y[j] = before[j] = (float)j / ELEMENTS;
        }
        watch.report.kernel = (rank + i) % kernel_count;
        double begun = now();
        kernel_function *kernel =
            kernel_load(cache, kernels[watch.report.kernel], JITLOCK_TIMEOUT_DEFAULT, on_event, &watch,
                        watch.report.message, sizeof watch.report.message);
        watch.report.waited = now() - begun;
        watch.report.kind = kernel ? RESULT : FAILURE;
        if (kernel) {
            kernel(x, y, ELEMENTS);
            watch.report.right = is_right(kernel_name(watch.report.kernel), x, before, y);
        }
        send_report(&watch);
    }
    _exit(0);
}

/* ---- The job -------------------------------------------------------------------------------------------------- */

static int builds[MOST_KERNELS], recoveries, failures, killed = -1, killed_kernel;

/* On a terminal each rank has its own line, rewritten; elsewhere each event is a line. */
static void show(int rank, const char *text) {
    static int drawn;
    snprintf(ranks[rank].line, sizeof ranks[rank].line, "rank %-3d pid %-7d %s", rank, (int)ranks[rank].pid, text);
    if (!live) {
        puts(ranks[rank].line);
        return;
    }
    if (drawn)
        printf("\033[%dA", rank_count);
    drawn = 1;
    for (int i = 0; i < rank_count; i++)
        printf("\r\033[K%s\n", ranks[i].line);
}

static void take_event(const struct report *report) {
    static const char *const verbs[] = {"waiting", "recovering", "building", "built", "loaded"};
    char text[256], who[64] = "";
    struct rank *rank = &ranks[report->rank];
    if (report->event == KERNEL_WAITING && report->pid)
        snprintf(who, sizeof who, " for pid %d", (int)report->pid);
    if (report->event == KERNEL_BUILDING && killed < 0) {
        /* The compiler runs, and this is the first one: the rank dies, its compiler lives on. */
        kill(rank->pid, SIGKILL);
        rank->killed = 1;
        killed = report->rank;
        killed_kernel = report->kernel;
        show(report->rank, "killed while building");
        return;
    }
    if (rank->killed)
        return;
    recoveries += report->event == KERNEL_RECOVERING;
    builds[report->kernel] += report->event == KERNEL_BUILT;
    snprintf(text, sizeof text, "%s %s%s", kernel_name(report->kernel), verbs[report->event], who);
    show(report->rank, text);
}

static void take_report(const struct report *report) {
    struct rank *rank = &ranks[report->rank];
    switch (report->kind) {
    case EVENT:
        take_event(report);
        break;
    case RESULT:
        rank->right += report->right;
        rank->waited = report->waited > rank->waited ? report->waited : rank->waited;
        break;
    case FAILURE:
        failures++;
        show(report->rank, report->message);
    }
}

static int summarize(int cold) {
    int right = 0, slowest = 0, survivors = rank_count - (killed >= 0), built_once = 1, built = 0;
    for (int i = 0; i < rank_count; i++) {
        right += !ranks[i].killed && ranks[i].right == kernel_count;
        slowest = ranks[i].waited > ranks[slowest].waited ? i : slowest;
    }
    for (int i = 0; i < kernel_count; i++) {
        built += builds[i];
        built_once &= builds[i] <= 1;
    }
    printf("\n%d kernels: %d built, %d found in the cache%s\n", kernel_count, built, kernel_count - cold,
           built_once && built == cold ? "; none of them built twice" : "; NOT ONCE EACH");
    if (killed >= 0)
        printf("rank %d was killed while it built %s: %d recovery\n", killed, kernel_name(killed_kernel), recoveries);
    printf("results right in %d of %d surviving processes\n", right, survivors);
    printf("the last one had its kernel after %.3f s (rank %d)\n", ranks[slowest].waited, slowest);
    return built_once && built == cold && recoveries == (cold > 0) && failures == 0 && right == survivors ? 0 : 1;
}

int main(int count, char **arguments) {
    for (int option; (option = getopt(count, arguments, "n:")) != -1;)
        if (option != 'n' || (rank_count = atoi(optarg)) < 2 || rank_count > MOST_RANKS)
            return fprintf(stderr, "usage: jit_loader [-n 2..%d] CACHE KERNEL.c...\n", MOST_RANKS), 2;
    kernel_count = count - optind - 1;
    if (kernel_count < 1 || kernel_count > MOST_KERNELS)
        return fprintf(stderr, "usage: jit_loader [-n 2..%d] CACHE KERNEL.c...\n", MOST_RANKS), 2;
    cache = arguments[optind];
    kernels = arguments + optind + 1;
    live = isatty(STDOUT_FILENO) && rank_count <= 64;

    int cold = 0;
    for (int i = 0; i < kernel_count; i++)
        cold += !kernel_is_built(cache, kernels[i]);

    int reports[2];
    first_build_began = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (first_build_began == MAP_FAILED || pipe(reports) != 0)
        return perror("jit_loader"), 1;
    fflush(stdout);
    for (int i = 0; i < rank_count; i++) {
        ranks[i].pid = fork();
        if (ranks[i].pid < 0)
            return perror("fork"), 1;
        if (ranks[i].pid == 0) {
            close(reports[0]);
            run_rank(i, reports[1]);
        }
    }
    close(reports[1]);
    struct report report;
    while (read(reports[0], &report, sizeof report) == sizeof report)
        take_report(&report);
    for (int i = 0; i < rank_count; i++) {
        int status;
        waitpid(ranks[i].pid, &status, 0);
        failures += status != 0 && !ranks[i].killed;
    }
    return summarize(cold);
}
