/* test_shard_map.c - manual SPMD of JAX: the collectives that a program states, mistakes that were reported of others,
 * rebuilt small (tests/golden/make_mistakes.py), and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/import.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

/* A program in a graph, on the mesh of its text, or on another one. */
typedef struct built {
    clv_import *program;
    clv_graph *graph;
    clv_program *compiled;
} built;

static void build(built *b, const char *name, const char *mesh, bool differences)
{
    clv_error err = {0};
    clv_mesh own;
    char text[CLV_MESH_TEXT];
    const clv_import_options how = {.size = sizeof how, .differences = differences};
    must(clv_import_read(&b->program, golden_path("stablehlo/%s.mlir", name), &err), &err);
    assert_true(clv_import_mesh(b->program, &own));
    clv_mesh_print(text, sizeof text, &own);
    b->graph = must_graph(mesh ? mesh : text);
    must(clv_import_stablehlo(b->graph, b->program, &how, &err), &err);
    must(clv_compile(&b->compiled, b->graph, NULL, &err), &err);
}

static void free_built(built *b)
{
    clv_program_free(b->compiled);
    clv_graph_free(b->graph);
    clv_import_free(b->program);
}

/* Numbers of collectives of a kind, and of those that are named after an op of the text, "model.py:12.all_gather". */
static int count(const built *b, const char *kind, int *named)
{
    clv_collective c = {.size = sizeof c};
    int n = 0;
    *named = 0;
    for (int i = 0; i < clv_program_collective_count(b->compiled); i++) {
        must(clv_program_collective(b->compiled, i, &c, NULL), NULL);
        if (strcmp(c.kind, kind) != 0)
            continue;
        const char *dot = strrchr(c.op, '.');
        n++;
        *named += dot && strcmp(dot + 1, kind) == 0;
    }
    return n;
}

/* Bytes that all of them move. */
static int64_t moved(const built *b)
{
    clv_collective c = {.size = sizeof c};
    int64_t bytes = 0;
    for (int i = 0; i < clv_program_collective_count(b->compiled); i++) {
        must(clv_program_collective(b->compiled, i, &c, NULL), NULL);
        bytes += (int64_t)c.bytes;
    }
    return bytes;
}

/* Megatron's layer with sequence parallelism and its gradients: what the text states, and nothing else. */
static void test_stated_collectives(void **state)
{
    static const struct {
        const char *kind;
        int count;
    } want[] = {{"all_gather", 4}, {"reduce_scatter", 4}, {"all_reduce", 8}, {"all_to_all", 0}, {"exchange", 0}};
    built b;
    int named;
    build(&b, "shard_map_block", NULL, false);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(count(&b, want[i].kind, &named), want[i].count);
        assert_int_equal(named, want[i].count);
    }
    clv_import_fault_info fault = {.size = sizeof fault};
    assert_int_equal(clv_import_fault(b.program, 0, &fault, NULL), CLV_OK);
    assert_null(fault.kind);
    free_built(&b);
    build(&b, "shard_map_collectives", NULL, false);
    assert_true(count(&b, "all_to_all", &named) >= 3 && named >= 3);
    assert_int_equal(count(&b, "permute", &named), 2);
    (void)count(&b, "all_gather", &named);
    assert_int_equal(named, 3); /* others are of in_specs */
    free_built(&b);
    build(&b, "shard_map_ring", NULL, false); /* weights go round: a permute of [16, 6] a turn, and nothing else */
    assert_int_equal(count(&b, "permute", &named), 3);
    assert_int_equal(moved(&b), 3 * 16 * 6 * (int)sizeof(float));
    free_built(&b);
}

/* Fused ops of a device's part; the collectives between them are those of the text, with their names. */
static void test_patterns(void **state)
{
    clv_import_pattern_info pattern = {.size = sizeof pattern};
    built b;
    int named, found = 0;
    build(&b, "shard_map_patterns", NULL, false);
    for (int i = 0; clv_import_pattern(b.program, i, &pattern, NULL) == CLV_OK && pattern.name; i++)
        found += pattern.recognised == 1 && pattern.left == 0; /* gelu, softmax, RMS norm, cross-entropy */
    assert_int_equal(found, 4);
    assert_int_equal(count(&b, "all_reduce", &named), 3);
    assert_int_equal(named, 3);
    free_built(&b);
}

/* ---- faults ---- */

typedef struct mistake {
    const char *program, *kind, *tensor, *axes;
    bool measured; /* there is an output for how far devices differ */
} mistake;

