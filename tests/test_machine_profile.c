/* test_machine_profile.c - hardware profiles: what is refused, rates between measurements, and times against textbook
 * formulas.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/program.h"
#include "measure/measure_network.h"
#include "program/program.h"
#include "unit_test.h"

static const char *const valid =
    "{\"name\":\"n\",\"ranks_per_host\":4,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9,\"bf16\":4e9},\"memory_"
    "bytes_per_s\":1e8,\"efficiency\":0.5,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":1e7},\"network\":{\"alpha_s\":1e-"
    "3,\"bytes_per_s\":1e6},\"ops\":{\"map\":{\"f32\":[[100,1e6],[10000,1e8]]}}}";

static clv_machine *parse(const char *text)
{
    clv_machine *p;
    clv_error err = {0};
    if (clv_machine_parse(&p, text, strlen(text), "p.json", &err) != CLV_OK)
        fail_msg("%s", err.message);
    return p;
}

/* `valid` with one piece replaced. */
static void refused(const char *piece, const char *by, const char *message)
{
    char text[2048];
    clv_error err = {0};
    clv_machine *p = NULL;
    const char *at = strstr(valid, piece);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - valid), valid, by, at + strlen(piece));
    assert_int_equal(clv_machine_parse(&p, text, strlen(text), "p.json", &err), CLV_EFORMAT);
    assert_null(p);
    if (!strstr(err.message, message))
        fail_msg("'%s', expected '%s'", err.message, message);
}

static void test_refused(void **state)
{
    refused("\"name\":\"n\",", "", "\"name\" is missing");
    refused("\"ranks_per_host\":4,", "", "\"ranks_per_host\" is missing");
    refused("\"ranks_per_host\":4", "\"ranks_per_host\":0", "\"ranks_per_host\" is 0, valid are 1 to");
    refused("\"memory_bytes\":1e9,", "", "\"memory_bytes\" is missing");
    refused("\"memory_bytes\":1e9", "\"memory_bytes\":-1", "\"memory_bytes\" is -1");
    refused("\"f32\":1e9,", "", "\"f32\" is missing");
    refused("\"efficiency\":0.5", "\"efficiency\":2", "\"efficiency\" is 2");
    refused("\"host\":{\"alpha_s\":1e-6,", "\"host\":{", "\"host\": \"alpha_s\" is missing");
    refused("\"network\":{\"alpha_s\":1e-3,\"bytes_per_s\":1e6},", "", "\"network\" is missing");
    refused("\"name\":\"n\"", "\"name\":\"n\",\"speed\":1", "unknown key \"speed\"; valid: name, source");
    refused("\"name\":\"n\"", "\"name\":\"n\",\"speed\":1", ", offload_bytes_per_s"); /* the last, too */
    refused("\"efficiency\":0.5", "\"expert_bias_bytes\":{\"forward\":1}", "\"recomputed\" is missing");
    refused("\"efficiency\":0.5", "\"expert_bias_bytes\":{\"up\":1}", "unknown key \"up\"; valid: forward");
    refused("\"efficiency\":0.5", "\"overlap\":\"some\"",
            "\"overlap\" is \"some\"; valid: all, network, weights, none");
    refused("\"efficiency\":0.5", "\"collectives\":\"tree\"", "\"collectives\" is \"tree\"; valid: ranks, root");
    refused("\"bytes_per_s\":1e7", "\"bytes_per_s\":1e7,\"shares\":1",
            "\"host\": unknown key \"shares\"; valid: alpha_s");
    refused("\"bytes_per_s\":1e7", "\"bytes_per_s\":1e7,\"share\":1", "\"host\": \"share\" must be a list of 1 to 16");
    refused("\"bytes_per_s\":1e6", "\"bytes_per_s\":1e6,\"share\":[[2,1],[2,1]]", "pair 2 must be [ranks, share]");
    refused("\"bytes_per_s\":1e6", "\"bytes_per_s\":1e6,\"share\":[[2,1.5]]", "pair 1 has share 1.5; valid: at most 1");
    refused("\"bytes_per_s\":1e6", "\"bytes_per_s\":1e6,\"share\":[[2,0.5],[4,0.6]]",
            "pair 2 has share 0.6; valid: at");
    refused("[10000,1e8]", "[100,1e8]", "pair 2 must be [work, rate]");
    refused("[[100,1e6],[10000,1e8]]", "[]", "must be a list of 1 to 16 pairs");
    refused("[10000,1e8]", "[10000,0]", "pair 2 must be");
    refused("\"name\":\"n\"", "\"name\":\"\"", "\"name\" is empty");
    refused("\"bf16\":4e9", "\"fp8\":4e9", "\"flops_per_s\": unknown dtype 'fp8'");
    refused("{\"map\":", "{\"dot_genral\":", "no op is named \"dot_genral\"; did you mean \"dot_general\"?");
    refused("{\"map\":", "{\"all_redcue\":", "did you mean \"all_reduce\"?");
    refused("\"efficiency\":0.5", "\"op_efficiency\":{\"attentoin\":0.5}", "did you mean \"attention\"?");
    refused("\"efficiency\":0.5", "\"op_traffic\":{\"normalise\":2}", "did you mean \"normalize\"?");
    refused("\"efficiency\":0.5", "\"published\":{\"runs\":1,\"error\":0,\"rule\":\"\"}", "unknown key \"rule\"");
    refused("\"efficiency\":0.5", "\"published\":{\"runs\":1,\"error\":0,\"dtype\":\"fp8\"}", "unknown dtype 'fp8'");
    /* of an entry that is not in use, too */
    refused("\"name\":\"n\"", "\"name\":\"n\",\"software\":{\"other\":{\"efficiency\":7}}",
            "\"software\": \"other\": \"efficiency\" is 7");
    char own[2048]; /* an op of the caller's own has any name */
    const char *at = strstr(valid, "\"map\"");
    snprintf(own, sizeof own, "%.*s\"my_op\"%s", (int)(at - valid), valid, at + strlen("\"map\""));
    clv_machine_free(parse(own));
}

