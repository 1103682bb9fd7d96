/* test_layout.c - layouts: text form, normal form, shards, and the volume of a reshard. */
#include <stdio.h>
#include <string.h>

#include "cleave/layout.h"
#include "unit_test.h"

static clv_mesh mesh_of(const char *text)
{
    clv_mesh mesh;
    assert_int_equal(clv_mesh_parse(&mesh, text, NULL), CLV_OK);
    return mesh;
}

static clv_layout layout_of(const char *text, const clv_mesh *mesh, int rank)
{
    clv_layout layout;
    clv_error err = {0};
    if (clv_layout_parse(&layout, text, mesh, rank, &err) != CLV_OK)
        fail_msg("%s", err.message);
    assert_int_equal(clv_layout_check(&layout, mesh, NULL, NULL), CLV_OK);
    return layout;
}

static void prints_what_it_parses(void **state)
{
    static const struct {
        int rank;
        const char *text, *printed; /* NULL: the same */
    } cases[] = {
        {0, "", NULL},
        {0, "+ sum{x}", NULL},
        {0, "  + max { y , x } ", "+ max{x,y}"},
        {1, "_", NULL},
        {1, "x", NULL},
        {1, "(x)", "x"},
        {3, "x,_,y", NULL},
        {2, "(x,y),_", NULL},
        {2, "(y,x),_", NULL},
        {2, " ( y , x ) * 64 , _ ", "(y,x)*64,_"},
        {2, "x,_ + sum{y}", NULL},
        {2, "x,_+max{z,y}", "x,_ + max{y,z}"},
        {2, "_,y:(2)3", NULL},
        {2, "_,y:(1)2", NULL},
        {2, "y:(1)6,_", "y,_"},
        {2, "(y:(1)2,y:(2)3),_", "y,_"},
        {2, "(y:(2)3,y:(1)2),_", NULL},
        {2, "y:(1)2,x + sum{y:(2)3}", NULL},
        {2, "_,_ + sum{y:(2)3,y:(1)2}", "_,_ + sum{y}"},
        {2, "one,_ + sum{x:(1)1}", "_,_"},
        {2, "one*8,_", "_,_"},
        {2, "(x,one,y)*3,z", "(x,y)*3,z"},
        {8, "_,_,_,x,_,_,_,y*2", NULL},
    };
    clv_mesh mesh = mesh_of("x=4,y=6,z=2,one=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[CLV_LAYOUT_TEXT], small[4];
        const char *printed = cases[i].printed != NULL ? cases[i].printed : cases[i].text;
        clv_layout layout = layout_of(cases[i].text, &mesh, cases[i].rank), again;
        assert_int_equal(clv_layout_print(out, sizeof out, &layout, &mesh), (int)strlen(printed));
        assert_string_equal(out, printed);
        again = layout_of(out, &mesh, cases[i].rank);
        assert_true(clv_layout_equal(&layout, &again));
        assert_int_equal(clv_layout_print(small, sizeof small, &layout, &mesh), (int)strlen(printed));
        assert_true(strncmp(small, printed, 3) == 0 && strlen(small) <= 3);
    }
}

/* The longest text that any layout has must fit CLV_LAYOUT_TEXT. */
static void text_of_any_layout_fits(void **state)
{
    clv_mesh mesh = {.n_axes = 16};
    clv_layout layout = clv_layout_replicated(8);
    char out[CLV_LAYOUT_TEXT];
    for (int i = 0; i < 16; i++) {
        memset(mesh.axis[i].name, 'a', CLV_AXIS_NAME_SIZE - 1);
        mesh.axis[i].name[0] = (char)('a' + i);
        mesh.axis[i].size = 2147483647;
    }
    layout.reduction = CLV_REDUCTION_SUM;
    layout.begin[9] = CLV_MAX_SUBAXES;
    for (int d = 0; d < 8; d++) {
        layout.alignment[d] = INT64_MAX;
        layout.begin[d + 1] = (uint8_t)(2 * d + 2);
    }
    for (int i = 0; i < CLV_MAX_SUBAXES; i++)
        layout.axes[i] = (clv_subaxis){i % 16, 1000000000, 1000000000};
    assert_true(clv_layout_print(out, sizeof out, &layout, &mesh) < CLV_LAYOUT_TEXT);
}

