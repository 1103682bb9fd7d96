/* test_llama_golden.c - our Llama against Hugging Face transformers' (tests/golden/make_llama.py): logits, loss and the
 * gradients of all weights, at tp = 1, 2, 3, 4, 8, with and without sequence parallelism, tied and untied. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "models/model.h"
#include "models/parameters.h"

enum { B = 2, S = 11, V = 37, MAX_PARAMETERS = 32, IGNORED = -100 };

static char golden[2048];

typedef struct reference {
    clv_model config;
    int32_t ids[B * S], labels[B * S];
    float logits[B * S * V], loss;
    clv_weights *gradients; /* named as the weights they belong to */
} reference;

static void must(clv_status status, const clv_error *err)
{
    if (status != CLV_OK)
        fail_msg("%s", err->message);
}

static void read_values(reference *r, const char *path)
{
    clv_error err = {0};
    clv_safetensors *file;
    const clv_safetensor *tensor;
    must(clv_safetensors_open(&file, path, &err), &err);
    must(clv_safetensors_find(&tensor, file, "ids", &err), &err);
    must(clv_safetensors_read(tensor, NULL, CLV_I32, r->ids, &err), &err);
    must(clv_safetensors_find(&tensor, file, "logits", &err), &err);
    must(clv_safetensors_read(tensor, NULL, CLV_F32, r->logits, &err), &err);
    must(clv_safetensors_find(&tensor, file, "loss", &err), &err);
    must(clv_safetensors_read(tensor, NULL, CLV_F32, &r->loss, &err), &err);
    clv_safetensors_close(file);
}

/* Labels are the ids shifted by one; the last of a row has none. */
static void read_reference(reference *r, const char *name)
{
    clv_error err = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", golden, name);
    must(clv_model_read(&r->config, path, &err), &err);
    snprintf(path, sizeof path, "%s/%s_golden/values.safetensors", golden, name);
    read_values(r, path);
    for (int i = 0; i < B * S; i++)
        r->labels[i] = i % S == S - 1 ? IGNORED : r->ids[i + 1];
    snprintf(path, sizeof path, "%s/%s_golden", golden, name);
    must(clv_weights_open(&r->gradients, path, &err), &err);
}

static double largest(const float *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

static void compare(const char *where, const char *what, const float *got, const float *want, int64_t n, double layer)
{
    double tolerance = 2e-5 * fmax(largest(want, n), 1e-3 * layer);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s, %s, element %lld: %.9g, expected %.9g (tolerance %.2g)", where, what, (long long)i, got[i],
                     want[i], tolerance);
}

/* "layers.1" of "layers.1.mlp.down.weight": gradients are compared with the largest of their layer. */
static bool same_layer(const char *a, const char *b)
{
    size_t n = strncmp(a, "layers.", 7) == 0 ? strcspn(a + 7, ".") + 7 : 0;
    return n > 0 && strncmp(a, b, n + 1) == 0;
}

static void compare_gradients(const char *where, const reference *r, char names[][256], float *const *got, int n)
{
    clv_error err = {0};
    float *want[MAX_PARAMETERS];
    int64_t elems[MAX_PARAMETERS];
    for (int i = 0; i < n; i++) {
        clv_parameter parameter;
        must(clv_model_parameter_find(&parameter, &r->config, names[i], &err), &err);
        elems[i] = 1;
        for (int d = 0; d < parameter.rank; d++)
            elems[i] *= parameter.shape[d];
        want[i] = malloc((size_t)elems[i] * sizeof *want[i]);
        must(clv_model_read_parameter(r->gradients, &r->config, names[i], NULL, want[i], &err), &err);
    }
    for (int i = 0; i < n; i++) {
        double layer = 0;
        for (int j = 0; j < n; j++)
            if (same_layer(names[i], names[j]))
                layer = fmax(layer, largest(want[j], elems[j]));
        compare(where, names[i], got[i], want[i], elems[i], layer);
    }
    for (int i = 0; i < n; i++)
        free(want[i]);
}

static void run_on(const reference *r, const char *name, int tp, bool sp)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    clv_session *session;
    char text[64], where[128], folder[4096], names[MAX_PARAMETERS][256], outputs_named[MAX_PARAMETERS][16];
    snprintf(text, sizeof text, "model=%d", tp);
    snprintf(where, sizeof where, "%s, tp %d%s", name, tp, sp ? " sp" : "");
    must(clv_mesh_parse(&mesh, text, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_model_build build = {.batch = B, .seq = S, .rules = clv_graph_rules(graph, sp ? "megatron-sp" : "megatron")};
    clv_value logits = clv_model_forward(graph, &r->config, &build, NULL);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){B, S}, NULL);
    clv_value loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, IGNORED);
    clv_value parameters[MAX_PARAMETERS], gradients[MAX_PARAMETERS];
    int n = clv_parameters(graph, parameters, MAX_PARAMETERS);
    clv_gradients(graph, loss, CLV_NONE, parameters, n, gradients);
    clv_output(graph, "logits", logits, NULL);
    clv_output(graph, "loss", loss, NULL);
    float *got[MAX_PARAMETERS], got_logits[B * S * V], got_loss;
    clv_binding outputs[MAX_PARAMETERS + 2] = {{"logits", got_logits}, {"loss", &got_loss}};
    for (int i = 0; i < n; i++) {
        clv_type type = clv_graph_type(graph, parameters[i]);
        snprintf(names[i], sizeof names[i], "%s", clv_value_name(graph, parameters[i]));
        snprintf(outputs_named[i], sizeof outputs_named[i], "d%d", i);
        clv_output(graph, outputs_named[i], gradients[i], NULL);
        got[i] = malloc((size_t)clv_type_elems(&type) * sizeof *got[i]);
        outputs[i + 2] = (clv_binding){outputs_named[i], got[i]};
    }
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_session_new(&session, &mesh, NULL, &err), &err);
    must(clv_session_load(session, program, &err), &err);
    snprintf(folder, sizeof folder, "%s/%s", golden, name);
    must(clv_model_load(session, &r->config, folder, &err), &err);
    clv_binding inputs[] = {{"ids", (void *)r->ids}, {"labels", (void *)r->labels}};
    must(clv_session_run(session, program, inputs, 2, outputs, n + 2, &err), &err);
    compare(where, "logits", got_logits, r->logits, B * S * V, 0);
    compare(where, "loss", &got_loss, &r->loss, 1, 0);
    compare_gradients(where, r, names, got, n);
    for (int i = 0; i < n; i++)
        free(got[i]);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

static void check(const char *name)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    static reference r;
    read_reference(&r, name);
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++)
        for (int sp = 0; sp < 2; sp++)
            run_on(&r, name, degrees[i], sp);
    clv_weights_close(r.gradients);
}

static void test_untied(void **state)
{
    (void)state;
    check("llama");
}

static void test_tied(void **state)
{
    (void)state;
    check("llama_tied");
}

int main(void)
{
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(golden, sizeof golden, "%s/tests/golden", source ? source : ".");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_untied), cmocka_unit_test(test_tied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
