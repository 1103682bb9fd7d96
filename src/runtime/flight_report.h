/* flight_report.h - dumps of one run, merged: shared by flight_read.c, which makes it, and flight_verdict.c, which says
 * what is wrong. */
#ifndef CLEAVE_RUNTIME_FLIGHT_REPORT_H
#define CLEAVE_RUNTIME_FLIGHT_REPORT_H

#include "cleave/flight.h"
#include "io/flight_file.h"

typedef struct clv_flight_said {
    clv_flight_finding finding; /* its text is freed with the report */
    int number;                 /* as it was found */
    int64_t weight;             /* among those of a kind the greatest comes first */
} clv_flight_said;

struct clv_flight_report {
    int ranks, n_dumps;
    clv_flight_dump *dumps;           /* [n_dumps] */
    const clv_flight_dump **dump_of;  /* [ranks] NULL: the rank is missing */
    const clv_flight_ranked **ranked; /* [ranks] likewise */
    int n, room;
    clv_flight_said *said; /* [n] */
};

/* The record of what a rank is in; NULL: it is missing, or in none. */
static inline const clv_flight_record *clv_flight_current(const clv_flight_report *report, int rank)
{
    const clv_flight_ranked *of = report->ranked[rank];
    return of && of->busy && of->n > 0 ? &of->records[of->n - 1] : NULL;
}

/* Finds what is wrong. CLV_ENOMEM */
clv_status clv_flight_judge(clv_flight_report *report, clv_error *err);

#endif
