/* random_graph_print.c - a random graph as text:
 *
 *   mesh w=2,x=6; by bytes; 2 runs
 *     %0 f64[3,7] {x,_} = state v0_0
 *     %4 f64[7] = dot_general(%0, %2) a=ab b=a c=b
 *     o0 = %4 {w}
 *     v0_0 becomes %9 */
#include <stddef.h>

#include "graph/graph.h"
#include "random_graph.h"

static void put_type(FILE *out, const clv_graph *graph, int v)
{
    char text[128];
    clv_type_print(text, sizeof text, &graph->values[v].type);
    fprintf(out, "%%%d %s", v, text);
}

static void put_layout(FILE *out, const clv_layout *layout, const clv_mesh *mesh)
{
    char text[CLV_LAYOUT_TEXT];
    clv_layout_print(text, sizeof text, layout, mesh);
    fprintf(out, " {%s}", text);
}

static void put_attrs(FILE *out, const clv_graph *graph, const clv_op *op)
{
    char text[CLV_LAYOUT_TEXT + 256];
    if (clv_op_print_attrs(text, sizeof text, op, &graph->mesh) > 0)
        fprintf(out, " %s", text);
}

static void put_op(FILE *out, const clv_graph *graph, const clv_op *op)
{
    fprintf(out, "  ");
    for (int o = 0; o < op->n_out; o++) {
        fprintf(out, "%s", o ? ", " : "");
        put_type(out, graph, op->out[o]);
    }
    fprintf(out, " = %s(", op->def->name);
    for (int i = 0; i < op->n_in; i++)
        op->in[i] == 0 ? fprintf(out, "%s_", i ? ", " : "") : fprintf(out, "%s%%%d", i ? ", " : "", op->in[i]);
    fprintf(out, ")");
    put_attrs(out, graph, op);
    fprintf(out, "\n");
}

void random_graph_print(FILE *out, const random_graph *g)
{
    const clv_graph *graph = g->graph;
    static const char *const specials[] = {"", "; NaN among the inputs", "; Inf among the inputs"};
    char mesh[256];
    clv_mesh_print(mesh, sizeof mesh, &g->mesh);
    fprintf(out, "mesh %s%s%s%s%s%s%s; %d run%s%s%s\n", mesh, g->options.by_bytes ? "; by bytes" : "",
            g->options.use_idle_axes ? "; idle axes" : "",
            g->options.reshard_after_forward ? "; reshard_after_forward" : "", g->options.overlap ? "; overlap" : "",
            g->options.recompute ? "; recompute " : "",
            g->options.recompute ? clv_recompute_name((clv_recompute)g->options.recompute) : "", g->steps,
            g->steps > 1 ? "s" : "", g->relayout ? " of two programs in turn" : "", specials[g->special]);
    for (int v = 1; v < graph->n_values; v++) {
        const clv_value_info *info = &graph->values[v];
        if (info->source == CLV_FROM_OP)
            continue;
        fprintf(out, "  ");
        put_type(out, graph, v);
        if (info->stated)
            put_layout(out, &info->layout, &g->mesh);
        fprintf(out, " = %s %s%s\n", info->source == CLV_FROM_STATE ? "state" : "input", info->name,
                info->kept ? ", kept in place" : "");
    }
    for (int o = 0; o < graph->n_ops; o++)
        put_op(out, graph, &graph->ops[o]);
    for (int o = 0; o < graph->n_outputs; o++) {
        fprintf(out, "  %s = %%%d", graph->outputs[o].name, graph->outputs[o].value);
        if (graph->outputs[o].stated)
            put_layout(out, &graph->outputs[o].layout, &g->mesh);
        fprintf(out, "\n");
    }
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].source == CLV_FROM_STATE && graph->values[v].assigned > 0)
            fprintf(out, "  %s becomes %%%d\n", graph->values[v].name, graph->values[v].assigned);
}