static void points_at_what_is_wrong(void **state)
{
    static const struct {
        int rank;
        const char *text;
        clv_status code;
        const char *message;
    } cases[] = {
        {2, "", CLV_ESYNTAX, "column 1 (the end): expected '_', an axis or '(' for dimension 0"},
        {2, "x", CLV_ESYNTAX, "column 2 (the end): expected ',': 1 of the tensor's 2 dimensions read"},
        {2, "x;_", CLV_ESYNTAX, "column 2 (';'): expected ',': 1 of the tensor's 2 dimensions read"},
        {2, "x,", CLV_ESYNTAX, "column 3 (the end): expected '_', an axis or '(' for dimension 1"},
        {2, "x,_,_", CLV_ESYNTAX, "column 4 (','): expected the end: the tensor has 2 dimensions"},
        {1, "x _", CLV_ESYNTAX, "column 3 ('_'): expected the end: the tensor has 1 dimension"},
        {2, "_x,_", CLV_ESYNTAX, "column 1 ('_'): expected '_', an axis or '(' for dimension 0"},
        {2, "2,_", CLV_ESYNTAX, "column 1 ('2'): expected '_', an axis or '(' for dimension 0"},
        {2, "(),_", CLV_ESYNTAX, "column 2 (')'): expected an axis name"},
        {2, "(x,),_", CLV_ESYNTAX, "column 4 (')'): expected an axis name"},
        {2, "(x y),_", CLV_ESYNTAX, "column 4 ('y'): expected ',' or ')'"},
        {2, "(x,y", CLV_ESYNTAX, "column 5 (the end): expected ',' or ')'"},
        {2, "_*4,_", CLV_ESYNTAX, "column 2 ('*'): a dimension that is not cut takes no alignment"},
        {2, "x*,_", CLV_ESYNTAX, "column 3 (','): expected an alignment of at least 1"},
        {2, "x*0,_", CLV_ESYNTAX, "column 3 ('0'): expected an alignment of at least 1"},
        {2, "y:2,_", CLV_ESYNTAX, "column 3 ('2'): expected '(' of a sub-axis as in y:(2)2"},
        {2, "y:(,_", CLV_ESYNTAX, "column 4 (','): expected the product of the sub-axes before this one"},
        {2, "y:(2,_", CLV_ESYNTAX, "column 5 (','): expected ')'"},
        {2, "y:(2),_", CLV_ESYNTAX, "column 6 (','): expected the size of the sub-axis"},
        {2, "y:(4)2,_", CLV_EAXIS, "column 4 ('4'): sub-axis y:(4)2 does not divide axis y of size 6"},
        {2, "y:(0)2,_", CLV_EAXIS, "column 4 ('0'): sub-axis y:(0)2 does not divide axis y of size 6"},
        {2, "y:(99999999999999999)99999999999999999,_", CLV_EAXIS,
         "column 4 ('9'): sub-axis y:(9007199254740992)9007199254740992 does not divide axis y of size 6"},
        {2, "q,_", CLV_EAXIS, "column 1 ('q'): no axis 'q'; the mesh's axes: x, y, z, one"},
        {2, "x,x", CLV_EAXIS, "column 3 ('x'): axis x is used twice (first in column 1)"},
        {2, "(x,y:(1)3),y:(1)2", CLV_EAXIS, "column 12 ('y'): axis y is used twice (first in column 4)"},
        {2, "y:(1)2,y:(3)2", CLV_EAXIS, "column 8 ('y'): axis y is used twice (first in column 1)"},
        {2, "one,one", CLV_EAXIS, "column 5 ('o'): axis one is used twice (first in column 1)"},
        {2, "x,_ + sum{x}", CLV_EAXIS, "column 11 ('x'): axis x is used twice (first in column 1)"},
        {2, "_,_ +", CLV_ESYNTAX, "column 6 (the end): expected 'sum{' or 'max{'"},
        {2, "_,_ + min{x}", CLV_ESYNTAX, "column 7 ('m'): expected 'sum{' or 'max{'"},
        {2, "_,_ + sum x", CLV_ESYNTAX, "column 11 ('x'): expected '{'"},
        {2, "_,_ + sum{}", CLV_ESYNTAX, "column 11 ('}'): expected an axis name"},
        {2, "_,_ + sum{x", CLV_ESYNTAX, "column 12 (the end): expected ',' or '}'"},
        {2, "_,_ + sum{x} + max{y}", CLV_ESYNTAX, "column 14 ('+'): expected the end: the tensor has 2 dimensions"},
        {9, "_", CLV_ELIMIT, "layout: 9 dimensions; a tensor has 0 to 8"},
    };
    clv_mesh mesh = mesh_of("x=4,y=6,z=2,one=1");
    clv_layout layout = {.rank = -3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[512];
        clv_error err = {0};
        assert_int_equal(clv_layout_parse(&layout, cases[i].text, &mesh, cases[i].rank, &err), cases[i].code);
        snprintf(message, sizeof message, "layout '%s', %s", cases[i].text, cases[i].message);
        assert_string_equal(err.message, cases[i].rank > 8 ? cases[i].message : message);
    }
    assert_int_equal(layout.rank, -3);
}

