#include "common/cli/progress.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/cli/human.h"
#include "common/cli/terminal.h"

enum { DRAWINGS_PER_SECOND = 5, MAX_WIDTH = 200 };

static const int64_t ns_per_s = 1000000000;

struct bd_progress {
    bd_progress_config config;  // `out` is never NULL here
    atomic_uint_least64_t done;
    int64_t start_ns;
    pthread_t thread;
    int ended_fd;  // an eventfd: the drawing thread sleeps on it and ends when it is written
};

// ---- The line ----------------------------------------------------------------------

// Appends a part, after two spaces, if it fits whole.
static void append_part(char *line, size_t size, const char *part)
{
    const size_t length = strlen(line);
    const char *gap = length ? "  " : "";
    if (length + strlen(gap) + strlen(part) < size)
        snprintf(line + length, size - length, "%s%s", gap, part);
}

static bool counts_bytes(const bd_progress_config *config)
{
    return strcmp(config->unit, "bytes") == 0;
}

static bd_formatted format_amount(const bd_progress_config *config, uint64_t n)
{
    return counts_bytes(config) ? bd_format_bytes(n) : bd_format_count(n);
}

static void append_amount(const bd_progress_config *config, uint64_t done, char *line,
                          size_t size)
{
    char part[96];
    if (config->total) {
        const double share = (double)done / (double)config->total;
        snprintf(part, sizeof part, "%d%%", share < 1 ? (int)(share * 100) : 100);
        append_part(line, size, part);
    }
    snprintf(part, sizeof part, "%s%s%s%s%.24s", format_amount(config, done).text,
             config->total ? " of " : "",
             config->total ? format_amount(config, config->total).text : "",
             counts_bytes(config) ? "" : " ", counts_bytes(config) ? "" : config->unit);
    append_part(line, size, part);
}

static void append_rate(const bd_progress_config *config, uint64_t done, int64_t elapsed_ns,
                        char *line, size_t size)
{
    if (done <= config->already || elapsed_ns <= 0)
        return;
    char part[48];
    const double per_s =
        (double)(done - config->already) * (double)ns_per_s / (double)elapsed_ns;
    if (per_s < 10 && !counts_bytes(config))
        snprintf(part, sizeof part, "%.2f/s", per_s);
    else
        snprintf(part, sizeof part, "%s/s", format_amount(config, (uint64_t)per_s).text);
    append_part(line, size, part);

    const double left_s = done < config->total ? (double)(config->total - done) / per_s : 0;
    if (left_s > 0 && left_s < 1e9) {  // thirty years are not worth a forecast
        const int64_t left_ns = (int64_t)ceil(left_s) * ns_per_s;
        snprintf(part, sizeof part, "%s left", bd_format_duration(left_ns).text);
        append_part(line, size, part);
    }
}

void bd_progress_line(const bd_progress_config *config, uint64_t done, int64_t elapsed_ns,
                      char *line, size_t size)
{
    line[0] = '\0';
    append_part(line, size, config->label);
    append_amount(config, done, line, size);
    append_rate(config, done, elapsed_ns, line, size);
}

// ---- The thread that draws ---------------------------------------------------------

static void draw(bd_progress *progress)
{
    FILE *out = progress->config.out;
    char line[MAX_WIDTH];
    const int width = bd_terminal_width(out);
    bd_progress_line(&progress->config, atomic_load(&progress->done),
                     bd_now_ns() - progress->start_ns, line,
                     width < MAX_WIDTH ? (size_t)width : MAX_WIDTH);
    fprintf(out, "\r%s\033[K", line);  // over the line before, and erase what is left of it
    fflush(out);
}

static void *draw_until_ended(void *argument)
{
    bd_progress *progress = argument;
    struct pollfd ended = {.fd = progress->ended_fd, .events = POLLIN};
    bool drawn = false;
    while (poll(&ended, 1, 1000 / DRAWINGS_PER_SECOND) == 0) {
        draw(progress);
        drawn = true;
    }
    if (drawn) {
        fputs("\r\033[K", progress->config.out);
        fflush(progress->config.out);
    }
    return NULL;
}

// Signals are for the program's own threads, so the new thread starts with all of them blocked.
static int start_drawing(bd_progress *progress)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&progress->thread, NULL, draw_until_ended, progress);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

bd_progress *bd_progress_new(const bd_progress_config *config)
{
    if (config->quiet || (!config->out && !bd_terminal_has_escapes(stderr)))
        return NULL;
    bd_progress *progress = calloc(1, sizeof *progress);
    if (!progress)
        return NULL;
    progress->config = *config;
    if (!progress->config.out)
        progress->config.out = stderr;
    atomic_init(&progress->done, config->already);
    progress->start_ns = bd_now_ns();
    progress->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (progress->ended_fd >= 0 && start_drawing(progress) == 0)
        return progress;

    if (progress->ended_fd >= 0)
        close(progress->ended_fd);
    free(progress);
    return NULL;
}

void bd_progress_add(bd_progress *progress, uint64_t n)
{
    if (progress)
        atomic_fetch_add_explicit(&progress->done, n, memory_order_relaxed);
}

void bd_progress_free(bd_progress *progress)
{
    if (!progress)
        return;
    eventfd_write(progress->ended_fd, 1);
    pthread_join(progress->thread, NULL);
    close(progress->ended_fd);
    free(progress);
}
