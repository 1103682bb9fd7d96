/* custom_op.c - an op of one's own: y[n] = sum over f of w[f] max(x[n,f], 0)^2 in one pass, with a rule that says how
 * it may be split. It is held to what it says, and compared with the library's ops, on ranks that share F. */
#include <stdio.h>
#include <string.h>
#include "cleave/cleave.h"

static clv_status shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    (void)op, out[0] = (clv_type){.dtype = CLV_F32, .rank = 1, .shape = {in[0].shape[0]}};
    if (in[0].dtype != CLV_F32 || in[1].dtype != CLV_F32 || in[0].rank != 2 || in[1].rank != 1)
        return clv_fail(err, CLV_ESHAPE, "x f32[N,F] and w f32[F] are needed");
    return CLV_OK; /* that both have the same F is seen by the rule */
}

static void rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    int n = clv_rule_add_factor(r, in[0].shape[0], CLV_REDUCTION_NONE);
    int f = clv_rule_add_factor(r, in[0].shape[1], CLV_REDUCTION_SUM);
    clv_rule_operand_dim(r, 0, 0, n), clv_rule_operand_dim(r, 0, 1, f);
    clv_rule_operand_dim(r, 1, 0, f), clv_rule_result_dim(r, 0, 0, n);
    (void)op, (void)out, clv_rule_multilinear(r, 1u << 1); /* addends of w give addends of y; those of x do not */
}

static clv_status run(const clv_call *call, clv_error *err)
{
    const float *x = call->in[0].data, *w = call->in[1].data;
    float *y = call->out[0].data;
    int64_t rows = call->in[0].shape[0], columns = call->in[0].shape[1]; /* of this rank */
    (void)err, memset(y, 0, (size_t)rows * sizeof *y);                   /* F may leave this rank none */
    for (int64_t n = 0; n < rows; n++)
        for (int64_t f = 0; f < columns; f++, x++)
            y[n] += *x > 0 ? w[f] * *x * *x : 0;
    return CLV_OK;
}

static void gradient(clv_graph *g, const clv_op *op, const clv_value *d, clv_value *d_in)
{
    clv_value r = clv_unary(g, CLV_RELU, clv_op_operand(op, 0));
    d_in[0] = clv_mul(g, clv_einsum(g, "n,f->nf", d[0], clv_op_operand(op, 1)), clv_scale(g, r, 2));
    d_in[1] = clv_einsum(g, "n,nf->f", d[0], clv_mul(g, r, r));
}

static const clv_op_def relu2_dot = {sizeof relu2_dot, "example.relu2_dot",  2,         2, 1, .shape = shape,
                                     .rule = rule,     .gradient = gradient, .run = run};
static const clv_type types[] = {{CLV_F32, 2, {5, 10}}, {CLV_F32, 1, {10}}};

static void build(clv_graph *g)
{
    const clv_layout wide = clv_graph_layout(g, 2, "_,model"), cut = clv_graph_layout(g, 1, "model");
    clv_value in[] = {clv_state(g, "x", CLV_F32, 2, types[0].shape, &wide, (clv_init){CLV_INIT_NORMAL, 1}),
                      clv_state(g, "w", CLV_F32, 1, types[1].shape, &cut, (clv_init){CLV_INIT_NORMAL, 1})};
    clv_value r = clv_unary(g, CLV_RELU, in[0]), ref = clv_einsum(g, "nf,f->n", clv_mul(g, r, r), in[1]);
    clv_value y, d[2], e[2];
    clv_emit(g, &relu2_dot, NULL, in, 2, &y);
    clv_gradients(g, y, y, in, 2, d);
    clv_gradients(g, ref, ref, in, 2, e);
    clv_value off = clv_add(g, clv_sub(g, d[0], e[0]), clv_sub(g, d[1], e[1]));
    clv_output(g, "distance", clv_reduce(g, CLV_SUM, clv_mul(g, off, off), (int[]){0, 1}, 2, false), NULL);
}

int main(int argc, char **argv) /* a mesh with the axis "model", and the transport */
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph = NULL;
    clv_program *program = NULL;
    clv_session *session = NULL;
    clv_session_options options = {.transport = argc > 2 ? argv[2] : NULL, .check = 1};
    float d = 1;
    bool ran = clv_op_check(&relu2_dot, NULL, types, 2, NULL, NULL, &err) == CLV_OK &&
               clv_mesh_parse(&mesh, argc > 1 ? argv[1] : "model=2", &err) == CLV_OK &&
               clv_graph_new(&graph, &mesh, &err) == CLV_OK && (build(graph), true) &&
               clv_compile(&program, graph, NULL, &err) == CLV_OK &&
               clv_session_new(&session, &mesh, &options, &err) == CLV_OK &&
               clv_session_run(session, program, NULL, 0, &(clv_output_binding){"distance", &d}, 1, &err) == CLV_OK;
    printf("%s\n", !ran ? err.message : d < 1e-6f ? "the same" : "not the same");
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    return !(ran && d < 1e-6f);
}