static void close_to(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g, expected %.12g", got, want);
}

static void test_rates(void **state)
{
    clv_machine *p = parse(valid);
    close_to(clv_machine_rate(p, "map", CLV_F32, 100, 0), 1e6);
    close_to(clv_machine_rate(p, "map", CLV_F32, 1, 0), 1e6);
    close_to(clv_machine_rate(p, "map", CLV_F32, 1e9, 0), 1e8);
    close_to(clv_machine_rate(p, "map", CLV_F32, 1000, 0), 1e7); /* halfway over the logarithm */
    assert_true(clv_machine_rate(p, "map", CLV_F32, 1000, 1) == 0);
    assert_true(clv_machine_rate(p, "map", CLV_BF16, 1000, 0) == 0);
    assert_true(clv_machine_rate(p, "reduce", CLV_F32, 1000, 0) == 0);
    close_to(clv_machine_flops(p, CLV_BF16), 4e9);
    close_to(clv_machine_flops(p, CLV_F16), 1e9);
    clv_machine_free(p);
}

static void test_written_as_read(void **state)
{
    clv_machine *q;
    char path[4096];
    clv_error err = {0};
    clv_machine_info wrote = {.size = sizeof wrote}, read = {.size = sizeof read};
    clv_machine *p = parse(valid);
    p->logit_bytes = 4;
    p->fragmentation = 0.25;
    p->split_logit_bytes = 16;
    p->score_bytes = 5;
    p->gradient_bytes = 2;
    p->operand_bytes = 1;
    p->gathered_weight_bytes = 2;
    p->state_bytes = 16;
    p->ring_efficiency = 0.75;
    p->expert_bias = (clv_expert_bias){1, 2, 3};
    p->dispatches_copies = p->recomputes_matmuls = p->keeps_messages = true;
    p->overlap = CLV_OVERLAP_NETWORK;
    p->through_root = true;
    p->network_share = (clv_rate){.n = 2, .work = {4, 8}, .rate = {1, 0.5}};
    p->op_traffic = (clv_op_factors){1, {{"rope", 5}}};
    snprintf(path, sizeof path, "%s/test_machine_profile.json", getenv("CLV_BUILD_DIR"));
    assert_int_equal(clv_machine_write(p, path, &err), CLV_OK);
    assert_int_equal(clv_machine_open(&q, path, NULL, &err), CLV_OK);
    assert_int_equal(clv_machine_get_info(p, &wrote, &err), CLV_OK);
    assert_int_equal(clv_machine_get_info(q, &read, &err), CLV_OK);
    assert_string_equal(read.name, "n");
    assert_int_equal(read.ranks_per_host, 4);
    assert_int_equal(read.hosts, 0);
    close_to(read.memory_bytes, 1e9);
    close_to(read.memory_bytes_per_s, 1e8);
    close_to(read.efficiency, 0.5);
    close_to(read.host.bytes_per_s, 1e7);
    close_to(read.network.alpha_s, wrote.network.alpha_s);
    close_to(clv_machine_rate(q, "map", CLV_F32, 10000, 0), 1e8);
    close_to(q->logit_bytes, 4);
    close_to(q->fragmentation, 0.25);
    close_to(q->split_logit_bytes, 16);
    close_to(q->score_bytes, 5);
    close_to(q->gradient_bytes, 2);
    close_to(q->operand_bytes, 1);
    close_to(q->gathered_weight_bytes, 2);
    close_to(q->state_bytes, 16);
    close_to(q->ring_efficiency, 0.75);
    assert_true(q->expert_bias.forward == 1 && q->expert_bias.recomputed == 2 && q->expert_bias.backward == 3);
    assert_true(q->dispatches_copies && q->recomputes_matmuls && q->keeps_messages);
    assert_int_equal(q->overlap, CLV_OVERLAP_NETWORK);
    assert_true(q->through_root && q->host_share.n == 0 && q->network_share.n == 2);
    close_to(clv_rate_at(&q->network_share, 8), 0.5);
    close_to(clv_op_factor(&q->op_traffic, "rope", 1), 5);
    remove(path);
    clv_machine_free(p);
    clv_machine_free(q);
}

