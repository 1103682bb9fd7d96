/* cost_model.h - seconds of a collective (alpha-beta) and of an op (roofline or measured) on a machine.
 *
 * The planner of layouts and the reshard planner choose by it, with clv_compile_options.machine, and predict_time.h
 * adds up a program's instructions by it. Forms are in cleave/program.h, at clv_prediction.
 *
 * Branch and bound needs prices of what is not known whole, too: clv_cost_step_bound and clv_cost_work_bound are never
 * more than the price of whatever it may become.
 */
#ifndef CLEAVE_PROGRAM_COST_COST_MODEL_H
#define CLEAVE_PROGRAM_COST_COST_MODEL_H

#include "graph/op.h"
#include "program/cost/machine.h"
#include "program/reshard_step.h"

/* A machine as the ranks of a mesh use it. */
typedef struct clv_cost_model {
    const clv_machine *machine;
    clv_mesh mesh;
    double oversubscription; /* ranks a place, where there are more of them: all times are as many times longer */
    bool uniform_links;      /* no price tells one axis from another */
    bool slices_are_free; /* choices take slices and masks for free, as most slices are views of what is made next: the
                         default machine */
    clv_machine_link
        best_link[CLV_DTYPE_COUNT]; /* the best of all links that groups of the mesh may have, and of measured rates */
    clv_machine_link best_network_link[CLV_DTYPE_COUNT];           /* of those that cross hosts */
    const clv_rate *rate[CLV_STEP_COUNT][CLV_DTYPE_COUNT];         /* measured inside a host; NULL: not */
    const clv_rate *network_rate[CLV_STEP_COUNT][CLV_DTYPE_COUNT]; /* and across hosts */
} clv_cost_model;

/* machine NULL: the default one. It is borrowed. */
void clv_cost_model_make(clv_cost_model *out, const clv_mesh *mesh, const clv_machine *machine);

/* ---- steps that move ---- */

/* Whether a group over the axes holds ranks of several hosts; over no axis it does not. */
bool clv_cost_crosses_hosts(const clv_cost_model *model, const clv_subaxis *axes, int n);

/* What a step takes: start_s whatever it moves, the rest by its bytes. */
typedef struct clv_step_cost {
    double start_s, seconds;
} clv_step_cost;
/* far: its groups hold ranks of several hosts. Nothing for slices and masks: clv_cost_copy. */
clv_step_cost clv_cost_step(const clv_cost_model *model, clv_step_kind kind, clv_dtype dtype, double bytes, bool far);
/* What `bytes` in `moves` steps take at the least, whatever the steps; far: each of them crosses hosts. */
double clv_cost_step_bound(const clv_cost_model *model, clv_dtype dtype, double bytes, int moves, bool far);
/* The same where so many of the bytes, if any, cross hosts in one step or more. */
double clv_cost_step_bound_mixed_links(const clv_cost_model *model, clv_dtype dtype, double bytes, int moves,
                                       double far_bytes);
/* The ranks of a group over the axis that share a host, at most: those that differ in its most minor part. */
int64_t clv_cost_ranks_sharing_host(const clv_cost_model *model, clv_subaxis axis);
/* What a slice or a mask takes that makes so many bytes. */
double clv_cost_copy(const clv_cost_model *model, double bytes);

/* ---- ops ---- */

/* Flops, and bytes of memory traffic, on shards of these types. */
clv_op_cost clv_cost_of_op(const clv_op *op, const clv_type *in, const clv_type *out);

/* The rates that an op goes by. */
typedef struct clv_work_rates {
    const clv_rate *measured; /* NULL: none */
    bool by_flops;            /* `measured` is of flops, else of bytes */
    double flops_per_s, bytes_per_s;
    double start_s, oversubscription;
} clv_work_rates;

void clv_cost_work_rates(clv_work_rates *out, const clv_cost_model *model, const clv_op_def *def, clv_dtype dtype);
double clv_cost_work(const clv_work_rates *rates, clv_op_cost cost);
/* What the work takes at the least if it may be split into so many parts. */
double clv_cost_work_bound(const clv_work_rates *rates, clv_op_cost cost, double parts);

/* ---- comparing ---- */

/* < 0: a is less. Sums of the same terms in another order differ in the last bits, and are equal: rounding never
 * decides. */
static inline int clv_cost_compare(double a, double b)
{
    double slack = 1e-9 * (a > b ? a : b);
    return a < b - slack ? -1 : a > b + slack;
}

#endif
