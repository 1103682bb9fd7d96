/* test_multi_host_layouts.c - programs compiled for a machine: axes that cross hosts cost what they cost. */
#include <stdio.h>
#include <string.h>

#include "cleave/program.h"
#include "gpt_block.h"
#include "unit_test.h"

static clv_machine *machine_of(int ranks_per_host, double network_bytes_per_s)
{
    char json[512];
    clv_error err = {0};
    clv_machine *machine;
    snprintf(json, sizeof json,
             "{\"name\": \"hosts\", \"ranks_per_host\": %d, \"hosts\": 0, \"memory_bytes\": 1e12, \"flops_per_s\": "
             "{\"f32\": 1e14}, \"memory_bytes_per_s\": 2e12, \"efficiency\": 0.5, \"instruction_s\": 1e-6, "
             "\"host\": {\"alpha_s\": 5e-6, \"bytes_per_s\": 3e11}, "
             "\"network\": {\"alpha_s\": 2e-5, \"bytes_per_s\": %g}}",
             ranks_per_host, network_bytes_per_s);
    must(clv_machine_parse(&machine, json, strlen(json), "machine", &err), &err);
    return machine;
}

/* A block with the gradients of its weights, under a preset. */
static clv_graph *block(const char *mesh_text, const char *preset, int64_t hidden)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    return must_block_with_gradients(&mesh, &rules, (int64_t[]){16, 256, hidden}, 16, 4 * hidden);
}

/* What is counted of a program on a machine: seconds, and bytes by whether the step's axes hold the major part of the
 * first axis. */
typedef struct counts {
    double seconds, near_bytes, far_bytes;
} counts;

static counts compile_with(const clv_graph *graph, clv_compile_options options, const clv_machine *machine)
{
    clv_error err = {0};
    clv_program *program;
    clv_prediction predicted = {.size = sizeof predicted};
    counts c = {0};
    must(clv_compile(&program, graph, &options, &err), &err);
    must(clv_program_predict(program, machine, &predicted, &err), &err);
    c.seconds = predicted.seconds;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective step = {.size = sizeof step};
        assert_int_equal(clv_program_collective(program, i, &step, &err), CLV_OK);
        bool crosses = false;
        for (int a = 0; a < step.n_axes; a++)
            crosses = crosses || (step.axes[a].axis == 0 && step.axes[a].pre == 1);
        *(crosses ? &c.far_bytes : &c.near_bytes) += step.bytes;
    }
    clv_program_free(program);
    return c;
}

static counts compile(const clv_graph *graph, const clv_machine *chosen_by, const clv_machine *machine)
{
    return compile_with(graph, (clv_compile_options){.size = sizeof(clv_compile_options), .machine = chosen_by},
                        machine);
}

/* Half of X crosses hosts of eight ranks. Made for that machine, less goes over the network, more inside hosts, and it
 * takes less time. */
static void less_over_the_network(void **state)
{
    clv_graph *graph = block("X=4,Y=4", "gspmd-2d", 1024);
    clv_machine *hosts = machine_of(8, 2e10);
    counts blind = compile(graph, NULL, hosts), seen = compile(graph, hosts, hosts);
    assert_true(seen.seconds < 0.8 * blind.seconds);
    assert_true(seen.far_bytes < 0.4 * blind.far_bytes);
    assert_true(seen.near_bytes > blind.near_bytes);
    clv_machine_free(hosts);
    clv_graph_free(graph);
}

/* FSDP over two hosts of eight ranks: of the B bytes of weights each host lacks a half, of which each rank receives an
 * eighth, B/16, over the network, and as much of the gradients' sums (up to a
 * tenth more with biases, norms and statistics). The default machine, where all ranks are on one host, gathers at once.
 * */
static void ranks_share_the_gathers_of_fsdp(void **state)
{
    const double hidden = 256, weights = 4 * 12 * hidden * hidden; /* of a GPT block, without biases and norms */
    clv_graph *graph = block("data=16", "fsdp", (int64_t)hidden);
    clv_machine *hosts = machine_of(8, 2e9);
    (void)state;
    clv_compile_options once = {.size = sizeof once, .reshard_after_forward = CLV_RESHARD_NONE};
    counts blind = compile_with(graph, once, hosts);
    once.machine = hosts;
    counts seen = compile_with(graph, once, hosts);
    assert_true(blind.far_bytes > 2 * weights * 15 / 16 && blind.near_bytes == 0);
    assert_true(seen.far_bytes >= 2 * weights / 16 && seen.far_bytes < 1.1 * 2 * weights / 16);
    assert_true(seen.seconds < blind.seconds / 3);
    /* The backward pass gathers again, once for what it recomputes and for gradients. */
    clv_compile_options options = {.size = sizeof options,
                                   .machine = hosts,
                                   .recompute = CLV_RECOMPUTE_FULL,
                                   .reshard_after_forward = CLV_RESHARD_ALL};
    seen = compile_with(graph, options, hosts);
    assert_true(seen.far_bytes > 2 * weights / 16 && seen.far_bytes < 1.1 * 3 * weights / 16);
    clv_machine_free(hosts);
    clv_graph_free(graph);
}