/* Those that the library has are by name what the files are. */
static void test_shipped(void **state)
{
    int n = 0;
    for (const char *name; (name = clv_machine_builtin_name(n)) != NULL; n++) {
        clv_machine *p[2];
        clv_machine_info info[2] = {{.size = sizeof info[0]}, {.size = sizeof info[0]}};
        char path[4096];
        clv_error err = {0};
        snprintf(path, sizeof path, "%s/data/profiles/%s.json", getenv("CLV_SOURCE_DIR"), name);
        for (int k = 0; k < 2; k++) {
            if (clv_machine_open(&p[k], k ? path : name, NULL, &err) != CLV_OK)
                fail_msg("%s", err.message);
            assert_int_equal(clv_machine_get_info(p[k], &info[k], &err), CLV_OK);
        }
        assert_string_equal(info[0].name, info[1].name);
        assert_string_equal(info[0].name, name);
        assert_true(info[0].network.bytes_per_s < info[0].host.bytes_per_s);
        close_to(info[0].memory_bytes, info[1].memory_bytes);
        for (int k = 0; k < 2; k++)
            clv_machine_free(p[k]);
    }
    assert_true(n >= 16);
}

/* NULL is a machine; what is neither a file nor known is refused with the names that are. */
static void test_default(void **state)
{
    clv_machine_info info = {.size = sizeof info};
    clv_machine *p = NULL;
    clv_error err = {0};
    assert_int_equal(clv_machine_get_info(NULL, &info, &err), CLV_OK);
    assert_string_equal(info.name, "default");
    assert_true(isinf(info.memory_bytes));
    close_to(clv_machine_flops(NULL, CLV_I64), 100e9);
    assert_true(clv_machine_rate(NULL, "map", CLV_F32, 10, 0) == 0);
    assert_int_equal(clv_machine_open(&p, "no/such", NULL, &err), CLV_ENOTFOUND);
    for (int i = 0; clv_machine_builtin_name(i); i++)
        assert_non_null(strstr(err.message, clv_machine_builtin_name(i)));
    assert_null(p);
}