static void holds_as_many_sub_axes_as_ranks_allow(void **state)
{
    char text[512] = "(", printed[CLV_LAYOUT_TEXT];
    clv_mesh mesh = mesh_of("x=1073741824");
    clv_layout layout, cut = clv_layout_replicated(1);
    clv_error err = {0};
    for (int i = 29; i >= 0; i--) { /* 30 sub-axes of size 2, none of them neighbours */
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sx:(%d)2", i < 29 ? "," : "", 1 << i);
        assert_int_equal(clv_layout_shard_dim(&cut, &mesh, 0, (clv_subaxis){0, 1 << i, 2}, &err), CLV_OK);
    }
    strcat(text, ")");
    assert_int_equal(clv_layout_parse(&layout, text, &mesh, 1, &err), CLV_OK);
    assert_true(clv_layout_equal(&layout, &cut));
    assert_int_equal(clv_layout_print(printed, sizeof printed, &layout, &mesh), strlen(text));
    assert_string_equal(printed, text);
    text[strlen(text) - 1] = '\0';
    strcat(text, ",x:(1)1)"); /* parts of size 1 are none, but counted while they are read */
    assert_int_equal(clv_layout_parse(&layout, text, &mesh, 1, &err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "a layout has at most 30 sub-axes"));
}

static void builds_normal_forms(void **state)
{
    clv_mesh mesh = mesh_of("x=4,y=6");
    clv_layout layout = clv_layout_replicated(2), expected;
    clv_error err = {0};
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 0, (clv_subaxis){0, 1, 2}, NULL), CLV_OK);
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 1, (clv_subaxis){1, 1, 2}, NULL), CLV_OK);
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 0, (clv_subaxis){0, 2, 2}, NULL), CLV_OK);
    assert_int_equal(clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_SUM, (clv_subaxis){1, 2, 3}, NULL), CLV_OK);
    expected = layout_of("x,y:(1)2 + sum{y:(2)3}", &mesh, 2);
    assert_true(clv_layout_equal(&layout, &expected));
    assert_true(clv_layout_is_partial(&layout));

    clv_layout before = layout;
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 0, (clv_subaxis){1, 1, 3}, &err), CLV_EAXIS);
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 0, (clv_subaxis){1, 4, 3}, NULL), CLV_EAXIS);
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 0, (clv_subaxis){2, 1, 2}, NULL), CLV_EAXIS);
    assert_int_equal(clv_layout_shard_dim(&layout, &mesh, 2, (clv_subaxis){0, 1, 2}, NULL), CLV_EINVAL);
    assert_int_equal(clv_layout_set_dim(&layout, &mesh, 1, NULL, 0, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_MAX, (clv_subaxis){1, 2, 3}, NULL),
                     CLV_EINVAL);
    assert_int_equal(clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_NONE, (clv_subaxis){1, 2, 3}, NULL),
                     CLV_EINVAL);
    assert_true(clv_layout_equal(&layout, &before));

    assert_int_equal(clv_layout_set_dim(&layout, &mesh, 0, NULL, 0, 16, NULL), CLV_OK);
    assert_int_equal(layout.alignment[0], 1);
    layout = clv_layout_without_partial(&layout);
    expected = layout_of("_,y:(1)2", &mesh, 2);
    assert_true(clv_layout_equal(&layout, &expected));
    assert_true(clv_layout_uses_subaxis(&layout, (clv_subaxis){1, 1, 6}));
    assert_false(clv_layout_uses_subaxis(&layout, (clv_subaxis){1, 2, 3}));
}

