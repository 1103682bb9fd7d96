/* executor.h - loaded programs (views, prepared collectives, staging of each rank) and the interpreter that runs one on
 * a rank.
 *
 * The executor sees its own rank's memory only; the transport reaches other ranks.
 */
#pragma once

#include "base/error.h"
#include "cleave/cancel.h"
#include "comm/transport.h"
#include "device/device.h"
#include "program/program.h"

/* The first value on a rank that is NaN or infinite. */
typedef struct clv_nonfinite_finding {
    int instruction; /* -1: none */
    clv_error what;
} clv_nonfinite_finding;

/* The call of an op instruction on a rank, bound before runs. */
typedef struct clv_prepared_call {
    clv_call call;
    void *precomputed; /* clv_op_traits's; NULL: the op has none, or the device's kernel runs */
} clv_prepared_call;

/* One rank's part of a loaded program. */
typedef struct clv_loaded_rank {
    clv_context context;
    int stage;                             /* pipeline stage: clv_program_stage_of */
    void *region;                          /* device memory */
    clv_view *views;                       /* [n_buffers] */
    clv_prepared_call *prepared_calls;     /* [n_instructions] of ops; else zeroed */
    clv_view *operands;                    /* views of the prepared calls */
    char *precomputed;                     /* what the prepared calls point to */
    clv_prepared_collective **collectives; /* [n_instructions] of collectives; else NULL */
    struct clv_expert_rows_step **rows;    /* [n_instructions] expert_rows.h, of those that move rows of experts */
    void **staging;                        /* [n_groups + 1] by clv_staging_slot; NULL: no staging */
    int *in_flight;                        /* [n_groups] scratch: overlapped collectives in flight, oldest first */
    void *host;                            /* memory of ops that fall back to the host; NULL: none does */
    int64_t *instruction_ns;               /* [n_instructions] time in each; NULL: not timed */
    clv_nonfinite_finding *finding;        /* where a finding is stored; NULL: a finding fails the run */
} clv_loaded_rank;

/* The kernel of an op instruction. */
typedef struct clv_kernel_choice {
    clv_status (*run)(const clv_call *call, clv_error *err);
    bool on_host; /* fallback: the device has no kernel, so the host's runs on copies */
} clv_kernel_choice;

typedef struct clv_loaded_program {
    clv_arena *arena; /* of what has no free function of its own */
    const clv_program *program;
    uint64_t digest; /* of the program */
    const clv_transport *transport;
    int first_local_rank, n_local_ranks;
    clv_loaded_rank *ranks;     /* [n_local_ranks] */
    clv_window *window;         /* over the regions; NULL: the transport uses none */
    int *group_set;             /* [n_groups] group sets of the world */
    clv_kernel_choice *kernels; /* [n_instructions]; NULL until the program is mapped */
    int64_t *staging_bytes;     /* [n_groups + 1] */
    int64_t host_bytes;
    bool mapped;                    /* views and collectives point to where state is now */
    bool *minus_infinity_allowed;   /* [n_buffers] as nonfinite_check.h says; NULL: results are not checked */
    struct clv_memory_check *check; /* memory_check.h; NULL: not checked */
    const clv_cancel *cancel;       /* NULL: none */
    bool matmuls_only;              /* clv_run's, of the current run */
    int64_t runs;
} clv_loaded_program;

/* The part of a local rank. */
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

/* Which staging a collective uses: overlapped ones are in flight one per group, the others one at a time. */
static inline int clv_staging_slot(const clv_instruction *instruction)
{
    return instruction->n_overlapped > 0 ? 1 + instruction->group : 0;
}

/* Releases the prepared collectives, which point to where state was; views are made anew before the next run. */
void clv_loaded_program_release_collectives(clv_loaded_program *loaded);

/* A rank's time, in nanoseconds, and its fallbacks to the host. */
typedef struct clv_rank_times {
    int64_t comm_ns;
    int64_t wait_ns;
    int64_t overlapped_ns;             /* collectives overlapped with ops */
    int64_t fallbacks, fallback_bytes; /* ops, and bytes copied for them */
} clv_rank_times;

struct clv_rank_trace;

/* ---- executor.c ---- */

/* Runs every instruction on this rank. trace: records it; NULL: not recorded. */
clv_status clv_execute_program(const clv_loaded_program *loaded, int rank, clv_comm *comm, clv_rank_times *times,
                               struct clv_rank_trace *trace, clv_error *err);

/* ---- kernel_dispatch.c ---- */

/* Chooses the kernels of a program that has views, and the host memory for fallbacks. */
clv_status clv_kernels_select(clv_loaded_program *loaded, clv_error *err);
/* Binds the calls of a program that has kernels, each time its views are made. */
clv_status clv_prepared_calls_make(clv_loaded_program *loaded, clv_error *err);

/* Runs a call, with the instruction's shapes, on the device; a failure names rank and instruction. */
clv_status clv_kernel_run(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                          clv_error *err);

/* Copies operands to the host, runs the op there, copies results back, and counts the fallback. */
clv_status clv_kernel_run_on_host(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                                  clv_rank_times *times, clv_error *err);