static void count_calls(void *calls, int64_t done, int64_t of)
{
    assert_true(*(int *)calls == done && of == 1);
    ++*(int *)calls;
}

/* The smallest block, on two ranks: every figure is there, and a program can be predicted by it. */
static void test_measured(void **state)
{
    clv_machine *p;
    int calls = 0;
    clv_error err = {0};
    clv_machine_info info = {.size = sizeof info};
    const clv_measure_options options = {.ranks = 2, .blocks = 1, .progress = count_calls, .progress_arg = &calls};
    if (clv_machine_measure(&p, &options, &err) != CLV_OK)
        fail_msg("%s", err.message);
    assert_int_equal(calls, 2);
    assert_int_equal(clv_machine_get_info(p, &info, &err), CLV_OK);
    assert_string_equal(info.name, "this host");
    assert_true(info.ranks_per_host == 2 && info.hosts == 1 && info.memory_bytes > 0 && info.memory_bytes_per_s > 0);
    assert_true(info.host.alpha_s > 0 && info.host.bytes_per_s > 0 && clv_machine_flops(p, CLV_F32) > 0);
    for (int alone = 0; alone < 2; alone++)
        assert_true(clv_machine_rate(p, "dot_general", CLV_F32, 1e6, alone) > 0);
    assert_true(clv_machine_rate(p, "all_reduce", CLV_F32, 1e4, 0) > 0);
    assert_true(clv_machine_rate(p, "all_reduce", CLV_F32, 1e4, 1) == 0);
    clv_machine_free(p);
}

static void test_cpu(void **state)
{
    clv_cpu_info info = {.size = sizeof info};
    assert_int_equal(clv_cpu_get_info(&info, NULL), CLV_OK);
    assert_true(strcmp(info.kernels, "portable") == 0 || strncmp(info.kernels, "avx", 3) == 0 ||
                strcmp(info.kernels, "amx") == 0);
    assert_int_equal(strncmp(info.products, "oneDNN ", 7), 0);
    assert_true(info.cores >= 1);
}

/* ---- times ---- */

/* What the step is, as those who read programs see it. */
static void check_step(const clv_program *program, int i, bool gather)
{
    clv_instruction_info info = {.size = sizeof info};
    assert_int_equal(clv_program_instruction(program, i, &info, NULL), CLV_OK);
    assert_string_equal(info.kind, gather ? "all_gather" : "all_reduce");
    assert_true(info.moves && !info.backward && info.flops == 0 && info.n_axes == 1);
    assert_int_equal(info.dtype, CLV_F32);
    clv_collective c = {.size = sizeof c};
    assert_int_equal(clv_program_collective(program, info.collective, &c, NULL), CLV_OK);
    assert_true(c.instruction == i && c.bytes == info.bytes && info.work == info.bytes);
    assert_string_equal(c.op, info.name);
}

/* The only step of a product whose contracted dimension is split over `a` (an all_reduce of [8,1024] f32), or of
 * bringing [24,1024] f32 split over `a` together (an all_gather). */
