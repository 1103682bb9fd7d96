/* mlp.c - a two-layer MLP split over any number of ranks, forward and backward, in f64.
 *
 *   Y = tanh(X A), Z = Y B, loss = sum (Z - target)^2, dZ = 2 (Z - target)
 *
 * A is split by columns and B by rows: one all_reduce of Z forward; dA and dB are made where A and B are.
 * stdin: {"x", "a", "b", "target": matrices, "tp": N}; stdout: {"z", "loss", "da", "db"}. */
#include <cleave/nn.h>
#include <cleave/program.h>
#include <cleave/session.h>
#include <stdio.h>
#include <stdlib.h>

#include "json_input.h"

typedef struct matrix {
    double *data;
    int64_t rows, cols;
} matrix;

typedef struct request {
    matrix x, a, b, target;
    int64_t tp;
} request;

static bool read_matrix(matrix *m, json_t *root, const char *key, example_error *why)
{
    return example_matrix(&m->data, &m->rows, &m->cols, root, key, why);
}

static bool read_request(request *r, json_t *root, example_error *why)
{
    if (!read_matrix(&r->x, root, "x", why) || !read_matrix(&r->a, root, "a", why) ||
        !read_matrix(&r->b, root, "b", why) || !read_matrix(&r->target, root, "target", why) ||
        !example_integer(&r->tp, root, "tp", 1, 1024, why))
        return false;
    if (r->x.cols == r->a.rows && r->a.cols == r->b.rows && r->target.rows == r->x.rows && r->target.cols == r->b.cols)
        return true;
    snprintf(why->text, sizeof why->text, "shapes must fit x [n,i], a [i,h], b [h,o], target [n,o]");
    return false;
}

static clv_value input(clv_graph *graph, const char *name, const matrix *m, const char *layout)
{
    clv_layout stated = clv_graph_layout(graph, 2, layout);
    return clv_input(graph, name, CLV_F64, 2, (int64_t[]){m->rows, m->cols}, &stated);
}

static void build(clv_graph *graph, const request *r)
{
    clv_value x = input(graph, "x", &r->x, "_,_"), target = input(graph, "target", &r->target, "_,_");
    clv_value weights[] = {input(graph, "a", &r->a, "_,model"), input(graph, "b", &r->b, "model,_")}, gradients[2];
    clv_keep_stationary(graph, weights[0], "model");
    clv_keep_stationary(graph, weights[1], "model");
    clv_value y = clv_unary(graph, CLV_TANH, clv_einsum(graph, "ni,ih->nh", x, weights[0]));
    clv_layout whole = clv_graph_layout(graph, 2, "_,_");
    clv_value z = clv_constrain(graph, clv_einsum(graph, "nh,ho->no", y, weights[1]), &whole);
    clv_value error = clv_sub(graph, z, target);
    clv_value loss = clv_reduce(graph, CLV_SUM, clv_mul(graph, error, error), (int[]){0, 1}, 2, false);
    clv_gradients(graph, loss, CLV_NONE, weights, 2, gradients);
    clv_output(graph, "z", z, NULL);
    clv_output(graph, "loss", loss, NULL);
    clv_output(graph, "da", gradients[0], NULL);
    clv_output(graph, "db", gradients[1], NULL);
}

static clv_status run(const request *r, matrix *z, double *loss, matrix *da, matrix *db, clv_error *err)
{
    clv_mesh mesh;
    clv_graph *graph = NULL;
    clv_program *program = NULL;
    clv_session *session = NULL;
    char text[32];
    snprintf(text, sizeof text, "model=%lld", (long long)r->tp);
    clv_status status = clv_mesh_parse(&mesh, text, err);
    if (status == CLV_OK)
        status = clv_graph_new(&graph, &mesh, err);
    if (status == CLV_OK) {
        build(graph, r);
        status = clv_compile(&program, graph, NULL, err);
    }
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, NULL, err);
    clv_input_binding inputs[] = {{"x", r->x.data}, {"a", r->a.data}, {"b", r->b.data}, {"target", r->target.data}};
    clv_output_binding outputs[] = {{"z", z->data}, {"loss", loss}, {"da", da->data}, {"db", db->data}};
    if (status == CLV_OK)
        status = clv_session_run(session, program, inputs, 4, outputs, 4, err);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    return status;
}

static void print_matrix(const char *key, const matrix *m)
{
    printf("\"%s\": [", key);
    for (int64_t i = 0; i < m->rows; i++) {
        printf("%s[", i ? ", " : "");
        for (int64_t j = 0; j < m->cols; j++)
            printf("%s%.17g", j ? ", " : "", m->data[i * m->cols + j]);
        printf("]");
    }
    printf("]");
}

static matrix like(int64_t rows, int64_t cols)
{
    return (matrix){malloc((size_t)(rows * cols) * sizeof(double)), rows, cols};
}

static int finish(request *r, matrix *z, matrix *da, matrix *db, json_t *root, int code)
{
    double *all[] = {z->data, da->data, db->data, r->x.data, r->a.data, r->b.data, r->target.data};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    json_decref(root);
    return code;
}

int main(void)
{
    request r = {0};
    matrix z = {0}, da = {0}, db = {0};
    example_error why = {""};
    clv_error err = {0};
    double loss = 0;
    json_t *root = example_read(&why);
    if (!root || !read_request(&r, root, &why)) {
        fprintf(stderr, "mlp: %s\n", why.text);
        return finish(&r, &z, &da, &db, root, 2);
    }
    z = like(r.x.rows, r.b.cols);
    da = like(r.a.rows, r.a.cols);
    db = like(r.b.rows, r.b.cols);
    clv_status status = z.data && da.data && db.data ? run(&r, &z, &loss, &da, &db, &err) : CLV_ENOMEM;
    if (status != CLV_OK) {
        fprintf(stderr, "mlp: %s\n", err.message[0] ? err.message : clv_status_text(status));
        return finish(&r, &z, &da, &db, root, 1);
    }
    printf("{");
    print_matrix("z", &z);
    printf(", \"loss\": %.17g, ", loss);
    print_matrix("da", &da);
    printf(", ");
    print_matrix("db", &db);
    printf("}\n");
    return finish(&r, &z, &da, &db, root, 0);
}
