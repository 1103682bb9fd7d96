/* Meshes: text form, ranks and coordinates, groups. */
#include <string.h>

#include "cleave/mesh.h"
#include "unit_test.h"

static void prints_what_it_parses(void **state)
{
    static const char *const texts[] = {"", "x=1", "data=2,model=4", "x=2,y=4,z=2", "a_1=2147483647"};
    char out[64];
    clv_mesh mesh;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(clv_mesh_parse(&mesh, texts[i], NULL), CLV_OK);
        assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_OK);
        assert_int_equal(clv_mesh_print(out, sizeof out, &mesh), (int)strlen(texts[i]));
        assert_string_equal(out, texts[i]);
    }
    assert_int_equal(clv_mesh_parse(&mesh, "  data = 2 , model=4 ", NULL), CLV_OK);
    assert_int_equal(clv_mesh_rank_count(&mesh), 8);
    assert_int_equal(clv_mesh_print(out, 5, &mesh), 14); /* as snprintf: cut, ended, whole length */
    assert_string_equal(out, "data");
}

static void names_what_is_wrong(void **state)
{
    static const struct {
        const char *text;
        clv_status code;
        const char *message;
    } cases[] = {
        {"x", CLV_ESYNTAX, "mesh 'x', column 2 (the end): expected '=' and the size of axis 'x'"},
        {"x=", CLV_ESYNTAX, "mesh 'x=', column 3 (the end): expected the size of axis 'x'"},
        {"x=-2", CLV_ESYNTAX, "mesh 'x=-2', column 3 ('-'): expected the size of axis 'x'"},
        {"x=2 y=4", CLV_ESYNTAX, "mesh 'x=2 y=4', column 5 ('y'): expected ',' or the end"},
        {"x=2,", CLV_ESYNTAX, "mesh 'x=2,', column 5 (the end): expected an axis name"},
        {"x=2,3=4", CLV_ESYNTAX, "mesh 'x=2,3=4', column 5 ('3'): expected an axis name"},
        {"x=2,\xff", CLV_ESYNTAX, "mesh 'x=2,\\xff', column 5 (byte 0xff): expected an axis name"},
        {"x=2,x=4", CLV_EAXIS, "mesh 'x=2,x=4', column 5 ('x'): axis 'x' is named twice"},
        {"x=0", CLV_EINVAL, "mesh 'x=0', column 3 ('0'): axis 'x' needs a size of at least 1"},
        {"x=65536,y=65536", CLV_EINVAL, "mesh 'x=65536,y=65536', column 11 ('6'): a mesh has at most 2^31 - 1 ranks"},
        {"x=99999999999999999999999", CLV_EINVAL,
         "mesh 'x=99999999999999999999999', column 3 ('9'): a mesh has at most 2^31 - 1 ranks"},
        {"a2345678901234567890123456789012=2", CLV_ELIMIT,
         "mesh 'a2345678901234567890123456789012=2', column 1 ('a'): an axis name has at most 31 characters"},
        {"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1", CLV_ELIMIT, NULL},
    };
    clv_mesh mesh = {.n_axes = -7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_error err = {0};
        assert_int_equal(clv_mesh_parse(&mesh, cases[i].text, &err), cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        if (cases[i].message != NULL)
            assert_string_equal(err.message, cases[i].message);
    }
    assert_int_equal(mesh.n_axes, -7);
}

static void checks_a_struct(void **state)
{
    clv_mesh good, mesh;
    assert_int_equal(clv_mesh_parse(&good, "x=2,y=3", NULL), CLV_OK);
    mesh = good, mesh.n_axes = 17;
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_ELIMIT);
    mesh = good, mesh.axis[1].size = 0;
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_EINVAL);
    mesh = good, mesh.axis[1].size = INT32_MAX;
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_EINVAL);
    mesh = good, mesh.axis[1].name[0] = 'x';
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_EAXIS);
    mesh = good, mesh.axis[1].name[0] = '_';
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_ESYNTAX);
    mesh = good, memset(mesh.axis[1].name, 'y', CLV_AXIS_NAME_SIZE);
    assert_int_equal(clv_mesh_check(&mesh, NULL), CLV_ELIMIT);
}

static void finds_axes(void **state)
{
    clv_mesh mesh;
    clv_error err = {0};
    int axis = -1;
    assert_int_equal(clv_mesh_parse(&mesh, "data=2,model=4", NULL), CLV_OK);
    assert_int_equal(clv_mesh_find(&axis, &mesh, "model", NULL), CLV_OK);
    assert_int_equal(axis, 1);
    assert_int_equal(clv_mesh_find(&axis, &mesh, "mod", &err), CLV_EAXIS);
    assert_string_equal(err.message, "no axis 'mod'; the mesh's axes: data, model");
    assert_int_equal(axis, 1);
}

/* Megatron-LM's order: with 16 ranks and model=4 the model groups are {0..3}, {4..7}, ... */
static void ranks_are_row_major(void **state)
{
    clv_mesh mesh;
    int64_t group[16];
    assert_int_equal(clv_mesh_parse(&mesh, "data=4,model=4", NULL), CLV_OK);
    clv_subaxis data = clv_mesh_whole_axis(&mesh, 0), model = clv_mesh_whole_axis(&mesh, 1);
    for (int64_t rank = 0; rank < 16; rank++) {
        assert_int_equal(clv_mesh_coordinate(&mesh, data, rank), rank / 4);
        assert_int_equal(clv_mesh_coordinate(&mesh, model, rank), rank % 4);
        assert_int_equal(clv_mesh_group(group, &mesh, &model, 1, rank), 4);
        for (int64_t i = 0; i < 4; i++)
            assert_int_equal(group[i], rank / 4 * 4 + i);
        assert_int_equal(clv_mesh_group(group, &mesh, NULL, 0, rank), 1);
        assert_int_equal(group[0], rank);
    }
}

static void groups_follow_the_order_of_sub_axes(void **state)
{
    clv_mesh mesh;
    int64_t group[12];
    assert_int_equal(clv_mesh_parse(&mesh, "x=2,y=6", NULL), CLV_OK);
    const clv_subaxis major = {1, 1, 2}, minor = {1, 2, 3}, x = {0, 1, 2};
    assert_int_equal(clv_mesh_coordinate(&mesh, major, 10), 1); /* y = 4 = 1*3 + 1 */
    assert_int_equal(clv_mesh_coordinate(&mesh, minor, 10), 1);
    assert_int_equal(clv_mesh_with_coordinate(&mesh, minor, 10, 2), 11);
    assert_int_equal(clv_mesh_with_coordinate(&mesh, major, 10, 0), 7);
    assert_int_equal(clv_mesh_group(group, &mesh, (clv_subaxis[]){minor, x}, 2, 10), 6);
    assert_memory_equal(group, ((int64_t[]){3, 9, 4, 10, 5, 11}), 6 * sizeof *group);
    assert_int_equal(clv_mesh_group(group, &mesh, (clv_subaxis[]){x, major, minor}, 3, 5), 12);
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(group[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_what_it_parses), cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(checks_a_struct),       cmocka_unit_test(finds_axes),
        cmocka_unit_test(ranks_are_row_major),   cmocka_unit_test(groups_follow_the_order_of_sub_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