static void checks_each_invariant(void **state)
{
    clv_mesh mesh = mesh_of("x=4,y=6");
    const clv_layout good = layout_of("x*2,y:(1)2 + sum{y:(2)3}", &mesh, 2);
    const int64_t shape[2] = {6, 7}, odd[2] = {7, 7}, negative[2] = {6, -1};
    clv_layout bad;
    assert_int_equal(clv_layout_check(&good, &mesh, shape, NULL), CLV_OK);
    assert_int_equal(clv_layout_check(&good, &mesh, odd, NULL), CLV_ESHAPE);
    assert_int_equal(clv_layout_check(&good, &mesh, negative, NULL), CLV_ESHAPE);
#define BREAKS(change, code) (bad = good, change, assert_int_equal(clv_layout_check(&bad, &mesh, NULL, NULL), code))
    BREAKS(bad.rank = 9, CLV_ELIMIT);
    BREAKS(bad.begin[0] = 1, CLV_EINVAL);
    BREAKS(bad.begin[1] = 3, CLV_EINVAL);
    BREAKS(bad.begin[3] = CLV_MAX_SUBAXES + 1, CLV_EINVAL);
    BREAKS(bad.reduction = CLV_REDUCTION_NONE, CLV_EINVAL);
    BREAKS(bad.reduction = (clv_reduction)7, CLV_EINVAL);
    BREAKS(bad.alignment[0] = 0, CLV_EINVAL);
    BREAKS((bad.begin[1] = 0, bad.alignment[0] = 2), CLV_EINVAL);
    BREAKS(bad.axes[0].axis = 2, CLV_EAXIS);
    BREAKS(bad.axes[0].size = 3, CLV_EAXIS);
    BREAKS(bad.axes[0].size = 1, CLV_EINVAL);
    BREAKS(bad.axes[1].size = 3, CLV_EAXIS);
    BREAKS((bad.begin[2] = 1, bad.begin[3] = 3), CLV_EINVAL); /* partial neighbours not merged */
    BREAKS((bad.begin[2] = 1, bad.axes[1] = good.axes[2], bad.axes[2] = good.axes[1]), CLV_EINVAL); /* not sorted */
#undef BREAKS
}

/* floor(i*n/k): blocks cover the dimension, differ by at most one unit of `alignment` elements, and those of (X,Y) lie
 * inside those of X. */