/* The only fault of each; result['right'] has none. */
static const mistake mistakes[] = {
    {"mistake_norm_gradient", "missing psum", "result['wrong']", "model", true},
    {"mistake_shared_norm", "missing psum", "result['wrong']", "model", true},
    {"mistake_router_gradient", "missing psum", "result['wrong']", "model", true},
    {"mistake_data_gradient", "missing psum", "result['wrong']", "data", true},
    {"mistake_expert_gradient", "psum too many", "result['wrong']", "model", false},
    {"mistake_psum_twice", "psum too many", "result['wrong']", "model", false},
    {"mistake_psum_gradient", "psum too many", "result['wrong']", "data", false},
    {"mistake_wrong_group", "wrong axis", "result['wrong']", "data", true},
    {"mistake_row_bias", "counted too often", ".all_reduce", "model", false},
    {"mistake_gradient_norm", "counted too often", ".all_reduce", "model", false},
    {"mistake_activation", "psum too late", ".all_reduce", "model", false},
    {"mistake_local_softmax", "psum too late", ".all_reduce", "model", false},
    {"mistake_split_norm", "psum too late", "result['wrong']", "model", false},
    {"mistake_split_softmax", "missing psum", ".all_reduce", "model", false},
    {"mistake_split_log_softmax", "missing psum", "result['wrong']", "model", false},
    {"mistake_psum_of_means", "psum of means", "result['wrong']", "data", false},
    {"mistake_mean_gradient", "psum of means", "result['wrong']", "data", false},
    {"mistake_gathered", "out_specs", "result['wrong']", "model", true},
};

static void test_mistakes(void **state)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        clv_import_fault_info fault = {.size = sizeof fault};
        built b;
        build(&b, m->program, i % 2 ? NULL : "model=2", false);
        must(clv_import_fault(b.program, 0, &fault, NULL), NULL);
        if (!fault.kind || strcmp(fault.kind, m->kind) != 0 || !strstr(fault.tensor, m->tensor) ||
            strcmp(fault.axes, m->axes) != 0 || (fault.output != NULL) != m->measured ||
            !strstr(fault.text, "make_mistakes.py:") !=
                (strcmp(m->kind, "out_specs") == 0 || strcmp(m->program, "mistake_router_gradient") == 0 ||
                 strcmp(m->program, "mistake_split_log_softmax") == 0))
            fail_msg("%s: %s of %s over %s: %s", m->program, fault.kind ? fault.kind : "nothing", fault.tensor,
                     fault.axes, fault.text);
        assert_true(fault.line > 1);
        must(clv_import_fault(b.program, 1, &fault, NULL), NULL);
        if (fault.kind)
            fail_msg("%s: also %s of %s", m->program, fault.kind, fault.tensor);
        free_built(&b);
    }
}

/* Ring attention, softmaxes and embeddings over sharded dimensions, gradients with check_vma and without: no fault. */
static void test_sound(void **state)
{
    static const char *const names[] = {"shard_map",           "shard_map_ring",      "shard_map_block",
                                        "shard_map_unchecked", "shard_map_attention", "shard_map_vocabulary",
                                        "shard_map_patterns"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        clv_import_fault_info fault = {.size = sizeof fault};
        built b;
        build(&b, names[i], NULL, false);
        must(clv_import_fault(b.program, 0, &fault, NULL), NULL);
        if (fault.kind)
            fail_msg("%s: %s of %s: %s", names[i], fault.kind, fault.tensor, fault.text);
        free_built(&b);
    }
}

/* How far devices differ, as an output of the program that measures it. */
static double measure(const char *name)
{
    built b;
    clv_session *session;
    clv_error err = {0};
    clv_import_fault_info fault = {.size = sizeof fault};
    clv_program_tensor t = {.size = sizeof t};
    clv_input_binding inputs[8];
    clv_output_binding outputs[8];
    int n_in = 0, n_out = 0;
    float gap = -1;
    build(&b, name, "model=2", true);
    must(clv_import_fault(b.program, 0, &fault, NULL), NULL);
    assert_string_equal(fault.kind, "missing psum");
    for (int i = 0; clv_program_tensor_at(b.compiled, i, &t, NULL) == CLV_OK && t.name; i++) {
        int64_t n = clv_type_elems(&t.type);
        float *data = calloc((size_t)n, sizeof *data);
        for (int64_t e = 0; e < n; e++)
            data[e] = (float)(e % 7);
        if (t.kind == CLV_NAMED_INPUT)
            inputs[n_in++] = (clv_input_binding){t.name, data};
        else
            outputs[n_out++] = (clv_output_binding){t.name, data};
    }
    const clv_session_options options = {.size = sizeof options, .no_pinning = 1};
    must(clv_session_new(&session, clv_program_mesh(b.compiled), &options, &err), &err);
    must(clv_session_run(session, b.compiled, inputs, n_in, outputs, n_out, &err), &err);
    for (int i = 0; i < n_out; i++) {
        gap = strcmp(outputs[i].name, fault.output) == 0 ? *(float *)outputs[i].data : gap;
        free(outputs[i].data);
    }
    for (int i = 0; i < n_in; i++)
        free((void *)inputs[i].data);
    clv_session_free(session);
    free_built(&b);
    return gap;
}

