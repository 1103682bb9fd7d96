/* nnx_linear.c - flax's nnx.Linear, split by columns over any number of ranks.
 *
 * stdin: {"seed": S, "features": F, "tp": N, "x": [[...], ...]}; stdout: x @ kernel + bias, flattened, as a JSON list.
 * The kernel is nnx.Linear(in, F, rngs=nnx.Rngs(S))'s: lecun_normal keyed by fold_in(key(S), 0), the first draw of the
 * stream "params"; the bias is zeros. Each rank holds its own columns; element i of the kernel depends on the key and
 * on i alone, so it does not matter how many ranks there are. */
#include <cleave/nn.h>
#include <cleave/program.h>
#include <cleave/session.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "json_input.h"

typedef struct request {
    int64_t seed, features, tp, rows, width;
    double *x;
} request;

static bool read_request(request *r, json_t *root, example_error *why)
{
    return example_integer(&r->seed, root, "seed", INT64_MIN, INT64_MAX, why) &&
           example_integer(&r->features, root, "features", 1, 1 << 20, why) &&
           example_integer(&r->tp, root, "tp", 1, 1024, why) &&
           example_matrix(&r->x, &r->rows, &r->width, root, "x", why);
}

static clv_status compile(clv_program **out, const request *r, const clv_mesh *mesh, clv_error *err)
{
    clv_graph *graph;
    clv_status status = clv_graph_new(&graph, mesh, err);
    if (status != CLV_OK)
        return status;
    clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron");
    clv_linear_options linear = {
        .bias = true, .gather_output = true, .init = {CLV_INIT_LECUN_NORMAL, (double)r->width}};
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){r->rows, r->width}, NULL);
    clv_output(graph, "y", clv_column_parallel_linear(graph, x, r->features, &rules, &linear), NULL);
    status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

/* The state is keyed by its name; flax's kernel by its own key: written a row at a time. */
static clv_status write_kernel(clv_session *session, const request *r, clv_error *err)
{
    clv_key key = clv_key_fold_in(clv_key_seed((uint64_t)r->seed), 0);
    clv_init init = {CLV_INIT_LECUN_NORMAL, (double)r->width};
    float *row = malloc((size_t)r->features * sizeof *row);
    clv_status status = row ? CLV_OK : CLV_ENOMEM;
    for (int64_t i = 0; status == CLV_OK && i < r->width; i++) {
        clv_shard box = {.rank = 2, .lo = {i, 0}, .hi = {i + 1, r->features}};
        clv_init_fill(row, init, key, (uint64_t)(i * r->features), r->features);
        status = clv_session_write(session, "linear.weight", &box, row, err);
    }
    free(row);
    return status;
}

static clv_status tensor_parallel_linear(float *y, const request *r, clv_error *err)
{
    clv_mesh mesh;
    clv_program *program = NULL;
    clv_session *session = NULL;
    char text[32];
    float *x = malloc((size_t)(r->rows * r->width) * sizeof *x + 1);
    for (int64_t i = 0; x && i < r->rows * r->width; i++)
        x[i] = (float)r->x[i];
    snprintf(text, sizeof text, "model=%lld", (long long)r->tp);
    clv_status status = x ? clv_mesh_parse(&mesh, text, err) : CLV_ENOMEM;
    if (status == CLV_OK)
        status = compile(&program, r, &mesh, err);
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, NULL, err);
    if (status == CLV_OK)
        status = clv_session_load(session, program, err);
    if (status == CLV_OK)
        status = write_kernel(session, r, err);
    clv_input_binding in = {"x", x};
    clv_output_binding out = {"y", y};
    if (status == CLV_OK)
        status = clv_session_run(session, program, &in, 1, &out, 1, err);
    clv_session_free(session);
    clv_program_free(program);
    free(x);
    return status;
}

int main(void)
{
    request r = {0};
    example_error why = {""};
    clv_error err = {0};
    json_t *root = example_read(&why);
    if (!root || !read_request(&r, root, &why)) {
        fprintf(stderr, "nnx_linear: %s\n", why.text);
        json_decref(root);
        free(r.x);
        return 2;
    }
    int64_t n = r.rows * r.features;
    float *y = malloc((size_t)n * sizeof *y + 1);
    clv_status status = y ? tensor_parallel_linear(y, &r, &err) : CLV_ENOMEM;
    for (int64_t i = 0; status == CLV_OK && i < n; i++)
        printf("%s%.9g", i ? ", " : "[", y[i]);
    if (status == CLV_OK)
        puts(n ? "]" : "[]");
    if (status != CLV_OK)
        fprintf(stderr, "nnx_linear: %s\n", err.message[0] ? err.message : clv_status_text(status));
    free(y);
    free(r.x);
    json_decref(root);
    return status == CLV_OK ? 0 : 1;
}
