/* partitioner.h - the partitioner's working state while it fills a sharding table: available and target layouts. */
#pragma once

#include "graph/graph.h"
#include "partition/reshard/reshard_planner.h"
#include "partition/sharding/strategy_cache.h"
#include "partition/sharding_table.h"

/* Why a value is resharded; clv_explain_step makes a clv_reshard_explanation of it. */
typedef struct clv_reshard_reason {
    clv_reshard_need need;
    const char *by;               /* the op, output or state that needs the layout */
    const clv_op *reader;         /* the op or constraint */
    const clv_strategy *strategy; /* of reader, if it is an op */
    const clv_rule *rule;         /* likewise: its sharding rule */
    int operand;                  /* likewise: index of the operand */
    const clv_layout *to;         /* of a constraint or output: its layout */
    bool stated;                  /* of an output: its layout was stated */
    int state;                    /* of a state: its value */
} clv_reshard_reason;

/* What the partitioner knows of a value. */
typedef struct clv_available_layouts {
    int n, capacity;
    int *sharded;             /* [n] the sharded values that hold it; the first is as it was made */
    int phase, n_earlier;     /* the phase that made the last of them; the first n_earlier were made by earlier ones */
    bool is_weight;           /* a parameter, or computed from parameters alone */
    uint32_t stationary_axes; /* bit a: must not move over mesh axis a (clv_keep_stationary) */
    bool has_target;
    clv_layout target;                   /* the layout that propagation asks for */
    int accumulation_count;              /* see clv_strategy_problem */
    const char *dim_names[CLV_MAX_RANK]; /* NULL: unknown */
    int outermost_sum;  /* the outermost sum of which it is a term and nothing else; itself if there is none */
    int constrained_as; /* the constrained cotangent that it, or its sum, becomes; 0: none */
    bool is_output;     /* an output, or assigned to state */
} clv_available_layouts;

typedef struct clv_partitioner {
    const clv_graph *graph;
    clv_arena *scratch;
    const clv_cost_model *cost;
    clv_reshard_cache *reshards;
    bool is_priced; /* clv_compile_to_price */
    clv_strategy_cache *strategies;
    const clv_compile_options *options;
    clv_available_layouts *available; /* [n_values] */
    bool *live_op;                    /* [n_ops] */
    const clv_strategy **searched;    /* [n_ops] by search_layouts.c; NULL: strategies are chosen one by one */
    clv_sharding_table table;
    int *row_of;                               /* [n_ops] row in the table; -1: none yet, or a constraint */
    int *first_reader;                         /* [n_values + 1] index into readers */
    int *readers;                              /* live ops by the values that they read, once an operand */
    bool backward, update;                     /* pass of the current op */
    int phase;                                 /* the forward and backward passes of a microbatch are a phase each */
    int block;                                 /* block of the current op */
    const char *factor_names[CLV_MAX_FACTORS]; /* of the current op; NULL: unknown */
    uint32_t expert_axes;                      /* clv_explain_find_expert_axes */
    uint32_t stationary_axes;                  /* clv_explain_find_stationary_axes */
} clv_partitioner;

/* Verifies that the enums of the options are in range. @return CLV_EDTYPE or CLV_EINVAL, with a message that begins
 * with `what` */
clv_status clv_compile_options_check(const clv_compile_options *options, const char *what, clv_error *err);
/* What CLV_SCHEDULE_AUTO tries, and which of two steps it takes: one that fits, of these the faster one, of others the
 * smaller one. */
enum { CLV_SCHEDULES_OF_AUTO = 3 };
extern const clv_plan_schedule clv_schedules_of_auto[CLV_SCHEDULES_OF_AUTO];
/* Whether a step of such seconds and bytes of a rank is better than another: what fits the limit, and then the faster,
 * or else the smaller. */
bool clv_step_is_better(double seconds, double bytes, double other_seconds, double other_bytes, double limit);
/* The bytes of a rank that a step is to fit: stated, or the machine's for each of the mesh's ranks. */
double clv_compile_memory_limit(const clv_compile_options *options, const clv_mesh *mesh);
/* CLV_SCHEDULE_INTERLEAVED of stages with one run of layers each. */
clv_status clv_fail_interleaved(clv_error *err);
/* clv_compile of a program that is priced and freed: its table is not verified, and its collectives have no cause.
 * reshards: a cache of plans that outlives the call, made for the same mesh, machine and by_bytes, used by one thread
 * at a time; NULL: none. */
clv_status clv_compile_to_price(clv_program **out, const clv_graph *graph, const clv_compile_options *options,
                                clv_reshard_cache *reshards, clv_error *err);
/* Prepares a partitioner that has a graph, scratch, options and cost, and may have a cache of reshard plans: an empty
 * table and caches. */
clv_status clv_partitioner_init(clv_partitioner *p, clv_error *err);

/* The strategy problem of an op, without layouts. types: room for its operands and results. */
void clv_partition_init_problem(clv_strategy_problem *problem, clv_type *types, const clv_partitioner *p,
                                const clv_op *op);

/* The layout of a sharded value. */
static inline const clv_layout *clv_partition_layout_of(const clv_partitioner *p, int sharded)
{
    return p->table.sharded[sharded].layout;
}
/* The layout of a value as it was made; NULL: not made yet. */
static inline const clv_layout *clv_partition_made_layout(const clv_partitioner *p, int value)
{
    const clv_available_layouts *at = &p->available[value];
    return at->n > 0 ? clv_partition_layout_of(p, at->sharded[0]) : NULL;
}

/* ---- propagate_layouts.c, keep_gradients_partial.c, insert_reshards.c: parts of the passes ---- */

/* Whether a result of the op stays a partial sum whatever the strategy; *out: in which layout. */
bool clv_partition_keeps_gradient_partial(clv_layout *out, const clv_partitioner *p, const clv_op *op, int result);

/* Records that a sharded value holds a value. */
clv_status clv_partition_add_available(clv_partitioner *p, int value, int sharded, clv_error *err);
/* The sharded values that an op may read a value from, at least one, and their layouts: without what an earlier phase
 * gathered for itself and did not keep (clv_compile_options.reshard_after_forward). */
clv_status clv_partition_available_layouts(const int **sharded, const clv_layout *const **layouts, int *n,
                                           clv_partitioner *p, int value, clv_error *err);
/* Adds a row for one step of a reshard, from *sharded, which becomes its result. The step is borrowed while the table
 * lives. */
clv_status clv_partition_insert_step(int *sharded, clv_partitioner *p, const clv_reshard_step *step, int value,
                                     const clv_reshard_reason *why, clv_error *err);
/* Adds rows that reshard a value to a layout; *out: the result. All layouts on the way become available. */
clv_status clv_partition_insert_reshard(int *out, clv_partitioner *p, int value, const clv_layout *to,
                                        const clv_reshard_reason *why, clv_error *err);