/* What no rule can say is measured: a sum that goes round a ring is the same on all devices. */
static void test_measured(void **state)
{
    assert_true(measure("shard_map_ring_sum") == 0);
    assert_true(measure("mistake_data_gradient") > 0.1);
}

/* Collectives that others were asked about: rows that are shuffled by themselves need none; weights of FSDP are
 * gathered once, and each gather says for what; rows that ranks do not divide are split all the same. */
static void test_reports(void **state)
{
    built b;
    int named;
    clv_collective c = {.size = sizeof c};
    build(&b, "report_shuffle", NULL, false);
    assert_int_equal(moved(&b), 0);
    free_built(&b);
    build(&b, "report_remat", NULL, false);
    assert_int_equal(count(&b, "all_gather", &named), 2);
    must(clv_program_collective(b.compiled, 0, &c, NULL), NULL);
    assert_non_null(strstr(c.cause, "is stated as split by dimension 0 over data"));
    free_built(&b);
    build(&b, "report_uneven", NULL, false);
    assert_int_equal(moved(&b), 0);
    free_built(&b);
}

/* ---- texts ---- */

static const char region_text[] =
    "module {\n  sdy.mesh @mesh = <[\"x\"=2, \"y\"=2]>\n  func.func @main(%%a: tensor<4x2xf32>) -> tensor<4x2xf32> {\n"
    "    %%0 = sdy.manual_computation(%%a) in_shardings=[<@mesh, [%s]>] out_shardings=[<@mesh, [{\"x\"}, {}]>] "
    "manual_axes={\"x\", \"y\"} (%%b: tensor<2x2xf32>) {\n      %s\n      sdy.return %%c : tensor<2x2xf32>\n"
    "    } : (tensor<4x2xf32>) -> tensor<4x2xf32>\n    return %%0 : tensor<4x2xf32>\n  }\n}\n";

static clv_status build_text(const char *text, clv_import **program, clv_error *err)
{
    clv_graph *graph = must_graph("x=2,y=2");
    clv_status status = clv_import_parse(program, text, strlen(text), "a.mlir", err);
    if (status == CLV_OK)
        status = clv_import_stablehlo(graph, *program, NULL, err);
    clv_graph_free(graph);
    return status;
}

static void refuse_in(const char *sharding, const char *body, clv_status code, const char *want)
{
    char text[4096];
    clv_error err = {0};
    clv_import *program = NULL;
    snprintf(text, sizeof text, region_text, sharding, body);
    clv_status status = build_text(text, &program, &err);
    if (status != code || (code != CLV_OK && (!strstr(err.message, want) || strncmp(err.message, "a.mlir", 6) != 0)))
        fail_msg("%s: %s '%s'; expected '%s'", body, clv_status_name(status), err.message, want);
    clv_import_free(program);
}

#define GROUPS(groups, type) "<{replica_groups = dense<" groups "> : tensor<" type "xi64>}>"
#define ADD                                                                                                            \
    "({^bb0(%p: tensor<f32>, %q: tensor<f32>): %r = stablehlo.add %p, %q : tensor<f32> "                               \
    "stablehlo.return %r : tensor<f32>}) : (tensor<2x2xf32>) -> tensor<2x2xf32>"

static void test_refused(void **state)
{
    static const char rows[] = "{\"x\"}, {}";
    refuse_in(rows, "%c = \"stablehlo.all_reduce\"(%b) " GROUPS("[[0, 3], [1, 2]]", "2x2") ADD, CLV_EUNSUPPORTED,
              "replica_groups are not those of axes");
    refuse_in(rows, "%c = \"stablehlo.all_reduce\"(%b) " GROUPS("[[0, 1]]", "1x2") ADD, CLV_EUNSUPPORTED,
              "replica_groups are not");
    refuse_in(rows, "%c = \"stablehlo.all_reduce\"(%b) " GROUPS("[[0, 9], [1, 3]]", "2x2") ADD, CLV_EUNSUPPORTED,
              "replica_groups are not");
    refuse_in(rows, "%c = \"stablehlo.all_reduce\"(%b) " ADD, CLV_EUNSUPPORTED, "no table replica_groups");
    refuse_in(rows,
              "%c = \"stablehlo.collective_permute\"(%b) <{source_target_pairs = dense<[[0, 3]]> : tensor<1x2xi64>}> : "
              "(tensor<2x2xf32>) -> tensor<2x2xf32>",
              CLV_EUNSUPPORTED, "its pairs are not a permute over one axis");
    refuse_in(
        rows,
        "%c = \"stablehlo.all_gather\"(%b) <{all_gather_dim = 7 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : "
        "tensor<2x2xi64>}> : (tensor<2x2xf32>) -> tensor<2x2xf32>",
        CLV_ESHAPE, "all_gather_dim does not fit");
    refuse_in("{\"x\":(1)2}, {}", "%c = stablehlo.add %b, %b : tensor<2x2xf32>", CLV_OK, "");
    refuse_in("{}, {}", "%c = stablehlo.add %b, %b : tensor<2x2xf32>", CLV_ESHAPE, "is not what a device has of it");
    refuse_in(rows, "%z = stablehlo.constant dense<3> : tensor<ui32> %c = stablehlo.add %b, %b : tensor<2x2xf32>",
              CLV_OK, "");
    refuse_in(rows,
              "%n = stablehlo.partition_id : tensor<ui32> %m = stablehlo.add %n, %n : tensor<ui32> "
              "%c = stablehlo.add %b, %b : tensor<2x2xf32>",
              CLV_EUNSUPPORTED, "tensor<ui32>: only the index of a device");
    refuse_in(rows,
              "%d = \"stablehlo.fft\"(%b) : (tensor<2x2xf32>) -> tensor<2x2xf32> "
              "%c = stablehlo.add %b, %b : tensor<2x2xf32>",
              CLV_EUNSUPPORTED, "stablehlo.fft");
}

