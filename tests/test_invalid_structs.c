/* test_invalid_structs.c - meshes, layouts, rules and the like are structs that anyone may write into. Each is spoilt
 * in one place, and every public function that takes it either says so or returns nothing: none reads or writes outside
 * of it.
 */
#include <string.h>

#include "must.h"

#include "cleave/nn.h"
#include "cleave/op.h"
#include "cleave/program.h"
#include "cleave/reshard.h"

static clv_error err;
static clv_mesh mesh;     /* x=2,y=3 */
static clv_layout layout; /* of 2 dimensions, x,y */
static clv_axis_rules rules;
static const int64_t shape[2] = {4, 6};
static const clv_subaxis whole_x = {.axis = 0, .pre = 1, .size = 2};
static const clv_logical_axis names[2] = {"a", "b"};

static void make(void)
{
    err = (clv_error){0};
    must(clv_mesh_parse(&mesh, "x=2,y=3", &err), &err);
    must(clv_layout_parse(&layout, "x,y", &mesh, 2, &err), &err);
    memset(&rules, 0, sizeof rules);
    must(clv_axis_rules_add(&rules, "a", "x", &mesh, &err), &err);
}

/* Refused, for whatever reason it gives. */
#define REFUSES(call)                                                                                                  \
    do {                                                                                                               \
        err = (clv_error){0};                                                                                          \
        if ((call) == CLV_OK || err.message[0] == '\0')                                                                \
            fail_msg("damage %zu: %s", damage, #call);                                                                 \
    } while (0)
#define GIVES_NOTHING(call)                                                                                            \
    do {                                                                                                               \
        if (call)                                                                                                      \
            fail_msg("damage %zu: %s", damage, #call);                                                                 \
    } while (0)

/* What takes a mesh and a layout. */
static void use_pair(size_t damage)
{
    char text[64] = "x";
    clv_layout out = layout, good = clv_layout_replicated(2);
    clv_reshard *plan = NULL;
    REFUSES(clv_layout_check(&layout, &mesh, shape, &err));
    REFUSES(clv_layout_shard_dim(&out, &mesh, 0, whole_x, &err));
    REFUSES(clv_layout_set_dim(&out, &mesh, 1, &whole_x, 1, 1, &err));
    REFUSES(clv_layout_add_partial(&out, &mesh, CLV_REDUCTION_SUM, whole_x, &err));
    REFUSES(clv_axis_rules_optimizer_layout(&out, NULL, &mesh, &layout, shape, &err));
    REFUSES(clv_reshard_new(&plan, &mesh, &layout, &good, shape, CLV_F32, &err));
    REFUSES(clv_reshard_new(&plan, &mesh, &good, &layout, shape, CLV_F32, &err));
    GIVES_NOTHING(plan);
    GIVES_NOTHING(clv_layout_print(text, sizeof text, &layout, &mesh));
    assert_string_equal(text, "");
    GIVES_NOTHING(clv_layout_same_shards(&layout, &layout, &mesh, shape));
    GIVES_NOTHING(clv_layout_max_received_elems(&layout, &good, &mesh, shape));
    GIVES_NOTHING(clv_layout_max_received_elems(&good, &layout, &mesh, shape));
}

/* ---- meshes ---- */

static void too_many_axes(void)
{
    mesh.n_axes = 1000;
}

static void fewer_than_no_axes(void)
{
    mesh.n_axes = -1;
}

static void no_size(void)
{
    mesh.axis[1].size = 0;
}

static void less_than_no_size(void)
{
    mesh.axis[1].size = -3;
}

static void vast(void)
{
    mesh.axis[1].size = INT64_MAX;
}

static void endless_name(void)
{
    memset(mesh.axis[1].name, 'n', sizeof mesh.axis[1].name);
}

static void same_name(void)
{
    mesh.axis[1] = mesh.axis[0];
}

static void test_meshes(void **state)
{
    static void (*const spoil[])(void) = {too_many_axes, fewer_than_no_axes, no_size,  less_than_no_size,
                                          vast,          endless_name,       same_name};
    for (size_t damage = 0; damage < sizeof spoil / sizeof *spoil; damage++) {
        int axis;
        clv_layout out;
        clv_graph *graph;
        int64_t group[64];
        char text[16];
        make();
        spoil[damage]();
        REFUSES(clv_mesh_check(&mesh, &err));
        REFUSES(clv_mesh_find(&axis, &mesh, "y", &err));
        REFUSES(clv_layout_parse(&out, "_,y", &mesh, 2, &err));
        REFUSES(clv_graph_new(&graph, &mesh, &err));
        REFUSES(clv_axis_rules_add(&rules, "b", "x", &mesh, &err));
        REFUSES(clv_axis_rules_layout(&out, &rules, &mesh, 2, names, &err));
        REFUSES(clv_axis_rules_preset(&rules, "dp", &mesh, &err));
        use_pair(damage);
        if (spoil[damage] != endless_name && spoil[damage] != same_name) {
            GIVES_NOTHING(clv_mesh_rank_count(&mesh));
            GIVES_NOTHING(clv_mesh_coordinate(&mesh, whole_x, 5));
            GIVES_NOTHING(clv_mesh_with_coordinate(&mesh, whole_x, 5, 1));
            GIVES_NOTHING(clv_mesh_group(group, &mesh, &whole_x, 1, 0));
        }
        clv_mesh_equal(&mesh, &mesh);
        clv_mesh_whole_axis(&mesh, 900);
        GIVES_NOTHING(clv_mesh_print(text, sizeof text, &mesh));
        clv_subaxis_print(text, sizeof text, (clv_subaxis){.axis = 900, .pre = 1, .size = 1}, &mesh);
        clv_layout_block_index(&layout, &mesh, 1, 5);
        clv_layout_shard(&layout, &mesh, shape, 5);
    }
}

static void test_sub_axes(void **state)
{
    static const clv_subaxis spoilt[] = {{.axis = 77, .pre = 1, .size = 2},  {.axis = -1, .pre = 1, .size = 2},
                                         {.axis = 0, .pre = 0, .size = 2},   {.axis = 0, .pre = 1, .size = 0},
                                         {.axis = 0, .pre = -1, .size = -2}, {.axis = 0, .pre = 1, .size = 1 << 30},
                                         {.axis = 0, .pre = 0, .size = 0}};
    for (size_t damage = 0; damage < sizeof spoilt / sizeof *spoilt; damage++) {
        clv_subaxis sub = spoilt[damage], pair[2] = {sub, sub};
        int64_t group[4];
        make();
        GIVES_NOTHING(clv_mesh_coordinate(&mesh, sub, 5));
        GIVES_NOTHING(clv_mesh_with_coordinate(&mesh, sub, 5, 0));
        GIVES_NOTHING(clv_mesh_group(group, &mesh, &sub, 1, 5));
        REFUSES(clv_layout_shard_dim(&layout, &mesh, 0, sub, &err));
        REFUSES(clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_SUM, sub, &err));
        clv_subaxis_overlap(sub, whole_x);
        clv_subaxis_overlap(whole_x, sub);
        clv_subaxis_contains(sub, whole_x);
        clv_subaxis_contains(whole_x, sub);
        clv_subaxes_normalize(pair, 2);
        clv_layout_uses_subaxis(&layout, sub);
    }
    for (int64_t coordinate = -1; coordinate <= 2; coordinate += 3)
        assert_int_equal(clv_mesh_with_coordinate(&mesh, whole_x, 5, coordinate), 0);
}

/* ---- layouts ---- */

static void too_high(void)
{
    layout.rank = 99;
}

static void below_none(void)
{
    layout.rank = -1;
}

static void axes_outside(void)
{
    layout.begin[1] = 200;
    layout.begin[2] = 201;
    layout.begin[3] = 202;
}

static void axes_backwards(void)
{
    layout.begin[1] = 2;
    layout.begin[2] = 1;
}

static void axis_of_no_mesh(void)
{
    layout.axes[1].axis = 77;
}

static void axis_of_no_size(void)
{
    layout.axes[1].size = 0;
}

static void axis_after_nothing(void)
{
    layout.axes[1].pre = 0;
}

static void all_ones(void)
{
    memset(&layout, 0xff, sizeof layout);
}

static void all_high(void)
{
    memset(&layout, 0x7f, sizeof layout);
}

static void test_layouts(void **state)
{
    static void (*const spoil[])(void) = {too_high,           below_none,      axes_outside,
                                          axes_backwards,     axis_of_no_mesh, axis_of_no_size,
                                          axis_after_nothing, all_ones,        all_high};
    for (size_t damage = 0; damage < sizeof spoil / sizeof *spoil; damage++) {
        const clv_subaxis *subs;
        make();
        spoil[damage]();
        use_pair(damage);
        for (int d = -1; d < 12; d++) {
            int n = clv_layout_axes(&subs, &layout, d);
            if (n < 0 || n > CLV_MAX_SUBAXES)
                fail_msg("damage %zu: dimension %d has %d axes", damage, d, n);
            clv_layout_block_count(&layout, d);
            clv_layout_block_index(&layout, &mesh, d, 5);
        }
        clv_layout_equal(&layout, &layout);
        clv_layout_uses_subaxis(&layout, whole_x);
        clv_layout_is_partial(&layout);
        clv_layout_max_elems(&layout, shape);
        clv_layout_without_partial(&layout);
        clv_shard shard = clv_layout_shard(&layout, &mesh, shape, 5);
        GIVES_NOTHING(shard.rank < 0 || shard.rank > CLV_MAX_RANK);

        clv_graph *graph = must_graph("x=2,y=3");
        clv_input(graph, "a", CLV_F32, 2, shape, &layout);
        REFUSES(clv_graph_status(graph, &err));
        clv_graph_free(graph);
        graph = must_graph("x=2,y=3");
        clv_constrain(graph, clv_input(graph, "a", CLV_F32, 2, shape, NULL), &layout);
        REFUSES(clv_graph_status(graph, &err));
        clv_graph_free(graph);
        graph = must_graph("x=2,y=3");
        clv_output(graph, "a", clv_input(graph, "a", CLV_F32, 2, shape, NULL), &layout);
        REFUSES(clv_graph_status(graph, &err));
        clv_graph_free(graph);
    }
    make();
    layout.alignment[0] = 0;
    use_pair(99);
    assert_int_equal(clv_layout_max_elems(&layout, shape), 0);
    assert_int_equal(clv_shard_elems(&(clv_shard){.rank = 99}), 0);
    assert_int_equal(clv_shard_intersect(&(clv_shard){.rank = 99}, &(clv_shard){.rank = 99}).rank, 0);
    assert_int_equal(clv_type_elems(&(clv_type){.rank = 99}), 0);
    assert_int_equal(clv_view_elems(&(clv_view){.rank = 99}), 0);
    assert_false(clv_type_equal(&(clv_type){.rank = 99}, &(clv_type){.rank = 99}));
}

static void test_blocks_that_are_not(void **state)
{
    static const int64_t cuts[][4] = {{5, 0, 2, 0},  {5, 1, 0, 0}, {5, 1, -3, 0},
                                      {-5, 1, 2, 0}, {5, 1, 2, 2}, {5, 1, 2, -1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int64_t lo = 7, hi = 7;
        clv_block_range(cuts[i][0], cuts[i][1], cuts[i][2], cuts[i][3], &lo, &hi);
        if (lo != 0 || hi != 0)
            fail_msg("cut %zu", i);
    }
}

/* ---- rules ---- */

static void too_many_rules(void)
{
    rules.n = 99;
}

static void fewer_than_no_rules(void)
{
    rules.n = -1;
}

static void too_many_axes_of_a_rule(void)
{
    rules.rule[0].n_axes = 1000;
}

static void strange_axis_of_a_rule(void)
{
    rules.rule[0].axis[0] = -7777777;
}

static void endless_name_of_a_rule(void)
{
    memset(rules.rule[0].name, 'a', sizeof rules.rule[0].name);
}

static void endless_name_of_rules(void)
{
    memset(rules.name, 'a', sizeof rules.name);
}

static void too_many_optimizer_axes(void)
{
    rules.n_optimizer = 99;
}

static void strange_optimizer_axis(void)
{
    rules.n_optimizer = 1;
    rules.optimizer[0] = 2;
}

static void test_rules(void **state)
{
    static void (*const spoil[])(void) = {too_many_rules,          fewer_than_no_rules,    too_many_axes_of_a_rule,
                                          strange_axis_of_a_rule,  endless_name_of_a_rule, endless_name_of_rules,
                                          too_many_optimizer_axes, strange_optimizer_axis};
    for (size_t damage = 0; damage < sizeof spoil / sizeof *spoil; damage++) {
        clv_layout out;
        make();
        spoil[damage]();
        REFUSES(clv_axis_rules_layout(&out, &rules, &mesh, 2, names, &err));
        REFUSES(clv_axis_rules_optimizer_layout(&out, &rules, &mesh, &layout, shape, &err));
        REFUSES(clv_axis_rules_add(&rules, "b", "y", &mesh, &err));
        clv_graph *graph = must_graph("x=2,y=3");
        clv_named_layout(graph, &rules, 2, names);
        REFUSES(clv_graph_status(graph, &err));
        clv_graph_free(graph);
        clv_axis_rules kept = clv_axis_rules_without(&rules, "b");
        GIVES_NOTHING(kept.n < 0 || kept.n > CLV_MAX_RULES);
    }
}

/* ---- texts ---- */

/* No buffer: what would be written is counted, whatever size is said of it. */
static void test_texts_into_nothing(void **state)
{
    clv_program *program;
    char text[512];
    make();
    clv_graph *graph = must_graph("x=2,y=3");
    clv_output(graph, "b", clv_scale(graph, clv_input(graph, "a", CLV_F32, 2, shape, &layout), 2), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    assert_int_equal(clv_program_print(NULL, 100, program), clv_program_print(text, sizeof text, program));
    assert_int_equal(clv_program_print_dot(NULL, 100, program), clv_program_print_dot(text, sizeof text, program));
    assert_int_equal(clv_mesh_print(NULL, 100, &mesh), 7);
    assert_int_equal(clv_mesh_print(NULL, 100, NULL), 0);
    assert_int_equal(clv_layout_print(NULL, 100, &layout, &mesh), 3);
    assert_int_equal(clv_subaxis_print(NULL, 100, whole_x, &mesh), 1);
    clv_program_free(program);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),  cmocka_unit_test(test_sub_axes),
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_blocks_that_are_not),
        cmocka_unit_test(test_rules),   cmocka_unit_test(test_texts_into_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