static double step_seconds(const char *mesh_text, bool gather, const clv_machine *p)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_layout whole = clv_layout_replicated(2);
    clv_layout a = clv_graph_layout(graph, 2, gather ? "a,_" : "_,a"), b = clv_graph_layout(graph, 2, "a,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){gather ? 24 : 8, gather ? 1024 : 2400}, &a);
    if (!gather)
        x = clv_einsum(graph, "ik,kj->ij", x, clv_input(graph, "w", CLV_F32, 2, (int64_t[]){2400, 1024}, &b));
    clv_output(graph, "y", x, &whole);
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK)
        fail_msg("%s", err.message);
    double seconds = 0;
    int steps = 0;
    for (int i = 0; i < program->n_instructions; i++)
        if (!program->instructions[i].op && clv_step_moves(program->instructions[i].step->kind)) {
            seconds = clv_program_predict_instruction(program, p, i);
            check_step(program, i, gather);
            steps++;
        }
    assert_int_equal(steps, 1);
    clv_prediction all = {.size = sizeof all};
    assert_int_equal(clv_program_predict(program, p, &all, &err), CLV_OK);
    assert_true(all.communication == seconds && (gather || all.seconds > seconds));
    clv_program_free(program);
    clv_graph_free(graph);
    return seconds;
}

/* A ring's 2 (n-1)/n L / bandwidth and one latency; over the network where a group leaves a host of four ranks. */
static void test_rings(void **state)
{
    const double reduced = 8 * 1024 * 4, gathered = 24 * 1024 * 4;
    clv_machine *p = parse(valid);
    close_to(step_seconds("a=2", false, p), 1e-6 + 2 * reduced / 2 / 1e7);
    close_to(step_seconds("a=4", false, p), 1e-6 + 2 * reduced * 3 / 4 / 1e7);
    close_to(step_seconds("a=8", false, p), 1e-3 + 2 * reduced * 7 / 8 / 1e6);
    close_to(step_seconds("a=4", true, p), 1e-6 + gathered * 3 / 4 / 1e7);
    close_to(step_seconds("b=2,a=4", true, p), 1e-6 + gathered * 3 / 4 / 1e7); /* hosts are groups */
    close_to(step_seconds("a=2,b=4", true, p), 1e-3 + gathered / 2 / 1e6);     /* 0 and 4, ... */
    close_to(step_seconds("b=4,a=2", true, p), 1e-6 + gathered / 2 / 1e7);
    close_to(step_seconds("b=2,a=3", true, p), 1e-3 + gathered * 2 / 3 / 1e6); /* 3, 4 and 5: two hosts */
    clv_machine_free(p);
}

/* Collectives that cross hosts go by what was measured of them, where anything was; others do not. */
static void test_across_hosts(void **state)
{
    const double reduced = 8 * 1024 * 4, gathered = 24 * 1024 * 4;
    clv_machine *p = parse(valid), *copy, *again;
    clv_error err = {0};
    clv_rate *far = clv_rates_add(&p->rates_network);
    *far = (clv_rate){.op = "all_reduce", .n = 2, .work = {100, 1e6}, .rate = {2e5, 2e5}};
    char path[64] = "profile_across_hosts.json";
    assert_int_equal(clv_machine_write(p, path, &err), CLV_OK);
    assert_int_equal(clv_machine_open(&again, path, NULL, &err), CLV_OK);
    remove(path);
    assert_int_equal(clv_machine_copy(&copy, p, &err), CLV_OK);
    clv_machine *const all[] = {p, again, copy};
    for (int i = 0; i < 3; i++) {
        close_to(step_seconds("a=8", false, all[i]), 2 * reduced * 7 / 8 / 2e5);
        close_to(step_seconds("a=4", false, all[i]), 1e-6 + 2 * reduced * 3 / 4 / 1e7);
        close_to(step_seconds("a=2,b=4", true, all[i]), 1e-3 + gathered / 2 / 1e6);
        clv_machine_free(all[i]);
    }
}

