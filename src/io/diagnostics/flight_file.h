/* flight_file.h - flight recorder dump file: reads and writes the last instructions and collectives of one process's
 * ranks as JSON.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cleave/status.h"

enum { CLV_FLIGHT_HOST_SIZE = 65, CLV_FLIGHT_MAX_RANKS = 1 << 20, CLV_FLIGHT_MAX_SETS = 1 << 12 };

/* The progress of a collective. */
typedef enum clv_flight_phase {
    CLV_FLIGHT_PHASE_NONE,
    CLV_FLIGHT_PHASE_STARTED,
    CLV_FLIGHT_PHASE_WAITING,
    CLV_FLIGHT_PHASE_TRANSFERRING,
    CLV_FLIGHT_PHASE_WAITING_END,
    CLV_FLIGHT_PHASE_COMPLETED,
    CLV_FLIGHT_PHASE_COUNT
} clv_flight_phase;

/* An instruction, or a collective outside of programs. Times are nanoseconds since 1970; 0: unknown. */
typedef struct clv_flight_record {
    uint64_t number;         /* sequence number on the rank, from 1 */
    int64_t instruction;     /* index in the program; -1: outside of programs */
    const char *name, *kind; /* borrowed */
    int64_t begun_ns, ended_ns;
    clv_flight_phase phase;   /* NONE: not a collective, and the fields below are 0 */
    int64_t group_set;        /* group set */
    uint64_t seq, tag, lacks; /* lacks: bit m: member m has not arrived */
    int64_t expected, seen;   /* members or messages expected, and arrived */
    int64_t waiting_ns;
} clv_flight_record;

typedef struct clv_flight_rank_dump {
    int64_t rank;
    uint64_t begun;          /* records begun so far */
    bool busy;               /* the last record has not ended */
    bool works;              /* a run is in progress, or failed */
    uint64_t *steps, *ended; /* [n_sets] collectives begun and ended on each group set */
    int n;
    clv_flight_record *records; /* [n] oldest first */
} clv_flight_rank_dump;

typedef struct clv_flight_dump {
    uint64_t run;
    int64_t process, processes, ranks, pid, written_ns;
    char host[CLV_FLIGHT_HOST_SIZE];
    clv_error failure; /* code CLV_OK: none */
    int n_sets;
    int32_t *group_of; /* [n_sets][ranks] */
    int32_t *members;  /* [n_sets][ranks] ranks, group by group, in the order of each group */
    int n_local_ranks;
    clv_flight_rank_dump *of; /* [n_local_ranks] */
    json_t *document;         /* owns the names of a dump that was read; else NULL */
} clv_flight_dump;

/* Allocates a dump for n_sets and for n_local_ranks with n_records each. Freed by clv_flight_dump_free, also on
 * failure. @return CLV_ENOMEM */
clv_status clv_flight_dump_alloc(clv_flight_dump *d, int n_sets, int n_local_ranks, int n_records, clv_error *err);
void clv_flight_dump_free(clv_flight_dump *d);

clv_status clv_flight_dump_write(const clv_flight_dump *d, const char *path, clv_error *err);
/* Freed by clv_flight_dump_free, also on failure. @return CLV_EFORMAT, CLV_EUNSUPPORTED (another version),
 * clv_json_load's */
clv_status clv_flight_dump_read(clv_flight_dump *out, const char *path, clv_error *err);
