/* flight_report.h - the merged flight recorder report: dumps, records of each rank, findings. */
#pragma once

#include "cleave/flight.h"
#include "io/diagnostics/flight_file.h"

typedef struct clv_flight_found {
    clv_flight_finding finding;             /* its text is freed with the report */
    int number;                             /* order in which it was found */
    int64_t weight;                         /* findings of a kind are sorted by it, the largest first */
    int waiter;                             /* the rank that waits for the culprit; -1: none */
    const clv_flight_dump *dump;            /* the process that reported it; NULL: none */
    const clv_flight_record *mine, *theirs; /* CLV_FLIGHT_DIFFERS: the collectives of rank and peer */
} clv_flight_found;

struct clv_flight_report {
    int ranks, n_dumps;
    clv_flight_dump *dumps;              /* [n_dumps] */
    const clv_flight_dump **dump_of;     /* [ranks]; NULL: the rank is missing */
    const clv_flight_rank_dump **ranked; /* [ranks] likewise */
    int n_findings;
    int64_t capacity; /* of findings */
    clv_flight_found *findings;
};

/* The record of the instruction that a rank is in; NULL: the rank is missing, or in none. */
static inline const clv_flight_record *clv_flight_current(const clv_flight_report *report, int rank)
{
    const clv_flight_rank_dump *of = report->ranked[rank];
    return of && of->busy && of->n > 0 ? &of->records[of->n - 1] : NULL;
}

/* Fills the findings. CLV_ENOMEM */
clv_status clv_flight_diagnose(clv_flight_report *report, clv_error *err);