static void cuts_nest(void **state)
{
    for (int64_t n = 0; n <= 13; n++)
        for (int64_t x = 1; x <= 5; x++)
            for (int64_t y = 1; y <= 4; y++) {
                int64_t end = 0;
                for (int64_t i = 0; i < x * y; i++) {
                    int64_t lo, hi, outer_lo, outer_hi;
                    clv_block_range(n * 3, 3, x * y, i, &lo, &hi);
                    clv_block_range(n * 3, 3, x, i / y, &outer_lo, &outer_hi);
                    assert_int_equal(lo, i * n / (x * y) * 3);
                    assert_int_equal(lo, end);
                    assert_true(hi - lo == n / (x * y) * 3 || hi - lo == (n / (x * y) + 1) * 3);
                    assert_true(lo >= outer_lo && hi <= outer_hi);
                    end = hi;
                }
                assert_int_equal(end, n * 3);
            }
    int64_t lo, hi;
    clv_block_range((int64_t)1 << 60, 1, 2147483647, 2147483646, &lo, &hi); /* i*n would overflow */
    assert_true(hi == (int64_t)1 << 60 && hi - lo == 536870912 + 1);
}

static void finds_shards(void **state)
{
    clv_mesh mesh = mesh_of("x=2,y=4");
    clv_layout layout = layout_of("(y,x),_", &mesh, 2);
    const int64_t shape[2] = {64, 5};
    for (int64_t rank = 0; rank < 8; rank++) {
        int64_t block = rank % 4 * 2 + rank / 4;
        clv_shard shard = clv_layout_shard(&layout, &mesh, shape, rank);
        assert_int_equal(clv_layout_block_index(&layout, &mesh, 0, rank), block);
        assert_int_equal(shard.lo[0], block * 8);
        assert_int_equal(shard.hi[0], block * 8 + 8);
        assert_int_equal(clv_shard_elems(&shard), 40);
    }
    clv_shard scalar = clv_layout_shard(&(clv_layout){0}, &mesh, NULL, 3);
    assert_int_equal(clv_shard_elems(&scalar), 1);
    clv_shard a = {1, {2}, {5}}, b = {1, {7}, {9}}, both = clv_shard_intersect(&a, &b);
    assert_int_equal(clv_shard_elems(&both), 0);
}

/* -- against brute force: all pairs of layouts, even, uneven and empty shapes -- */

enum { MANY = 4096 };

static clv_layout pool[MANY];
static int n_pool;

/* All layouts of 2 dimensions that place each atom in a dimension (in any order there), or nowhere, or as partial. */
static void place_atoms(const clv_mesh *mesh, const clv_subaxis *atoms, int n, uint32_t left, clv_layout layout)
{
    assert_true(n_pool < MANY);
    pool[n_pool++] = layout;
    for (int i = 0; i < n; i++)
        for (int d = 0; d < 2; d++) {
            clv_layout next = layout;
            if ((left >> i & 1u) == 0 || (d == 0 && layout.begin[2] > layout.begin[1]))
                continue; /* fill dimension 0 first, so that each layout is made once */
            assert_int_equal(clv_layout_shard_dim(&next, mesh, d, atoms[i], NULL), CLV_OK);
            place_atoms(mesh, atoms, n, left & ~(1u << i), next);
        }
}

static int64_t missing_by_force(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                                const int64_t *shape)
{
    int64_t most = 0;
    for (int64_t rank = 0; rank < clv_mesh_rank_count(mesh); rank++) {
        clv_shard a = clv_layout_shard(to, mesh, shape, rank), b = clv_layout_shard(from, mesh, shape, rank);
        clv_shard both = clv_shard_intersect(&a, &b);
        int64_t lacks = clv_shard_elems(&a) - clv_shard_elems(&both);
        most = lacks > most ? lacks : most;
    }
    return most;
}

