/* flight_file.h - flight recorder dump file: reads and writes the last instructions and collectives of one process's
 * ranks as JSON.
 */
#ifndef CLEAVE_IO_DIAGNOSTICS_FLIGHT_FILE_H
#define CLEAVE_IO_DIAGNOSTICS_FLIGHT_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

enum { CLV_FLIGHT_HOST_SIZE = 65, CLV_FLIGHT_MAX_RANKS = 1 << 20, CLV_FLIGHT_MAX_SETS = 1 << 12 };

/* How far a step came; the names are in flight_file.c. */
typedef enum clv_flight_phase {
    CLV_FLIGHT_PHASE_NONE,
    CLV_FLIGHT_PHASE_STARTED,
    CLV_FLIGHT_PHASE_WAITING,
    CLV_FLIGHT_PHASE_TRANSFERRING,
    CLV_FLIGHT_PHASE_WAITING_END,
    CLV_FLIGHT_PHASE_COMPLETED,
    CLV_FLIGHT_PHASE_COUNT
} clv_flight_phase;

/* Times are nanoseconds since 1970; 0: not known. */
typedef struct clv_flight_record {
    uint64_t number;         /* of the rank, from 1 */
    int64_t instruction;     /* of the program; -1: in none */
    const char *name, *kind; /* borrowed */
    int64_t begun_ns, ended_ns;
    clv_flight_phase phase; /* what follows is 0 without a step */
    int64_t set;
    uint64_t seq, tag, lacks; /* lacks: members, as bits */
    int64_t expected, seen, waiting_ns;
} clv_flight_record;

typedef struct clv_flight_rank_dump {
    int64_t rank;
    uint64_t begun;          /* instructions, and steps outside of programs */
    bool busy;               /* the last record has not ended */
    bool works;              /* it has something to do, or failed at it: between two records, too */
    uint64_t *steps, *ended; /* [n_sets] of each group set: begun, ended */
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
    int32_t *members;  /* [n_sets][ranks] ranks, group after group, in the groups' order */
    int n_local_ranks;
    clv_flight_rank_dump *of; /* [n_local_ranks] */
    json_t *document;         /* that names are in; NULL: they are elsewhere */
} clv_flight_dump;

/* Room for the sets, and ranks with n_records each. CLV_ENOMEM; freed by clv_flight_dump_free either way. */
clv_status clv_flight_dump_alloc(clv_flight_dump *d, int n_sets, int n_local_ranks, int n_records, clv_error *err);
void clv_flight_dump_free(clv_flight_dump *d);

clv_status clv_flight_dump_write(const clv_flight_dump *d, const char *path, clv_error *err);
/* @return CLV_EFORMAT, CLV_EUNSUPPORTED (another version), clv_json_load's. Free *out by clv_flight_dump_free, on
 * failure, too. */
clv_status clv_flight_dump_read(clv_flight_dump *out, const char *path, clv_error *err);

#endif
