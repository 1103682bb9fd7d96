/* executor.h - one rank's part of one program: views of its own buffers made once, then instructions in order. What
 * reaches other ranks is the transport's affair. */
#ifndef CLEAVE_RUNTIME_EXECUTOR_H
#define CLEAVE_RUNTIME_EXECUTOR_H

#include "base/error.h"
#include "cleave/cancel.h"
#include "comm/transport.h"
#include "device/device.h"
#include "program/program.h"

/* A rank's time in an instruction. */
typedef struct clv_spent {
    int64_t ns;
    int64_t hidden_ns; /* of a step: beside ops, and in their time */
} clv_spent;

/* What is not finite, first on a rank. */
typedef struct clv_finding {
    int instruction; /* -1: all is */
    clv_error what;
} clv_finding;

/* What runs the op of an instruction on a rank, made once: a run only calls it. */
typedef struct clv_ready {
    clv_call call;
    void *plan; /* clv_op_own's; NULL: the op has none, or the device's kernel runs */
} clv_ready;

/* What one rank has of a loaded program: its own memory alone. */
typedef struct clv_loaded_rank {
    clv_context context;
    void *region;         /* of the device's memory */
    clv_view *views;      /* [n_buffers] */
    clv_ready *ready;     /* [n_instructions] of ops; else zeroed */
    clv_view *operands;   /* that calls of `ready` have */
    char *op_plans;       /* that `ready` has */
    clv_plan **plans;     /* [n_instructions] of the steps that move; else NULL */
    void **staging;       /* [n_groups + 1] as clv_staging_slot says; NULL: none wants any */
    int *flying;          /* [n_groups] scratch: steps that run beside ops now, in the order in which they began */
    void *host;           /* of an op that runs on the host; NULL: none does */
    clv_spent *spent;     /* [n_instructions] so far; NULL: not traced */
    clv_finding *finding; /* where it is kept, and the run goes on; NULL: it fails */
} clv_loaded_rank;

/* What runs the op of an instruction. */
typedef struct clv_chosen_kernel {
    clv_status (*run)(const clv_call *call, clv_error *err);
    bool on_host; /* on copies, for the device lists none */
} clv_chosen_kernel;

typedef struct clv_loaded {
    const clv_program *program;
    uint64_t digest; /* of the program */
    const clv_transport *transport;
    int first, here;            /* the ranks of this process */
    clv_loaded_rank *ranks;     /* [here] */
    clv_window *window;         /* over the regions; NULL: the transport takes none */
    int *group_set;             /* [n_groups] the comm's group sets */
    clv_chosen_kernel *kernels; /* [n_instructions]; NULL until the program is mapped */
    int64_t *staging_bytes;     /* [n_groups + 1] */
    int64_t host_bytes;
    bool mapped;              /* views and plans point to where state is now */
    bool *lowest;             /* [n_buffers] as finite.h says; NULL: results may be infinite or NaN */
    struct clv_check *check;  /* check.h; NULL: not checked */
    const clv_cancel *cancel; /* NULL: none */
    bool products_alone;      /* clv_run's, of the run under way */
    int64_t runs;
} clv_loaded;

/* What a rank, one of this process, has. */
static inline clv_loaded_rank *clv_loaded_on(const clv_loaded *loaded, int rank)
{
    return &loaded->ranks[rank - loaded->first];
}

/* Buffer b on a rank. */
static inline const clv_view *clv_loaded_view(const clv_loaded *loaded, int rank, int b)
{
    return &clv_loaded_on(loaded, rank)->views[b];
}

/* The views of an instruction's operands (zeroed where absent) and results on a rank. */
static inline void clv_loaded_operands(clv_view in[CLV_MAX_IN], clv_view out[CLV_MAX_OUT], const clv_loaded *loaded,
                                       int rank, const clv_instruction *instruction)
{
    for (int i = 0; i < instruction->n_in; i++)
        in[i] = instruction->in[i] < 0 ? (clv_view){0} : *clv_loaded_view(loaded, rank, instruction->in[i]);
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = *clv_loaded_view(loaded, rank, instruction->out[o]);
}

/* Which staging a step has: steps that run beside nothing are in progress one at a time, and of others one in each
 * group. */
static inline int clv_staging_slot(const clv_instruction *instruction)
{
    return instruction->beside > 0 ? 1 + instruction->group : 0;
}

/* Forgets where state was. */
void clv_loaded_unmap(clv_loaded *loaded);

/* Where a rank's time went, nanoseconds, and what its device left to the host. */
typedef struct clv_rank_times {
    int64_t comm_ns;
    int64_t wait_ns;
    int64_t hidden_ns;                 /* in which steps moved beside ops */
    int64_t fallbacks, fallback_bytes; /* ops, and what was copied for them */
} clv_rank_times;

struct clv_rank_trace;

/* Runs every instruction on this rank. trace: what is recorded; NULL: nothing. */
clv_status clv_execute(const clv_loaded *loaded, int rank, clv_comm *comm, clv_rank_times *times,
                       struct clv_rank_trace *trace, clv_error *err);

#endif