/* Two hosts of two ranks: the mesh whose last axis is the one that moves most is the faster one, as that axis is inside
 * hosts then; bytes of the first axis alone cross them. */
static void chattiest_axis_inside(void **state)
{
    clv_machine *hosts = machine_of(2, 2e9);
    clv_graph *inside = block("data=2,model=2", "megatron", 512), *across = block("model=2,data=2", "megatron", 512);
    counts good = compile(inside, hosts, hosts), bad = compile(across, hosts, hosts);
    assert_true(good.near_bytes > good.far_bytes && good.far_bytes > 0);
    assert_true(bad.far_bytes > bad.near_bytes);
    assert_true(good.seconds < 0.8 * bad.seconds);
    clv_machine_free(hosts);
    clv_graph_free(inside);
    clv_graph_free(across);
}

/* One product, whatever the operands' layouts: the search is exact, so the machine's choice is never slower on it. */
static void one_op_is_never_slower(void **state)
{
    static const char *const layouts[] = {"_,_", "x,_", "_,x", "y,_", "_,y", "x,y", "y,x", "(x,y),_", "_,(y,x)"};
    enum { N = sizeof layouts / sizeof *layouts };
    int better = 0;
    for (int per_host = 1; per_host <= 8; per_host *= 2)
        for (int i = 0; i < N * N * N; i++) {
            clv_graph *graph = must_graph("x=2,y=4");
            clv_layout a = clv_graph_layout(graph, 2, layouts[i % N]),
                       b = clv_graph_layout(graph, 2, layouts[i / N % N]),
                       to = clv_graph_layout(graph, 2, layouts[i / N / N]);
            clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){1024, 512}, &a);
            clv_value w = clv_input(graph, "w", CLV_F32, 2, (int64_t[]){512, 2048}, &b);
            clv_output(graph, "y", clv_einsum(graph, "ik,kj->ij", x, w), &to);
            clv_machine *machine = machine_of(per_host, 2e10);
            double blind = compile(graph, NULL, machine).seconds, seen = compile(graph, machine, machine).seconds;
            better += seen < 0.99 * blind;
            if (seen > blind * (1 + 1e-3))
                fail_msg("%d a host, %s, %s -> %s: %g s, by default %g s", per_host, layouts[i % N], layouts[i / N % N],
                         layouts[i / N / N], seen, blind);
            clv_machine_free(machine);
            clv_graph_free(graph);
        }
    assert_true(better > 100);
}

/* Blocks: each op is chosen for itself, but all in all the machine's plan is no slower. */
static void blocks_are_no_slower(void **state)
{
    static const struct {
        const char *mesh, *rules;
    } cases[] = {{"data=2,model=8", "megatron"},
                 {"data=4,model=4", "fsdp+megatron-sp"},
                 {"data=4,model=4", "megatron-sp"},
                 {"X=2,Y=8", "gspmd-2d"},
                 {"model=16", "megatron-sp"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_graph *graph = block(cases[c].mesh, cases[c].rules, 512);
        for (int per_host = 2; per_host <= 8; per_host *= 2)
            for (double network = 2e9; network < 1e12; network *= 10) {
                clv_machine *machine = machine_of(per_host, network);
                double blind = compile(graph, NULL, machine).seconds, seen = compile(graph, machine, machine).seconds;
                if (seen > blind * 1.02)
                    fail_msg("%s, %s, %d a host, network of %g B/s: %g s, by default %g s", cases[c].mesh,
                             cases[c].rules, per_host, network, seen, blind);
                clv_machine_free(machine);
            }
        clv_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(less_over_the_network), cmocka_unit_test(chattiest_axis_inside),
                                       cmocka_unit_test(ranks_share_the_gathers_of_fsdp),
                                       cmocka_unit_test(one_op_is_never_slower),
                                       cmocka_unit_test(blocks_are_no_slower)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
