/* flight_report.h - the merged flight recorder report: dumps, records of each rank, findings. */
#ifndef CLEAVE_RUNTIME_DIAGNOSTICS_FLIGHT_REPORT_H
#define CLEAVE_RUNTIME_DIAGNOSTICS_FLIGHT_REPORT_H

#include "cleave/flight.h"
#include "io/diagnostics/flight_file.h"

typedef struct clv_flight_found {
    clv_flight_finding finding; /* its text is freed with the report */
    int number;                 /* as it was found */
    int64_t weight;             /* among those of a kind the greatest comes first */
} clv_flight_found;

struct clv_flight_report {
    int ranks, n_dumps;
    clv_flight_dump *dumps;              /* [n_dumps] */
    const clv_flight_dump **dump_of;     /* [ranks] NULL: the rank is missing */
    const clv_flight_rank_dump **ranked; /* [ranks] likewise */
    int n, room;
    clv_flight_found *said; /* [n] */
};

/* The record of what a rank is in; NULL: it is missing, or in none. */
static inline const clv_flight_record *clv_flight_current(const clv_flight_report *report, int rank)
{
    const clv_flight_rank_dump *of = report->ranked[rank];
    return of && of->busy && of->n > 0 ? &of->records[of->n - 1] : NULL;
}

/* Finds what is wrong. CLV_ENOMEM */
clv_status clv_flight_diagnose(clv_flight_report *report, clv_error *err);

#endif
