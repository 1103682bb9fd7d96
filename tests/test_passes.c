/* test_passes.c - each pass of the compiler by text: tests/passes/PASS.txt holds graphs and, behind each, the sharding
 * table after that pass. CLV_RENEW_PASSES=1 writes what the passes make now; the diff is what changed. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"
#include "partition/partitioner.h"
#include "partition/passes/passes.h"
#include "unit_test.h"

enum { TEXT = 1 << 16 };

/* The passes in their order; the last runs where nothing else is named. */
static clv_status choose_strategies(clv_partitioner *p, clv_error *err)
{
    CLV_TRY(clv_partitioner_init(p, err));
    CLV_TRY(clv_partition_propagate_layouts(p, err));
    return clv_partition_choose_strategies(p, err);
}

static clv_status compress_collectives(clv_partitioner *p, clv_error *err)
{
    return clv_compress_collectives(&p->table, p->options->comm_dtype, CLV_COMM_F32, err);
}

static clv_status recompute_activations(clv_partitioner *p, clv_error *err)
{
    return clv_recompute_activations(&p->table, p->options->recompute,
                                     p->options->reshard_after_forward != CLV_RESHARD_NONE, err);
}

static clv_status reduce_gradients_early(clv_partitioner *p, clv_error *err)
{
    return clv_reduce_gradients_early(&p->table, err);
}

/* The whole graph; until then the passes see the ranks of one stage. */
static const clv_graph *whole;

static clv_status place_stages(clv_partitioner *p, clv_error *err)
{
    p->table.graph = whole;
    return clv_place_stages(&p->table, err);
}

static const struct {
    const char *name;
    clv_status (*run)(clv_partitioner *p, clv_error *err);
} passes[] = {{"choose_strategies", choose_strategies},
              {"compress_collectives", compress_collectives},
              {"recompute_activations", recompute_activations},
              {"reduce_gradients_early", reduce_gradients_early},
              {"place_stages", place_stages}};
enum { N_PASSES = sizeof passes / sizeof *passes };

/* "# with comm_dtype=bf16 recompute=full": the first line of a graph that is compiled with options. */
static clv_compile_options options_of(const char *graph)
{
    clv_compile_options o = {.size = sizeof o};
    const char *with = strstr(graph, "# with "), *end = with ? strchr(with, '\n') : NULL;
    if (!with || !end)
        return o;
    if (strstr(with, "comm_dtype=bf16") && strstr(with, "comm_dtype=bf16") < end)
        o.comm_dtype = CLV_COMM_BF16;
    if (strstr(with, "recompute=full") && strstr(with, "recompute=full") < end)
        o.recompute = CLV_RECOMPUTE_FULL;
    if (strstr(with, "recompute=selective") && strstr(with, "recompute=selective") < end)
        o.recompute = CLV_RECOMPUTE_SELECTIVE;
    if (strstr(with, "keep_gathered") && strstr(with, "keep_gathered") < end)
        o.reshard_after_forward = CLV_RESHARD_NONE;
    return o;
}

/* The table of a graph after the pass of this name. */
static void run_until(char out[TEXT], const char *pass, const char *text)
{
    clv_error err = {0};
    clv_graph *graph;
    clv_cost_model cost;
    clv_compile_options options = options_of(text);
    must(clv_graph_parse(&graph, text, &err), &err);
    clv_cost_model_make(&cost, clv_graph_mesh(graph), NULL);
    clv_graph of_stage = *graph;
    whole = graph;
    if (graph->stage_axis > 0)
        of_stage.mesh.axis[graph->stage_axis - 1].size = 1;
    clv_partitioner p = {.graph = &of_stage, .scratch = clv_arena_new(), .options = &options, .cost = &cost};
    int i = 0;
    do {
        must(passes[i].run(&p, &err), &err);
        must(clv_sharding_table_verify(&p.table, &err), &err);
    } while (strcmp(passes[i].name, pass) != 0 && ++i < N_PASSES);
    assert_true(clv_sharding_table_print(out, TEXT, &p.table) < TEXT);
    clv_arena_free(p.scratch);
    clv_graph_free(graph);
}

/* A file: graphs and tables in turn, each ended by a line "----". */
static void check_file(const char *path, const char *pass)
{
    char *all = calloc(1, 4 * TEXT), *renewed = calloc(1, 8 * TEXT), *table = malloc(TEXT);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(all, 1, 4 * TEXT - 1, file) > 0);
    fclose(file);
    for (char *graph = all, *next; graph && *graph; graph = next) {
        char *want = strstr(graph, "----\n");
        if (!want)
            fail_msg("%s: a graph ends with a line ----", path);
        *want = '\0';
        want += strlen("----\n");
        char *end = strstr(want, "----\n");
        next = end ? end + strlen("----\n") : NULL;
        if (end)
            *end = '\0';
        run_until(table, pass, graph);
        sprintf(renewed + strlen(renewed), "%s----\n%s%s", graph, table, next ? "----\n" : "");
        if (!getenv("CLV_RENEW_PASSES") && strcmp(table, want) != 0)
            fail_msg("%s: of\n%sthe pass makes\n%sbut it should be\n%s", path, graph, table, want);
    }
    if (getenv("CLV_RENEW_PASSES")) {
        file = fopen(path, "w");
        assert_non_null(file);
        fputs(renewed, file);
        fclose(file);
    }
    free(all);
    free(renewed);
    free(table);
}

static void test_passes(void **state)
{
    char folder[4096], path[8192], name[256];
    snprintf(folder, sizeof folder, "%s/tests/passes", getenv("CLV_SOURCE_DIR"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (sscanf(e->d_name, "%200[a-z_].txt", name) == 1) {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            check_file(path, name);
            n++;
        }
    closedir(dir);
    assert_true(n >= N_PASSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
