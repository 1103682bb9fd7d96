/* executor.h - loaded programs (views, plans, staging of each rank) and the interpreter that runs one on a rank. What
 * reaches other ranks is the transport's affair.
 */
#ifndef CLEAVE_RUNTIME_SESSION_EXECUTOR_H
#define CLEAVE_RUNTIME_SESSION_EXECUTOR_H

#include "base/error.h"
#include "cleave/cancel.h"
#include "comm/transport.h"
#include "device/device.h"
#include "program/program.h"

/* A rank's time in an instruction. */
typedef struct clv_instruction_time {
    int64_t ns;
    int64_t overlapped_ns; /* of a step: beside ops, and in their time */
} clv_instruction_time;

/* What is not finite, first on a rank. */
typedef struct clv_nonfinite_finding {
    int instruction; /* -1: all is */
    clv_error what;
} clv_nonfinite_finding;

/* What runs the op of an instruction on a rank, made once: a run only calls it. */
typedef struct clv_prepared_call {
    clv_call call;
    void *plan; /* clv_op_traits's; NULL: the op has none, or the device's kernel runs */
} clv_prepared_call;

/* What one rank has of a loaded program: its own memory alone. */
typedef struct clv_loaded_rank {
    clv_context context;
    void *region;                      /* of the device's memory */
    clv_view *views;                   /* [n_buffers] */
    clv_prepared_call *prepared_calls; /* [n_instructions] of ops; else zeroed */
    clv_view *operands;                /* that calls of `prepared_calls` have */
    char *op_plans;                    /* that `prepared_calls` has */
    clv_plan **plans;                  /* [n_instructions] of the steps that move; else NULL */
    void **staging;                    /* [n_groups + 1] as clv_staging_slot says; NULL: none wants any */
    int *in_flight; /* [n_groups] scratch: steps that run beside ops now, in the order in which they began */
    void *host;     /* of an op that runs on the host; NULL: none does */
    clv_instruction_time *times_of_instructions; /* [n_instructions] so far; NULL: not traced */
    clv_nonfinite_finding *finding;              /* where it is kept, and the run goes on; NULL: it fails */
} clv_loaded_rank;

/* What runs the op of an instruction. */
typedef struct clv_kernel_choice {
    clv_status (*run)(const clv_call *call, clv_error *err);
    bool on_host; /* on copies, for the device lists none */
} clv_kernel_choice;

typedef struct clv_loaded_program {
    const clv_program *program;
    uint64_t digest; /* of the program */
    const clv_transport *transport;
    int first_local_rank, n_local_ranks; /* the ranks of this process */
    clv_loaded_rank *ranks;              /* [n_local_ranks] */
    clv_window *window;                  /* over the regions; NULL: the transport takes none */
    int *group_set;                      /* [n_groups] the comm's group sets */
    clv_kernel_choice *kernels;          /* [n_instructions]; NULL until the program is mapped */
    int64_t *staging_bytes;              /* [n_groups + 1] */
    int64_t host_bytes;
    bool mapped;                    /* views and plans point to where state is now */
    bool *minus_infinity_allowed;   /* [n_buffers] as nonfinite_check.h says; NULL: results may be infinite or NaN */
    struct clv_memory_check *check; /* memory_check.h; NULL: not checked */
    const clv_cancel *cancel;       /* NULL: none */
    bool matmuls_only;              /* clv_run's, of the run under way */
    int64_t runs;
} clv_loaded_program;

/* What a rank, one of this process, has. */
static inline clv_loaded_rank *clv_loaded_program_on_rank(const clv_loaded_program *loaded, int rank)
{
    return &loaded->ranks[rank - loaded->first_local_rank];
}

/* Buffer b on a rank. */
static inline const clv_view *clv_loaded_program_view(const clv_loaded_program *loaded, int rank, int b)
{
    return &clv_loaded_program_on_rank(loaded, rank)->views[b];
}

/* The views of an instruction's operands (zeroed where absent) and results on a rank. */
static inline void clv_loaded_program_operands(clv_view in[CLV_MAX_IN], clv_view out[CLV_MAX_OUT],
                                               const clv_loaded_program *loaded, int rank,
                                               const clv_instruction *instruction)
{
    for (int i = 0; i < instruction->n_in; i++)
        in[i] = instruction->in[i] < 0 ? (clv_view){0} : *clv_loaded_program_view(loaded, rank, instruction->in[i]);
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = *clv_loaded_program_view(loaded, rank, instruction->out[o]);
}

/* Which staging a step has: steps that run beside nothing are in progress one at a time, and of others one in each
 * group. */
static inline int clv_staging_slot(const clv_instruction *instruction)
{
    return instruction->n_overlapped > 0 ? 1 + instruction->group : 0;
}

/* Forgets where state was. */
void clv_loaded_program_unmap(clv_loaded_program *loaded);

/* Where a rank's time went, nanoseconds, and what its device left to the host. */
typedef struct clv_rank_times {
    int64_t comm_ns;
    int64_t wait_ns;
    int64_t overlapped_ns;             /* in which steps moved beside ops */
    int64_t fallbacks, fallback_bytes; /* ops, and what was copied for them */
} clv_rank_times;

struct clv_rank_trace;

/* Runs every instruction on this rank. trace: what is recorded; NULL: nothing. */
clv_status clv_execute_program(const clv_loaded_program *loaded, int rank, clv_comm *comm, clv_rank_times *times,
                               struct clv_rank_trace *trace, clv_error *err);

#endif