/* A link is divided among the ranks that use it: those of a host, or all of the mesh for the network. */
static void test_shared_links(void **state)
{
    const double reduced = 8 * 1024 * 4;
    static const char *const meshes[] = {"a=2", "a=4", "b=2,a=4", "a=8", "a=16", "a=2,b=8"};
    clv_machine *p = parse(valid), *q = parse(valid);
    q->host_share = q->network_share = (clv_rate){.n = 2, .work = {1, 1024}, .rate = {1, 1}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        assert_true(step_seconds(meshes[i], false, p) == step_seconds(meshes[i], false, q));
    q->host_share = (clv_rate){.n = 2, .work = {1, 4}, .rate = {1, 0.25}}; /* a bus: as much together as alone */
    q->network_share = (clv_rate){.n = 2, .work = {8, 16}, .rate = {1, 0.5}};
    close_to(step_seconds("a=2", false, q), 1e-6 + 2 * reduced / 2 / (1e7 / 2));
    close_to(step_seconds("a=4", false, q), 1e-6 + 2 * reduced * 3 / 4 / (1e7 / 4));
    close_to(step_seconds("b=2,a=4", false, q), 1e-6 + 2 * reduced * 3 / 4 / (1e7 / 4)); /* each host has a bus */
    close_to(step_seconds("a=8", false, q), 1e-3 + 2 * reduced * 7 / 8 / 1e6);
    close_to(step_seconds("a=2,b=8", false, q), 1e-3 + 2 * reduced / 2 / (1e6 / 2)); /* 8 groups at once */
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        double before = step_seconds(meshes[i], false, q);
        for (int k = 0; k < 2; k++) {
            q->host_share.rate[k] /= 2;
            q->network_share.rate[k] /= 2;
        }
        assert_true(step_seconds(meshes[i], false, q) > before); /* less of it takes longer */
    }
    clv_machine_free(p);
    clv_machine_free(q);
}

/* A root receives from each of the others and sends to each, one after the other: over n ranks n times the bytes. */
static void test_through_root(void **state)
{
    const double reduced = 8 * 1024 * 4, gathered = 24 * 1024 * 4;
    clv_machine *p = parse(valid);
    p->through_root = true;
    close_to(step_seconds("a=2", false, p), 2e-6 + 2 * reduced / 1e7);
    close_to(step_seconds("a=4", false, p), 6e-6 + 6 * reduced / 1e7);
    close_to(step_seconds("a=4", true, p), 6e-6 + 3 * gathered / 1e7);
    close_to(step_seconds("a=8", false, p), 14e-3 + 14 * reduced / 1e6);
    close_to(step_seconds("a=2,b=4", true, p), 2e-3 + gathered / 1e6); /* groups of two: a root each */
    clv_machine_free(p);
}

/* The link that measurements lie on, and one near them. */
static void test_link_fit(void **state)
{
    const double bytes[] = {64, 1024, 65536, 1 << 20};
    double seconds[4];
    for (int i = 0; i < 4; i++)
        seconds[i] = 1e-4 + bytes[i] / 1e8;
    clv_machine_link link = clv_fit_link(bytes, seconds, 4);
    assert_true(fabs(link.alpha_s - 1e-4) < 1e-9 && fabs(link.bytes_per_s - 1e8) < 1);
    for (int i = 0; i < 4; i++)
        seconds[i] *= i % 2 ? 1.1 : 0.9;
    link = clv_fit_link(bytes, seconds, 4);
    assert_true(fabs(link.alpha_s - 1e-4) < 2e-5 && fabs(link.bytes_per_s - 1e8) < 2e7);
    for (int i = 0; i < 4; i++)
        seconds[i] = 1e-4; /* whatever the size */
    link = clv_fit_link(bytes, seconds, 4);
    assert_true(link.alpha_s > 0 && link.bytes_per_s > 0 && isfinite(link.alpha_s) && isfinite(link.bytes_per_s));
}

