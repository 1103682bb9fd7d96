/* optimizer_common.c - what AdamW, SGD and Lion share: shape, sharding rule, state, master copies. */
#include "ops/optimizer_common.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "ops/operand_checks.h"

/* ---- the op ---- */

/* Parameter and moments: the results that lie where operands do. */
static int n_in_place_results(const clv_op_def *def)
{
    int n = 0;
    while (n < def->n_out && def->in_place[n] > 0)
        n++;
    return n;
}

clv_status clv_update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    static const char parameter[] = "the parameter", gradient[] = "the gradient", moment[] = "a moment";
    const int states = n_in_place_results(op->def), g = states, scale = op->def->max_in - 1;
    const clv_dtype dtype = clv_statistics_dtype(in[0].dtype);
    for (int i = 0; i <= g; i++) {
        const char *what = i == 0 ? parameter : i == g ? gradient : moment;
        CLV_TRY(clv_check_float(what, &in[i], err));
        CLV_TRY(clv_check_same_shape(what, &in[i], parameter, &in[0], err));
        if (i > 0 && i < g && in[i].dtype != dtype)
            return clv_fail(err, CLV_EDTYPE, "%s is %s; %s is needed", what, clv_dtype_name(in[i].dtype),
                            clv_dtype_name(dtype));
    }
    CLV_TRY(clv_check_scalar("lr", &in[g + 1], CLV_F32, err));
    if (clv_op_operand_count(op) > scale)
        CLV_TRY(clv_check_scalar("the gradient's scale", &in[scale], CLV_F32, err));
    for (int o = 0; o < states; o++)
        out[o] = in[o];
    return CLV_OK;
}

void clv_update_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int states = n_in_place_results(op->def);
    (void)out;
    clv_rule_add_dims(rule, &in[0], in[0].rank);
    for (int i = 0; i <= states; i++)
        clv_rule_map_in_dims(rule, i, in[0].rank);
    for (int o = 0; o < op->def->n_out; o++)
        clv_rule_map_out_dims(rule, o, in[0].rank);
}

clv_op_cost clv_update_cost(const clv_op *op, const clv_type *in, const clv_type *out, double flops)
{
    const int states = n_in_place_results(op->def);
    double bytes = 0;
    for (int i = 0; i <= states; i++)
        bytes += clv_type_bytes(&in[i]);
    for (int o = 0; o < op->def->n_out; o++)
        bytes += clv_type_bytes(&out[o]);
    return (clv_op_cost){.flops = flops * (double)clv_type_elems(&in[0]), .bytes = bytes};
}

float clv_update_prepare(const clv_call *call)
{
    const int scale = call->op->def->max_in - 1;
    for (int o = 0; o < n_in_place_results(call->op->def); o++)
        clv_view_copy_unless_aliased(&call->out[o], &call->in[o]);
    return clv_op_operand_count(call->op) > scale ? *(const float *)call->in[scale].data : 1;
}

/* ---- the builder ---- */

/* State "<name of parameter><suffix>" of the parameter's shape. */
static clv_value optimizer_state(clv_graph *graph, clv_value parameter, const char *suffix, const clv_layout *layout,
                                 clv_init init)
{
    clv_value_info info = graph->values[parameter.id];
    const char *scope = graph->scope, *name = clv_arena_format(graph->arena, "%s%s", info.name, suffix);
    if (!name)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the moments of %s", info.name);
    graph->scope = ""; /* info.name holds the scope the parameter was made in */
    clv_value state = clv_state_with_role(graph, CLV_ROLE_OPTIMIZER, name, clv_statistics_dtype(info.type.dtype),
                                          info.type.rank, info.type.shape, layout ? layout : &info.layout, init);
    graph->scope = scope;
    return state;
}

/* What is updated: the parameter, or for 16-bit ones an f32 copy that begins as it does. */
static clv_value updated_state(clv_graph *graph, clv_value parameter, const clv_layout *layout)
{
    clv_value_info info = graph->values[parameter.id];
    if (clv_dtype_size(info.type.dtype) > 2)
        return parameter;
    clv_value master = optimizer_state(graph, parameter, ".master", layout, info.init);
    if (clv_valid(master))
        graph->values[master.id].init_name = info.name;
    return master;
}

bool clv_update_begin(clv_state_update *out, clv_graph *graph, clv_value parameter, clv_value gradient,
                      const clv_layout *layout, const char *call)
{
    if (!clv_graph_ok(graph) || !clv_valid(parameter) || parameter.id >= graph->n_values)
        return false;
    if (graph->values[parameter.id].source != CLV_FROM_STATE) {
        clv_graph_fail(graph, CLV_EINVAL, "%s: the parameter is not state", call);
        return false;
    }
    *out = (clv_state_update){.parameter = parameter, .gradient = gradient, .layout = layout};
    out->updated = updated_state(graph, parameter, layout);
    if (layout)
        out->gradient = clv_constrain_gradient(graph, parameter, gradient, layout);
    return clv_graph_ok(graph);
}

clv_value clv_update_moment(clv_graph *graph, const clv_state_update *update, const char *suffix)
{
    return optimizer_state(graph, update->parameter, suffix, update->layout, (clv_init){.kind = CLV_INIT_ZEROS});
}

bool clv_update_has_master_copy(const clv_state_update *update)
{
    return update->updated.id != update->parameter.id;
}

void clv_update_emit(clv_graph *graph, const clv_state_update *update, const clv_op_def *def, const void *attrs,
                     const clv_value *in, int n_in)
{
    clv_value out[CLV_MAX_OUT];
    const int states = n_in_place_results(def);
    const bool updating = graph->in_update;
    graph->in_update = true;
    clv_graph_emit(graph, def, attrs, in, clv_valid(in[n_in - 1]) ? n_in : n_in - 1, out);
    for (int o = 0; o < states; o++)
        clv_assign(graph, in[o], out[o]);
    if (def->n_out > states)
        clv_assign(graph, update->parameter, out[states]);
    else if (clv_update_has_master_copy(update))
        clv_assign(graph, update->parameter, clv_cast(graph, out[0], clv_graph_type(graph, update->parameter).dtype));
    graph->in_update = updating;
}
