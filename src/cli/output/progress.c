/* progress.c - progress bar on stderr, for work of more than two seconds. */
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "cli/timing/clock.h"
#include "cli/timing/suspensions.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR = 24, LEAST_BAR = 8, BRACKETS = 3, BAR_LINE = 512 };

static const int64_t second_ns = 1000000000;

/* Whether the terminal's last line is a bar. */
static atomic_bool is_drawn;

void clv_progress_begin(clv_progress *p, const char *what, int64_t total)
{
    *p = (clv_progress){.what = what, .total = total > 0 ? total : 1, .terminal = isatty(STDERR_FILENO) != 0};
    p->start_ns = clv_clock_ns();
    p->last_ns = p->seen_ns = p->start_ns;
    p->stops = clv_suspensions_count();
}

/* The length of the beginning of a note that takes at most `width` columns: whole clauses, which ", " parts. */
static int fit_note(const char *note, int width)
{
    char text[BAR_LINE];
    int fits = 0;

    for (const char *end = note; *end != '\0'; end += *end != '\0') {
        end += strcspn(end, ",");
        if (*end != '\0' && end[1] != ' ')
            continue;
        snprintf(text, sizeof text, "%.*s", (int)(end - note), note);
        if (clv_text_width(text) > width)
            break;
        fits = (int)(end - note);
    }
    return fits;
}

/* Whether so many columns are left; they are taken then. */
static bool take(int *room, int columns)
{
    bool fits = columns <= *room;

    *room -= fits ? columns : 0;
    return fits;
}

/* Draws over the line before, within the terminal as it is now, its last column left free: a line that went on below
 * could not be drawn over. Where there is no room for all, the bar is shorter and the last clauses of the note are left
 * out; then the bar, what is done, the time that is left; never a part of a number. */
static void draw_bar(const clv_progress *p, int64_t done, const char *note, double left_s)
{
    char count[64], left[64], text[BAR_LINE] = "";
    int room = clv_terminal_width(stderr) - 1;

    int n_count = snprintf(count, sizeof count, "%lld/%lld", (long long)done, (long long)p->total);
    int n_left = snprintf(left, sizeof left, "  %.0f s left", left_s);
    bool has_count = take(&room, n_count), has_left = take(&room, n_left);
    bool has_what = take(&room, clv_text_width(p->what) + 1), has_bar = take(&room, LEAST_BAR + BRACKETS);
    int shown = fit_note(note, room - 2);
    if (shown > 0)
        snprintf(text, sizeof text, "  %.*s", shown, note);
    int bar = LEAST_BAR + room - clv_text_width(text);
    bar = !has_bar ? 0 : bar < BAR ? bar : BAR;

    fprintf(stderr, "\r%s%s%s", has_what ? p->what : "", has_what ? " " : "", has_bar ? "[" : "");
    for (int i = 0; i < bar; i++)
        fputc(i < bar * done / p->total ? '#' : '.', stderr);
    fprintf(stderr, "%s%s%s%s\033[K", has_bar ? "] " : "", has_count ? count : "", text, has_left ? left : "");
    fflush(stderr);
    is_drawn = true;
}

void clv_progress_clear_bar(void)
{
    if (atomic_exchange(&is_drawn, false))
        fputs("\r\033[K", stderr);
}

void clv_progress_update(clv_progress *p, int64_t done, const char *note)
{
    int64_t now = clv_clock_ns();
    if (clv_suspensions_count() != p->stops) /* what passed since the last step says nothing about the pace */
        p->start_ns += now - p->seen_ns;
    p->stops = clv_suspensions_count();
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
    if (p->shown && p->terminal && atomic_exchange(&is_drawn, false))
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