/* A product without measured rates: its flops at the share of the peak that the profile states. */
static void test_efficiency(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    const int64_t n = 512;
    clv_machine *p = parse(valid);
    p->rates_shared.n = p->rates_alone.n = 0;
    assert_int_equal(clv_mesh_parse(&mesh, "", &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){n, n}, NULL);
    clv_output(graph, "y", clv_einsum(graph, "ik,kj->ij", x, x), NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    double flops = 2.0 * (double)(n * n * n);
    for (int half = 0; half < 4; half++) {
        p->efficiency = half % 2 ? 0.5 : 1;
        p->op_efficiency.n = half == 3; /* an op's own goes first */
        p->op_efficiency.item[0].factor = 0.25;
        strcpy(p->op_efficiency.item[0].op, "dot_general");
        p->k_half = half < 2 ? 0 : 256;
        clv_prediction all = {.size = sizeof all};
        assert_int_equal(clv_program_predict(program, p, &all, &err), CLV_OK);
        close_to(all.seconds - p->instruction_s,
                 flops / (1e9 * (half == 3 ? 0.25 : p->efficiency)) * (half < 2 ? 1 : 1.5));
        close_to(all.flops, flops);
        clv_instruction_info info = {.size = sizeof info};
        assert_int_equal(clv_program_instruction(program, 0, &info, &err), CLV_OK);
        assert_string_equal(info.kind, "dot_general");
        assert_true(info.collective == -1 && !info.moves && info.n_axes == 0);
        close_to(info.flops, flops);
        close_to(info.work, flops);
        close_to(info.bytes, 3 * 4.0 * (double)(n * n));
        close_to(all.memory_bytes, 1e9);
    }
    clv_program_free(program);
    clv_graph_free(graph);
    clv_machine_free(p);
}

/* What another program reaches replaces the profile's figures, op by op. */
static void test_software(void **state)
{
    static const char entry[] =
        "\"name\":\"n\",\"software\":{\"other\":{\"source\":\"s\",\"k_half\":256,\"traffic_factor\":3,\"instruction_"
        "s\":1e-6,\"op_efficiency\":{\"dot_general\":0.25},\"op_traffic\":{\"map\":7},\"overlap\":\"weights\",\"ops\":{"
        "\"map\":{\"bf16\":[[1,2e6]]},\"reduce\":{\"f32\":[[1,5]]}}}}";
    char path[4096], text[2048];
    clv_error err = {0};
    clv_machine_info info = {.size = sizeof info};
    clv_machine *p;
    (void)state;
    refused("\"name\":\"n\"", "\"name\":\"n\",\"software\":{\"other\":{\"speed\":1}}",
            "\"other\": unknown key \"speed\"; valid: source, flops_per_s, efficiency");
    refused("\"name\":\"n\"", "\"name\":\"n\",\"software\":[]", "p.json: \"software\": not a JSON object");
    snprintf(text, sizeof text, "{%s%s", entry, strchr(valid, ','));
    snprintf(path, sizeof path, "%s/test_machine_software.json", getenv("CLV_BUILD_DIR"));
    FILE *file = fopen(path, "w");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
    for (int with = 0; with < 2; with++) {
        assert_int_equal(clv_machine_open(&p, path, with ? "other" : NULL, &err), CLV_OK);
        assert_int_equal(clv_machine_get_info(p, &info, &err), CLV_OK);
        assert_string_equal(info.software, with ? "other" : "");
        close_to(info.efficiency, 0.5);
        close_to(info.k_half, with ? 256 : 0);
        close_to(info.traffic_factor, with ? 3 : 1);
        close_to(info.instruction_s, with ? 1e-6 : 0);
        close_to(clv_op_factor(&p->op_efficiency, "dot_general", 1), with ? 0.25 : 1);
        close_to(clv_op_factor(&p->op_traffic, "map", 1), with ? 7 : 1);
        assert_int_equal(p->overlap, with ? CLV_OVERLAP_WEIGHTS : CLV_OVERLAP_ALL);
        close_to(clv_machine_rate(p, "map", CLV_F32, 100, 0), 1e6);
        close_to(clv_machine_rate(p, "map", CLV_BF16, 100, 0), with ? 2e6 : 0);
        close_to(clv_machine_rate(p, "reduce", CLV_F32, 100, 0), with ? 5 : 0);
        clv_machine_free(p);
    }
    p = NULL;
    assert_int_equal(clv_machine_open(&p, path, "wrong", &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "no software \"wrong\"; valid: other"));
    err = (clv_error){0};
    assert_int_equal(clv_machine_open(&p, "tpu-v2-8", "other", &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "valid: none, the profile lists no software"));
    assert_null(p);
    remove(path);
}

/* One rank goes by what was measured alone, if anything was; several by what was measured side by side. */
static void test_whose_rates(void **state)
{
    clv_machine *p = parse(valid);
    clv_rate *quiet = clv_rates_add(&p->rates_alone);
    *quiet = p->rates_shared.item[0];
    quiet->rate[0] *= 2;
    quiet->rate[1] *= 2;
    for (int ranks = 1; ranks <= 2; ranks++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_graph *graph;
        clv_program *program;
        assert_int_equal(clv_mesh_parse(&mesh, ranks == 1 ? "x=1" : "x=2", &err), CLV_OK);
        assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
        clv_layout layout = clv_graph_layout(graph, 1, "x");
        clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){64 * ranks}, &layout);
        clv_output(graph, "y", clv_unary(graph, CLV_TANH, x), &layout);
        assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
        double work = clv_instruction_work(program, 0).bytes;
        double alone = work / clv_machine_rate(p, "map", CLV_F32, work, 1),
               busy = work / clv_machine_rate(p, "map", CLV_F32, work, 0);
        close_to(clv_program_predict_instruction(program, p, 0), p->instruction_s + (ranks == 1 ? alone : busy));
        p->rates_alone.n = 0;
        close_to(clv_program_predict_instruction(program, p, 0), p->instruction_s + busy);
        p->rates_alone.n = p->rates_shared.n = 0;
        for (p->traffic_factor = 1; p->traffic_factor <= 3; p->traffic_factor += 2)
            close_to(clv_program_predict_instruction(program, p, 0),
                     p->instruction_s + p->traffic_factor * work / p->memory_bytes_per_s);
        p->op_traffic = (clv_op_factors){1, {{"map", 9}}};
        close_to(clv_program_predict_instruction(program, p, 0), p->instruction_s + 9 * work / p->memory_bytes_per_s);
        p->traffic_factor = 1;
        p->op_traffic.n = 0;
        p->rates_alone.n = p->rates_shared.n = 1;
        clv_program_free(program);
        clv_graph_free(graph);
    }
    clv_machine_free(p);
}

