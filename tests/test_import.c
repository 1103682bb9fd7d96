/* test_import.c - programs of others: each of tests/golden/stablehlo on one rank and on meshes, values as JAX has them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cleave/import.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

enum { MOST = 128 };

static clv_import *must_read(const char *name)
{
    clv_import *program = NULL;
    clv_error err = {0};
    if (clv_import_read(&program, golden_path("stablehlo/%s.mlir", name), &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    return program;
}

static void *read_tensor(const clv_checkpoint *file, const char *name, const clv_type *type)
{
    int64_t i;
    void *data = calloc((size_t)clv_type_elems(type) + 1, clv_dtype_size(type->dtype));
    assert_int_equal(clv_checkpoint_find(&i, file, name, NULL), CLV_OK);
    assert_int_equal(clv_checkpoint_read(file, i, NULL, type->dtype, data, NULL), CLV_OK);
    return data;
}

/* |got - want| <= 1e-5 of the largest element of the tensor; of one that is rounding alone (the gradient of a bias that
 * a softmax does not feel), of 1/100 of what other results have. */
static void compare(const char *program, const char *mesh, const clv_import_port_info *port, const void *got,
                    const void *want)
{
    double most = 1e-2;
    int64_t n = clv_type_elems(&port->type);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(clv_dtype_load(port->type.dtype, want, i)));
    for (int64_t i = 0; i < n; i++) {
        double a = clv_dtype_load(port->type.dtype, got, i), b = clv_dtype_load(port->type.dtype, want, i);
        if (!(fabs(a - b) <= 1e-5 * most))
            fail_msg("%s on %s: %s, element %lld: %.9g, JAX has %.9g", program, mesh, port->name, (long long)i, a, b);
    }
}

typedef struct ports {
    int n_in, n_out;
    clv_import_port_info out[MOST];
    clv_input_binding inputs[MOST];
    clv_output_binding outputs[MOST];
    void *want[MOST];
} ports;

static void bind(ports *p, const clv_import *program, const char *name)
{
    clv_checkpoint *file;
    clv_import_port_info port = {.size = sizeof port};
    assert_int_equal(clv_checkpoint_open(&file, golden_path("stablehlo/%s.safetensors", name), NULL, NULL), CLV_OK);
    memset(p, 0, sizeof *p);
    for (int i = 0; clv_import_port(program, i, &port, NULL) == CLV_OK && port.name; i++) {
        void *data = read_tensor(file, port.name, &port.type);
        if (!port.is_result) {
            p->inputs[p->n_in++] = (clv_input_binding){port.name, data};
            continue;
        }
        p->out[p->n_out] = port;
        p->want[p->n_out] = data;
        p->outputs[p->n_out++] = (clv_output_binding){
            port.name, calloc((size_t)clv_type_elems(&port.type) + 1, clv_dtype_size(port.type.dtype))};
    }
    clv_checkpoint_close(file);
}

static void free_ports(ports *p)
{
    for (int i = 0; i < p->n_in; i++)
        free((void *)p->inputs[i].data);
    for (int i = 0; i < p->n_out; i++) {
        free(p->want[i]);
        free(p->outputs[i].data);
    }
}

static void run_on(const char *name, const char *mesh)
{
    clv_import *program = must_read(name);
    clv_graph *graph = must_graph(mesh);
    clv_program *compiled = NULL;
    clv_session *session = NULL;
    clv_error err = {0};
    ports p;
    if (clv_import_stablehlo(graph, program, NULL, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    if (clv_compile(&compiled, graph, NULL, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    clv_session_options options = {
        .size = sizeof options, .source = clv_import_constant, .source_arg = program, .check = 1, .no_pinning = 1};
    assert_int_equal(clv_session_new(&session, clv_program_mesh(compiled), &options, &err), CLV_OK);
    bind(&p, program, name);
    if (clv_session_run(session, compiled, p.inputs, p.n_in, p.outputs, p.n_out, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    for (int i = 0; i < p.n_out; i++)
        compare(name, mesh, &p.out[i], p.outputs[i].data, p.want[i]);
    free_ports(&p);
    clv_session_free(session);
    clv_program_free(compiled);
    clv_graph_free(graph);
    clv_import_free(program);
}

static const char *const programs[] = {"mlp_forward", "mlp",  "llama_forward", "gpt2",
                                       "llama",       "esm",  "scan_remat",    "nnx_layers",
                                       "adamw",       "fsdp", "moe",           "tensor_parallel"};
static const char *const meshes[] = {"data=1,model=1", "data=2,model=1", "data=1,model=3", "data=2,model=2"};

static void test_values(void **state)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            if (getenv("CLV_VERBOSE"))
                fprintf(stderr, "%s on %s\n", programs[i], meshes[m]);
            run_on(programs[i], meshes[m]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