static void compare_all_pairs(const char *mesh_text, const clv_subaxis *atoms, int n, const int64_t *shape,
                              const int64_t *alignment)
{
    clv_mesh mesh = mesh_of(mesh_text);
    n_pool = 0;
    place_atoms(&mesh, atoms, n, (1u << n) - 1, clv_layout_replicated(2));
    for (int i = 0; i < n_pool; i++)
        for (int d = 0; d < 2; d++)
            if (i % 3 == 1 && pool[i].begin[d + 1] > pool[i].begin[d])
                pool[i].alignment[d] = alignment[d];
    for (int i = 0; i < n_pool; i++) {
        int64_t largest = 0;
        assert_int_equal(clv_layout_check(&pool[i], &mesh, shape, NULL), CLV_OK);
        for (int64_t rank = 0; rank < clv_mesh_rank_count(&mesh); rank++) {
            clv_shard shard = clv_layout_shard(&pool[i], &mesh, shape, rank);
            largest = clv_shard_elems(&shard) > largest ? clv_shard_elems(&shard) : largest;
        }
        assert_int_equal(clv_layout_max_elems(&pool[i], shape), largest);
        for (int j = 0; j < n_pool; j++) {
            int64_t expected = missing_by_force(&pool[i], &pool[j], &mesh, shape);
            assert_int_equal(clv_layout_max_received_elems(&pool[i], &pool[j], &mesh, shape), expected);
            assert_int_equal(clv_layout_same_shards(&pool[i], &pool[j], &mesh, shape),
                             expected == 0 && missing_by_force(&pool[j], &pool[i], &mesh, shape) == 0);
        }
    }
}

static void missing_elems_is_exact(void **state)
{
    const clv_subaxis axes[3] = {{0, 1, 2}, {1, 1, 3}, {2, 1, 2}}, halves[3] = {{0, 1, 2}, {1, 1, 2}, {1, 2, 3}};
    const clv_subaxis crossing[2] = {{0, 1, 2}, {0, 2, 3}}, crossed[2] = {{0, 1, 3}, {0, 3, 2}};
    const int64_t ones[2] = {1, 1};
    compare_all_pairs("x=2,y=3,z=2", axes, 3, (int64_t[]){24, 12}, (int64_t[]){2, 3});
    compare_all_pairs("x=2,y=3,z=2", axes, 3, (int64_t[]){7, 5}, ones);
    compare_all_pairs("x=2,y=3,z=2", axes, 3, (int64_t[]){10, 3}, (int64_t[]){5, 3});
    compare_all_pairs("x=2,y=3,z=2", axes, 3, (int64_t[]){0, 2}, ones);
    compare_all_pairs("x=2,y=6", halves, 3, (int64_t[]){14, 9}, (int64_t[]){2, 3});
    compare_all_pairs("x=6", crossing, 2, (int64_t[]){11, 6}, ones);
    compare_all_pairs("x=6", crossed, 2, (int64_t[]){11, 6}, ones);
}

/* Cuts of one axis that do not nest: x:(1)2 against x:(1)3 of 6 ranks. */
static void missing_elems_of_crossing_cuts(void **state)
{
    static const char *const texts[] = {"x:(1)2,_", "x:(1)3,_",          "x:(1)3,x:(3)4", "x:(2)3,x:(6)2",
                                        "_,x:(1)2", "(x:(3)4,x:(1)3),y", "x:(1)4,y",      "y,x:(4)3",
                                        "x:(1)6,_", "(y,x:(2)6),_",      "x:(3)2,x:(6)2", "_,_"};
    const int n = sizeof texts / sizeof *texts;
    clv_mesh mesh = mesh_of("x=12,y=2");
    for (int64_t rows = 1; rows <= 25; rows += 4)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                const int64_t shape[2] = {rows, 7};
                clv_layout to = layout_of(texts[i], &mesh, 2), from = layout_of(texts[j], &mesh, 2);
                assert_int_equal(clv_layout_max_received_elems(&to, &from, &mesh, shape),
                                 missing_by_force(&to, &from, &mesh, shape));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_what_it_parses),
        cmocka_unit_test(text_of_any_layout_fits),
        cmocka_unit_test(points_at_what_is_wrong),
        cmocka_unit_test(holds_as_many_sub_axes_as_ranks_allow),
        cmocka_unit_test(builds_normal_forms),
        cmocka_unit_test(checks_each_invariant),
        cmocka_unit_test(cuts_nest),
        cmocka_unit_test(finds_shards),
        cmocka_unit_test(missing_elems_is_exact),
        cmocka_unit_test(missing_elems_of_crossing_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
