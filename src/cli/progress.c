/* progress.c - see progress.h. */
#include "cli/clock.h"
#include "cli/progress.h"
#include "cli/stops.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR = 24 };

static const int64_t second_ns = 1000000000;

void clv_progress_begin(clv_progress *p, const char *what, int64_t total)
{
    *p = (clv_progress){.what = what, .total = total > 0 ? total : 1, .terminal = isatty(STDERR_FILENO) != 0};
    p->start_ns = clv_clock_ns();
    p->last_ns = p->seen_ns = p->start_ns;
    p->stops = clv_stops();
}

static void draw_bar(const clv_progress *p, int64_t done, const char *note, double left_s)
{
    int filled = (int)(BAR * done / p->total);

    fprintf(stderr, "\r%s [", p->what);
    for (int i = 0; i < BAR; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %lld/%lld  %s  %.0f s left\033[K", (long long)done, (long long)p->total, note, left_s);
    fflush(stderr);
}

void clv_progress_update(clv_progress *p, int64_t done, const char *note)
{
    int64_t now = clv_clock_ns();
    if (clv_stops() != p->stops) /* what passed since the last step says nothing about the pace */
        p->start_ns += now - p->seen_ns;
    p->stops = clv_stops();
    p->seen_ns = now;
    int64_t elapsed = now - p->start_ns, since = now - p->last_ns;
    double left_s = done > 0 ? (double)elapsed / 1e9 * (double)(p->total - done) / (double)done : 0;
    bool due;

    /* Early on, the pace tells whether the whole will take more than two seconds. */
    if (!p->shown && elapsed < 2 * second_ns && !(elapsed > second_ns / 2 && left_s > 2))
        return;
    if (p->terminal)
        due = since >= second_ns / 10 || done >= p->total;
    else
        due = done * 10 / p->total > p->last_done * 10 / p->total || since >= 30 * second_ns;
    if (!due)
        return;
    if (p->terminal)
        draw_bar(p, done, note, left_s);
    else
        fprintf(stderr, "%s %lld/%lld  %s  %.0f s left\n", p->what, (long long)done, (long long)p->total, note, left_s);
    p->shown = true;
    p->last_ns = now;
    p->last_done = done;
}

void clv_progress_end(clv_progress *p)
{
    if (p->shown && p->terminal)
        fputc('\n', stderr);
}

void clv_counted_progress_show(void *progress, int64_t done, int64_t total)
{
    clv_counted_progress *p = progress;

    if (!p->begun)
        clv_progress_begin(&p->progress, p->what, total >> p->shift);
    p->begun = true;
    clv_progress_update(&p->progress, done >> p->shift, p->note ? p->note : "");
}

void clv_counted_progress_end(clv_counted_progress *p)
{
    if (p->begun)
        clv_progress_end(&p->progress);
}
