/* test_profile.c - hardware profiles: what is refused, rates between measurements, and times against textbook formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/program.h"
#include "program/predict.h"

static const char *const valid =
    "{\"name\":\"n\",\"ranks_per_host\":4,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9,\"bf16\":4e9},"
    "\"memory_bytes_per_s\":1e8,\"efficiency\":0.5,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":1e7},"
    "\"network\":{\"alpha_s\":1e-3,\"bytes_per_s\":1e6},"
    "\"ops\":{\"map\":{\"f32\":[[100,1e6],[10000,1e8]]}}}";

static void parse(clv_profile *p, const char *text)
{
    clv_error err = {0};
    if (clv_profile_parse(p, text, strlen(text), "p.json", &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* `valid` with one piece replaced. */
static void refused(const char *piece, const char *by, const char *message)
{
    char text[2048];
    clv_error err = {0};
    static clv_profile p;
    const char *at = strstr(valid, piece);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - valid), valid, by, at + strlen(piece));
    assert_int_equal(clv_profile_parse(&p, text, strlen(text), "p.json", &err), CLV_EFORMAT);
    if (!strstr(err.message, message))
        fail_msg("'%s', expected '%s'", err.message, message);
}

static void test_refused(void **state)
{
    (void)state;
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
    refused("[10000,1e8]", "[100,1e8]", "pair 2 must be [work, rate]");
    refused("[[100,1e6],[10000,1e8]]", "[]", "must be a list of 1 to 16 pairs");
    refused("[10000,1e8]", "[10000,0]", "pair 2 must be");
}

static void close_to(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g, expected %.12g", got, want);
}

static void test_rates(void **state)
{
    static clv_profile p;
    (void)state;
    parse(&p, valid);
    close_to(clv_rate_at(&p.busy, "map", CLV_F32, 100), 1e6);
    close_to(clv_rate_at(&p.busy, "map", CLV_F32, 1), 1e6);
    close_to(clv_rate_at(&p.busy, "map", CLV_F32, 1e9), 1e8);
    close_to(clv_rate_at(&p.busy, "map", CLV_F32, 1000), 1e7); /* halfway over the logarithm */
    assert_true(clv_rate_at(&p.busy, "map", CLV_BF16, 1000) == 0);
    assert_true(clv_rate_at(&p.busy, "reduce", CLV_F32, 1000) == 0);
    close_to(p.flops_per_s[CLV_BF16], 4e9);
    close_to(p.flops_per_s[CLV_F16], 1e9);
}

static void test_written_as_read(void **state)
{
    static clv_profile p, q;
    char path[4096];
    clv_error err = {0};
    (void)state;
    parse(&p, valid);
    snprintf(path, sizeof path, "%s/test_profile.json", getenv("CLV_BUILD_DIR"));
    assert_int_equal(clv_profile_write(&p, path, &err), CLV_OK);
    assert_int_equal(clv_profile_read(&q, path, &err), CLV_OK);
    assert_string_equal(p.name, q.name);
    assert_int_equal(p.ranks_per_host, q.ranks_per_host);
    close_to(q.network.alpha_s, p.network.alpha_s);
    assert_int_equal(q.busy.n, 1);
    close_to(q.busy.item[0].rate[1], p.busy.item[0].rate[1]);
    remove(path);
}

static void test_shipped(void **state)
{
    static const char *const names[] = {"tpu-v2-8", "h100-nvlink-ib"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        static clv_profile p;
        char path[4096];
        clv_error err = {0};
        snprintf(path, sizeof path, "%s/data/profiles/%s.json", getenv("CLV_SOURCE_DIR"), names[i]);
        if (clv_profile_read(&p, path, &err) != CLV_OK)
            fail_msg("%s", err.message);
        assert_int_equal(p.ranks_per_host, 8);
        assert_true(p.network.bytes_per_s < p.host.bytes_per_s);
    }
}

/* ---- times ---- */

/* The only step of a product whose contracted dimension is split over `a` (an all_reduce of [8,1024] f32), or of bringing
 * [24,1024] f32 split over `a` together (an all_gather). */
static double step_seconds(const char *mesh_text, bool gather, const clv_profile *p)
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
            seconds = clv_predict_instruction(program, p, i);
            steps++;
        }
    assert_int_equal(steps, 1);
    clv_prediction all = clv_predict(program, p);
    assert_true(all.communication == seconds && (gather || all.seconds > seconds));
    clv_program_free(program);
    clv_graph_free(graph);
    return seconds;
}