/* What a rank takes out of its own memory is read and written there. */
static void test_slices(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    clv_machine *p = parse(valid);
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_layout whole = clv_graph_layout(graph, 1, "_"), cut = clv_graph_layout(graph, 1, "x");
    clv_output(graph, "y", clv_input(graph, "x", CLV_F32, 1, (int64_t[]){4096}, &whole), &cut);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    assert_int_equal(program->n_instructions, 1);
    close_to(clv_program_predict_instruction(program, p, 0),
             p->instruction_s + 2 * (2048.0 * 4) / p->memory_bytes_per_s);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_machine_free(p);
}

static void test_crowded(void **state)
{
    clv_machine *p = parse(valid);
    double alone = step_seconds("a=4", false, p);
    p->hosts = 1;
    p->ranks_per_host = 2;
    close_to(step_seconds("a=4", false, p), 2 * alone);
    clv_machine_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_rates),       cmocka_unit_test(test_default),
        cmocka_unit_test(test_cpu),          cmocka_unit_test(test_measured),    cmocka_unit_test(test_written_as_read),
        cmocka_unit_test(test_shipped),      cmocka_unit_test(test_rings),       cmocka_unit_test(test_across_hosts),
        cmocka_unit_test(test_link_fit),     cmocka_unit_test(test_efficiency),  cmocka_unit_test(test_whose_rates),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_crowded),     cmocka_unit_test(test_software),
        cmocka_unit_test(test_shared_links), cmocka_unit_test(test_through_root)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
