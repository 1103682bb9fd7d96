/* mesh_axis_order.c - clv_plan_find_axis_order: the order of mesh axes with the lowest predicted step time. */
#include <math.h>

#include "base/error.h"
#include "models/plan/plan_internal.h"

enum {
    ALL_ORDERS = 4 /* axes of which each order is tried; of more each axis is tried last, where it stays inside hosts */
};

/* Another order is worth its change from here on. */
static const double enough = 0.99;

/* The axis of the given mesh that comes k-th. */
typedef struct order {
    int axis[CLV_MAX_AXES];
} order;

/* Whether places of ranks differ: that groups of some axes would cross hosts. */
static bool has_hosts(const clv_machine *machine, const clv_mesh *mesh)
{
    clv_machine_info info = {.size = sizeof info};
    return machine && clv_machine_get_info(machine, &info, NULL) == CLV_OK && info.hosts != 1 &&
           clv_mesh_rank_count(mesh) > info.ranks_per_host;
}

/* The next order by the dictionary; false behind the last. */
static bool next_of_all(order *o, int n)
{
    int k = n - 2, with = n - 1;
    while (k >= 0 && o->axis[k] > o->axis[k + 1])
        k--;
    if (k < 0)
        return false;
    while (o->axis[with] < o->axis[k])
        with--;
    int swapped = o->axis[k];
    o->axis[k] = o->axis[with];
    o->axis[with] = swapped;
    for (int a = k + 1, b = n - 1; a < b; a++, b--) {
        int other = o->axis[a];
        o->axis[a] = o->axis[b];
        o->axis[b] = other;
    }
    return true;
}

/* The t-th that is tried: of few axes the next one, else that with axis t last. */
static bool next_order(order *o, int n, int t)
{
    if (n <= ALL_ORDERS)
        return next_of_all(o, n);
    for (int k = 0; k < n; k++)
        o->axis[k] = k < n - 1 ? k + (k >= t) : t;
    return t < n - 1;
}

/* Where an axis of the given mesh is in this order. */
static int place_of(const order *o, int axis)
{
    int k = 0;
    while (o->axis[k] != axis)
        k++;
    return k;
}

static void put_rules(clv_axis_rules *out, const clv_axis_rules *rules, const order *o)
{
    *out = *rules;
    for (int i = 0; i < out->n; i++)
        for (int k = 0; k < out->rule[i].n_axes; k++)
            out->rule[i].axis[k] = place_of(o, out->rule[i].axis[k]);
    for (int k = 0; k < out->n_optimizer; k++)
        out->optimizer[k] = place_of(o, out->optimizer[k]);
}

static clv_status measure(double *seconds, bool *fits, const clv_plan_options *options, clv_error *err)
{
    clv_program *program;
    clv_prediction predicted = {.size = sizeof predicted};
    clv_memory memory = {.size = sizeof memory};
    CLV_TRY(clv_plan_compile(&program, options, err));
    clv_status status = clv_program_predict(program, options->compile.machine, &predicted, err);
    if (status == CLV_OK)
        status = clv_program_memory_on(program, options->compile.machine, &memory, err);
    *seconds = predicted.seconds;
    *fits = (double)memory.total <= predicted.memory_bytes;
    clv_program_free(program);
    return status;
}

/* The plan in another order. One that cannot be made, or does not fit, takes for ever. */
static double measure_order(const clv_plan_options *given, const clv_mesh *mesh, const order *o)
{
    clv_plan_options changed = *given;
    clv_axis_rules rules;
    double seconds;
    bool fits;
    changed.mesh = mesh;
    if (given->rules) {
        put_rules(&rules, given->rules, o);
        changed.rules = &rules;
    }
    return measure(&seconds, &fits, &changed, NULL) == CLV_OK && fits ? seconds : (double)INFINITY;
}

clv_status clv_plan_find_axis_order(clv_mesh *mesh, double *seconds, const clv_plan_options *options, clv_error *err)
{
    clv_plan_options given;
    bool fits;
    CLV_TRY(clv_require(mesh && seconds && options, __func__, "mesh, seconds and options", err));
    CLV_TRY(clv_plan_parse_options(&given, options, __func__, err));
    given.compile.explain = NULL;
    CLV_TRY(measure(seconds, &fits, &given, err));
    clv_mesh as_given = given.mesh ? *given.mesh : (clv_mesh){0};
    *mesh = as_given;
    if (!has_hosts(given.compile.machine, &as_given))
        return CLV_OK;
    order o;
    double least = *seconds * enough;
    for (int k = 0; k < as_given.n_axes; k++)
        o.axis[k] = k;
    for (int t = 0; next_order(&o, as_given.n_axes, t); t++) {
        clv_mesh other = as_given;
        for (int k = 0; k < other.n_axes; k++)
            other.axis[k] = as_given.axis[o.axis[k]];
        double its = measure_order(&given, &other, &o);
        if (its >= least)
            continue;
        *seconds = least = its;
        *mesh = other;
    }
    return CLV_OK;
}