/* A ring's 2 (n-1)/n L / bandwidth and one latency; over the network where a group leaves a host of four ranks. */
static void test_rings(void **state)
{
    static clv_profile p;
    const double reduced = 8 * 1024 * 4, gathered = 24 * 1024 * 4;
    (void)state;
    parse(&p, valid);
    close_to(step_seconds("a=2", false, &p), 1e-6 + 2 * reduced / 2 / 1e7);
    close_to(step_seconds("a=4", false, &p), 1e-6 + 2 * reduced * 3 / 4 / 1e7);
    close_to(step_seconds("a=8", false, &p), 1e-3 + 2 * reduced * 7 / 8 / 1e6);
    close_to(step_seconds("a=4", true, &p), 1e-6 + gathered * 3 / 4 / 1e7);
    close_to(step_seconds("b=2,a=4", true, &p), 1e-6 + gathered * 3 / 4 / 1e7); /* hosts are groups */
    close_to(step_seconds("a=2,b=4", true, &p), 1e-3 + gathered / 2 / 1e6);     /* 0 and 4, ... */
    close_to(step_seconds("b=4,a=2", true, &p), 1e-6 + gathered / 2 / 1e7);
    close_to(step_seconds("b=2,a=3", true, &p), 1e-3 + gathered * 2 / 3 / 1e6); /* 3, 4 and 5: two hosts */
}

/* A product without measured rates: its flops at the share of the peak that the profile states. */
static void test_efficiency(void **state)
{
    static clv_profile p;
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    const int64_t n = 512;
    (void)state;
    parse(&p, valid);
    p.busy.n = p.alone.n = 0;
    assert_int_equal(clv_mesh_parse(&mesh, "", &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){n, n}, NULL);
    clv_output(graph, "y", clv_einsum(graph, "ik,kj->ij", x, x), NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    double flops = 2.0 * (double)(n * n * n);
    for (int half = 0; half < 2; half++) {
        p.efficiency = half ? 0.5 : 1;
        close_to(clv_predict(program, &p).seconds - p.instruction_s, flops / (1e9 * p.efficiency));
    }
    clv_program_free(program);
    clv_graph_free(graph);
}

/* One rank goes by what was measured alone, if anything was; several by what was measured side by side. */
static void test_whose_rates(void **state)
{
    static clv_profile p;
    (void)state;
    parse(&p, valid);
    p.alone = p.busy;
    p.alone.item[0].rate[0] *= 2;
    p.alone.item[0].rate[1] *= 2;
    for (int ranks = 1; ranks <= 2; ranks++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_graph *graph;
        clv_program *program;
        assert_int_equal(clv_mesh_parse(&mesh, ranks == 1 ? "x=1" : "x=2", &err), CLV_OK);
        assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
        clv_layout layout = clv_graph_layout(graph, 1, "x");
        clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){64 * ranks}, &layout);
        clv_output(graph, "y", clv_map(graph, CLV_TANH, x), &layout);
        assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
        double work = clv_instruction_cost(program, 0).bytes;
        double alone = work / clv_rate_at(&p.alone, "map", CLV_F32, work),
               busy = work / clv_rate_at(&p.busy, "map", CLV_F32, work);
        close_to(clv_predict_instruction(program, &p, 0), p.instruction_s + (ranks == 1 ? alone : busy));
        clv_profile other = p;
        other.alone.n = 0;
        close_to(clv_predict_instruction(program, &other, 0), p.instruction_s + busy);
        clv_program_free(program);
        clv_graph_free(graph);
    }
}

/* What a rank takes out of its own memory is read and written there. */
static void test_slices(void **state)
{
    static clv_profile p;
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    (void)state;
    parse(&p, valid);
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_layout whole = clv_graph_layout(graph, 1, "_"), cut = clv_graph_layout(graph, 1, "x");
    clv_output(graph, "y", clv_input(graph, "x", CLV_F32, 1, (int64_t[]){4096}, &whole), &cut);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    assert_int_equal(program->n_instructions, 1);
    close_to(clv_predict_instruction(program, &p, 0), p.instruction_s + 2 * (2048.0 * 4) / p.memory_bytes_per_s);
    clv_program_free(program);
    clv_graph_free(graph);
}

static void test_crowded(void **state)
{
    static clv_profile p;
    (void)state;
    parse(&p, valid);
    double alone = step_seconds("a=4", false, &p);
    p.hosts = 1;
    p.ranks_per_host = 2;
    close_to(step_seconds("a=4", false, &p), 2 * alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_rates),  cmocka_unit_test(test_written_as_read),
        cmocka_unit_test(test_shipped),     cmocka_unit_test(test_rings),  cmocka_unit_test(test_efficiency),
        cmocka_unit_test(test_whose_rates), cmocka_unit_test(test_slices), cmocka_unit_test(test_crowded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
