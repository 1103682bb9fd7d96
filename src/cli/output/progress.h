/* progress.h - progress bar on stderr, for work of more than two seconds. Quick work prints nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_progress {
    const char *what; /* "train"; borrowed */
    int64_t total;    /* steps; >= 1 */
    bool terminal;
    bool shown; /* something was printed */
    int64_t start_ns;
    int64_t seen_ns;   /* at the last update */
    int stops;         /* then: clv_suspensions_count */
    int64_t last_ns;   /* of the last drawing */
    int64_t last_done; /* at the last plain line */
} clv_progress;

void clv_progress_begin(clv_progress *p, const char *what, int64_t total);
/* note: shown after the count ("loss 1.93, 52000 tokens/s"), or ""; a narrow terminal shows its first clauses. Cheap
 * enough for every step. */
void clv_progress_update(clv_progress *p, int64_t done, const char *note);
/* Erases the bar, for another line on stderr; the next update draws it again. */
void clv_progress_clear_bar(void);
/* Ends the line of the bar. */
void clv_progress_end(clv_progress *p);

/* A progress bar whose total comes with the first update. Set the first three fields; zeros for the rest. */
typedef struct clv_counted_progress {
    const char *what, *note; /* note NULL: none */
    int shift;               /* 20: steps are bytes, and MiB are shown */
    clv_progress progress;
    bool begun;
} clv_counted_progress;

/* A clv_progress_callback of one. */
void clv_counted_progress_show(void *progress, int64_t done, int64_t total);
void clv_counted_progress_end(clv_counted_progress *progress);
