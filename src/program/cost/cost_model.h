/* cost_model.h - seconds of a collective (alpha-beta) and of an op (roofline or measured) on a machine.
 *
 * The strategy search and the reshard planner minimise it, for clv_compile_options.machine, and predict_time.c sums it
 * over a program's instructions. The formulas are in cleave/program.h, at clv_prediction. clv_cost_step_seconds_bound
 * and clv_cost_work_seconds_bound are lower bounds, for branch and bound. */
#pragma once

#include "graph/op.h"
#include "program/cost/machine.h"
#include "program/reshard_step.h"

/* A machine as the ranks of a mesh use it. */
typedef struct clv_cost_model {
    const clv_machine *machine;
    clv_mesh mesh;
    double oversubscription; /* most ranks of a core, at least 1, for which the others wait: factor of all times */
    bool uniform_links;      /* all axes have the same link */
    bool slices_are_free;    /* slices and masks cost nothing, as most are views of the next result: default machine */
    clv_machine_link host, network;              /* what a rank gets of them while all ranks of the mesh use theirs */
    clv_machine_link best_link[CLV_DTYPE_COUNT]; /* bound of links and rates of all groups */
    clv_machine_link best_network_link[CLV_DTYPE_COUNT];           /* the same across hosts */
    const clv_rate *rate[CLV_STEP_COUNT][CLV_DTYPE_COUNT];         /* measured inside a host; NULL: not measured */
    const clv_rate *network_rate[CLV_STEP_COUNT][CLV_DTYPE_COUNT]; /* measured across hosts */
} clv_cost_model;

/* Makes the cost model of a machine, which is borrowed; NULL: the default one. */
void clv_cost_model_make(clv_cost_model *out, const clv_mesh *mesh, const clv_machine *machine);

/* ---- collectives ---- */

/* Whether groups over the axes span hosts; false for no axes. */
bool clv_cost_crosses_hosts(const clv_cost_model *model, const clv_subaxis *axes, int n);

/* Predicted seconds, and the part of them that is latency. */
typedef struct clv_step_cost {
    double start_s, seconds;
} clv_step_cost;
/* Which links a collective takes, among how many ranks. network_share is the part of its bytes that crosses the
 * network: 0 inside hosts, else 1, but of an all_to_all over n ranks, k of them on each host, (n-k)/(n-1), as a rank
 * receives equally many bytes from each other one. (The reshard planner makes several steps of the other collectives
 * where ranks of a host share what the host lacks.) */
typedef struct clv_step_route {
    double ranks, network_share;
} clv_step_route;
clv_step_route clv_cost_route(const clv_cost_model *model, clv_step_kind kind, const clv_subaxis *axes, int n);
/* Cost of a collective. Zeros for slices and masks: see clv_cost_copy_seconds. */
clv_step_cost clv_cost_step(const clv_cost_model *model, clv_step_kind kind, clv_dtype dtype, double bytes,
                            clv_step_route route);
/* A lower bound for `bytes` in at least `moves` steps of any kind, of which network_bytes or more (0: none) cross
 * hosts.
 */
double clv_cost_step_seconds_bound(const clv_cost_model *model, clv_dtype dtype, double bytes, int moves,
                                   double network_bytes);
/* Largest number of ranks of a group over the axis that share a host: those that differ in its innermost part. */
int64_t clv_cost_ranks_sharing_host(const clv_cost_model *model, clv_subaxis axis);
/* Seconds of a slice or mask with a result of so many bytes. */
double clv_cost_copy_seconds(const clv_cost_model *model, double bytes);

/* ---- ops ---- */

/* What an op computes on a rank. */
typedef struct clv_op_work {
    double flops, bytes; /* clv_op_cost */
    double k;            /* contracted elements of a matmul: of [m, k] by [k, n]; 0 for other ops */
} clv_op_work;

/* Work of an op on shards of these types. */
clv_op_work clv_cost_op_work(const clv_op *op, const clv_type *in, const clv_type *out);

/* Rates of an op on a machine. */
typedef struct clv_work_rates {
    const clv_rate *measured; /* NULL: not measured */
    bool by_flops;            /* `measured` is in flops/s; else bytes/s */
    double flops_per_s, bytes_per_s;
    double k_half; /* k at which a matmul reaches half of flops_per_s */
    double start_s, oversubscription;
} clv_work_rates;

void clv_cost_work_rates(clv_work_rates *out, const clv_cost_model *model, const clv_op_def *def, clv_dtype dtype);
double clv_cost_work_seconds(const clv_work_rates *rates, clv_op_work work);
/* Lower bound of the seconds if the work is split into so many parts. */
double clv_cost_work_seconds_bound(const clv_work_rates *rates, clv_op_work work, double parts);

/* ---- comparing ---- */

/* < 0: a is less. Values that differ by rounding, as sums in another order do, are equal. */
static inline int clv_cost_compare(double a, double b)
{
    double slack = 1e-9 * (a > b ? a : b);
    return a < b - slack ? -1 : a > b + slack;
}