/* A collective that JAX does not lower to: all devices of x get what the first one has. */
static void test_broadcast(void **state)
{
    char text[4096];
    clv_error err = {0};
    clv_import *program = NULL;
    clv_import_fault_info fault = {.size = sizeof fault};
    snprintf(text, sizeof text, region_text, "{\"x\"}, {}",
             "%c = \"stablehlo.collective_broadcast\"(%b) " GROUPS("[[0, 2], [1, 3]]", "2x2") " : (tensor<2x2xf32>) -> "
                                                                                              "tensor<2x2xf32>");
    must(build_text(text, &program, &err), &err);
    must(clv_import_fault(program, 0, &fault, NULL), NULL);
    assert_null(fault.kind);
    assert_int_equal(clv_import_fault(program, -1, &fault, NULL), CLV_EINVAL);
    assert_int_equal(clv_import_fault(NULL, 0, &fault, NULL), CLV_EINVAL);
    clv_import_free(program);
}

/* ---- mhlo.sharding ---- */

static void check_hlo(const char *sharding, const char *want)
{
    char text[1024];
    clv_error err = {0};
    clv_import *program = NULL;
    clv_import_argument_or_result_info port = {.size = sizeof port};
    snprintf(text, sizeof text,
             "module {\n  func.func @main(%%a: tensor<8x8xf32> {mhlo.sharding = \"%s\"}) -> tensor<8x8xf32> {\n"
             "    return %%a : tensor<8x8xf32>\n  }\n}\n",
             sharding);
    clv_status status = build_text(text, &program, &err);
    if (status != CLV_OK) {
        if (!strstr(err.message, want) || strncmp(err.message, "a.mlir:2:", 9) != 0)
            fail_msg("%s: %s", sharding, err.message);
        clv_import_free(program);
        return;
    }
    must(clv_import_argument_or_result(program, 0, &port, NULL), NULL);
    assert_string_equal(port.sharding ? port.sharding : "", want);
    clv_import_free(program);
}

static void test_hlo_shardings(void **state)
{
    check_hlo("{replicated}", "_,_");
    check_hlo("{devices=[2,4]<=[8]}", "axis0,axis1");
    check_hlo("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "axis0,_");
    check_hlo("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "axis1,_");
    check_hlo("{devices=[1,8]<=[2,2,2]T(2,0,1)}", "_,(axis2,axis0,axis1)");
    check_hlo("{devices=[2,1,4]<=[8] last_tile_dims={replicated}}", "axis0,_");
    check_hlo("{devices=[2,2]0,1,2,3}", "axis0,axis1");
    check_hlo("{devices=[2,2]0,2,1,3}", "in an order that no mesh has");
    check_hlo("{devices=[3,2]<=[2,3]}", "that no mesh does");
    check_hlo("{devices=[2,4]<=[4]}", "does not divide its devices");
    check_hlo("{devices=[8]<=[8]}", "does not have the tensor's dimensions");
    check_hlo("{devices=[2,4]<=[2,4]T(0,0)}", "does not divide its devices");
    check_hlo("{maximal device=0}", "is none of replicated");
    check_hlo("{device=[2,4]<=[8] last_tile_dims={replicated}}", "is none of replicated");
    check_hlo("{manual}", "a manual mhlo.sharding");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stated_collectives),
                                       cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_mistakes),
                                       cmocka_unit_test(test_sound),
                                       cmocka_unit_test(test_measured),
                                       cmocka_unit_test(test_reports),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_broadcast),
                                       cmocka_unit_test(test_hlo_shardings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
