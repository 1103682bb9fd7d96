/* flight_file.h - the file of a flight recorder: what the ranks of one process did last (cleave/flight.h says what is
 * in it). */
#ifndef CLEAVE_IO_FLIGHT_FILE_H
#define CLEAVE_IO_FLIGHT_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

enum { CLV_FLIGHT_HOST = 65, CLV_FLIGHT_RANKS = 1 << 20, CLV_FLIGHT_SETS = 1 << 12 };

/* How far a step came; the names are in flight_file.c. */
typedef enum clv_flight_phase {
    CLV_FLIGHT_NO_STEP,
    CLV_FLIGHT_BEGUN,
    CLV_FLIGHT_WAITING,
    CLV_FLIGHT_MOVES,
    CLV_FLIGHT_WAITING_END,
    CLV_FLIGHT_ENDED,
    CLV_FLIGHT_PHASES
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

typedef struct clv_flight_ranked {
    int64_t rank;
    uint64_t begun;          /* instructions, and steps outside of programs */
    bool busy;               /* the last record has not ended */
    bool works;              /* it has something to do, or failed at it: between two records, too */
    uint64_t *steps, *ended; /* [n_sets] of each group set: begun, ended */
    int n;
    clv_flight_record *records; /* [n] oldest first */
} clv_flight_ranked;

typedef struct clv_flight_dump {
    uint64_t run;
    int64_t process, processes, ranks, pid, written_ns;
    char host[CLV_FLIGHT_HOST];
    clv_error failure; /* code CLV_OK: none */
    int n_sets;
    int32_t *group_of; /* [n_sets][ranks] */
    int32_t *members;  /* [n_sets][ranks] ranks, group after group, in the groups' order */
    int here;
    clv_flight_ranked *of; /* [here] */
    json_t *document;      /* that names are in; NULL: they are elsewhere */
} clv_flight_dump;

/* Room for the sets, and ranks with n_records each. CLV_ENOMEM; freed by clv_flight_dump_free either way. */
clv_status clv_flight_dump_make_room(clv_flight_dump *d, int n_sets, int here, int n_records, clv_error *err);
void clv_flight_dump_free(clv_flight_dump *d);

clv_status clv_flight_dump_write(const clv_flight_dump *d, const char *path, clv_error *err);
/* @return CLV_EFORMAT, CLV_EUNSUPPORTED (another version), clv_json_load's. Free *out by clv_flight_dump_free, on
 * failure, too. */
clv_status clv_flight_dump_read(clv_flight_dump *out, const char *path, clv_error *err);

#endif
