/* test_cli_longest_names.c - texts as long as they may be: a mesh of sixteen axes whose names have as many letters as
 * are valid comes out whole wherever it is printed or written. */
#include <stdio.h>
#include <string.h>

#include "cleave/mesh.h"
#include "cli_run.h"
#include "unit_test.h"

static char out[CLI_OUTPUT];

/* Axes 0 to `doubled` - 1 have two ranks, the others one. */
static const char *long_mesh(int doubled)
{
    static char text[CLV_MESH_TEXT];
    size_t used = 0;
    for (int i = 0; i < CLV_MAX_AXES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%saxis_of_thirty_one_characters_%x=%d", i ? "," : "",
                                 (unsigned)i, i < doubled ? 2 : 1);
    assert_true(used < sizeof text);
    return text;
}

/* Rules that cut the MLP over the first five axes. */
static const char *const rules = "{d}/long_rules.json";

static int make_rules(void **state)
{
    cli_shell("echo '{\"rules\": [[\"mlp\", [\"axis_of_thirty_one_characters_0\", "
              "\"axis_of_thirty_one_characters_1\", \"axis_of_thirty_one_characters_2\", "
              "\"axis_of_thirty_one_characters_3\", \"axis_of_thirty_one_characters_4\"]]]}' > %s",
              rules);
    return 0;
}

static void test_longest_mesh(void **state)
{
    char text[CLV_MESH_TEXT], printed[CLV_MESH_TEXT];
    clv_mesh mesh;
    snprintf(text, sizeof text, "%s", long_mesh(15));
    assert_int_equal(clv_mesh_parse(&mesh, text, NULL), CLV_OK);
    mesh.axis[15].size = 65535; /* 2^31 - 32768 ranks: no more digits are possible by much */
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_OK);
    assert_true(clv_mesh_print(printed, sizeof printed, &mesh) < CLV_MESH_TEXT);
}

static void test_programs(void **state)
{
    cli_expect(0, long_mesh(5), "bench block --layers 1 --hidden 64 --program --mesh %s --rules %s", long_mesh(5),
               rules);
    cli_expect(0, long_mesh(5), "plan --block ffn --show up.weight --mesh %s --rules %s", long_mesh(5), rules);
    cli_expect(0,
               "axis_of_thirty_one_characters_0,axis_of_thirty_one_characters_1,axis_of_thirty_one_characters_2,"
               "axis_of_thirty_one_characters_3,axis_of_thirty_one_characters_4 ",
               "plan --block ffn --collectives --wide --mesh %s --rules %s", long_mesh(5), rules);
}

/* The advice of a plan that does not fit names meshes, too. */
static void test_advice(void **state)
{
    assert_int_equal(
        1, cli_run(out, "plan --block ffn --grad --memory-limit 1K --all --mesh %s --rules %s", long_mesh(1), rules));
    if (!strstr(out, long_mesh(2)))
        fail_msg("%s", out);
}

static void test_checkpoints(void **state)
{
    cli_expect(0, "", "shard -m {g}/llama --out {d}/sharded --mesh %s --rules %s", long_mesh(2), rules);
    cli_expect(0, long_mesh(2), "info -m {d}/sharded --wide");
    cli_expect(0, "", "merge {d}/sharded --out {d}/merged");
    cli_shell("cmp {g}/llama/model.safetensors {d}/merged/model.safetensors");
}

static void test_verify(void **state)
{
    cli_expect(0, long_mesh(1), "verify -m {g}/llama --seq 4 --wide --mesh %s --rules %s", long_mesh(2), rules);
    cli_expect(0, long_mesh(2), "verify -m {g}/llama --seq 4 --wide --mesh %s --rules %s", long_mesh(2), rules);
}

/* A file of rules is called by its name in causes, however long that is. */
static void test_rules_file(void **state)
{
    char name[201] = "";
    memset(name, 'r', sizeof name - 1);
    cli_shell("cp %s {d}/%s", rules, name);
    cli_expect(0, name, "plan --block ffn --json --mesh %s --rules {d}/%s", long_mesh(1), name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_mesh), cmocka_unit_test(test_programs), cmocka_unit_test(test_advice),
        cmocka_unit_test(test_checkpoints),  cmocka_unit_test(test_verify),   cmocka_unit_test(test_rules_file),
    };
    return cmocka_run_group_tests(tests, make_rules, cli_remove_folder);
}
