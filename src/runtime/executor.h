/* executor.h - one rank's part of one program: views of every buffer made once, then instructions in order. */
#ifndef CLEAVE_RUNTIME_EXECUTOR_H
#define CLEAVE_RUNTIME_EXECUTOR_H

#include "comm/comm.h"
#include "program/program.h"

/* What all ranks share of a loaded program. views[rank * n_buffers + b] is buffer b on a rank. */
typedef struct clv_loaded {
    const clv_program *program;
    int n_ranks;
    void **region;           /* [n_ranks] */
    clv_view *views;         /* [n_ranks * n_buffers] */
    int *group_set;          /* [n_groups] the comm's group sets */
    void **peers;            /* [n_ranks * n_ranks] a rank's scratch for its group's buffers */
    int64_t *instruction_ns; /* [n_ranks * n_instructions] spent so far; NULL: not traced */
    bool *lowest;            /* [n_buffers] as finite.h says; NULL: results may be infinite or NaN */
    struct clv_check *check; /* check.h; NULL: not checked */
    int64_t runs;
} clv_loaded;

/* Buffer b on a rank. */
const clv_view *clv_loaded_view(const clv_loaded *loaded, int rank, int b);

/* The views of an instruction's operands (zeroed where absent) and results on a rank. */
void clv_loaded_operands(clv_view in[CLV_MAX_IN], clv_view out[CLV_MAX_OUT], const clv_loaded *loaded, int rank,
                         const clv_instruction *instruction);

/* Where a rank's time went, nanoseconds. */
typedef struct clv_rank_times {
    int64_t comm_ns;
    int64_t wait_ns;
} clv_rank_times;

/* Runs every instruction on this rank. */
clv_status clv_execute(const clv_loaded *loaded, int rank, clv_comm *comm, clv_rank_times *times, clv_error *err);

#endif
