/* test_reshard_verify.c - plans of changes of layout from C: their steps, their bytes, running them; and what is
 * refused.
 */

#include "cleave/reshard.h"
#include "must.h"
#include "unit_test.h"

static const int64_t shape[2] = {6, 4};

static void parse(clv_mesh *mesh, clv_layout *from, clv_layout *to, const char *from_text, const char *to_text)
{
    clv_error err = {0};
    must(clv_mesh_parse(mesh, "x=2,y=2", &err), &err);
    must(clv_layout_parse(from, from_text, mesh, 2, &err), &err);
    must(clv_layout_parse(to, to_text, mesh, 2, &err), &err);
}

static clv_reshard *plan(const char *from_text, const char *to_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_layout from, to;
    clv_reshard *r;
    parse(&mesh, &from, &to, from_text, to_text);
    must(clv_reshard_new(&r, &mesh, &from, &to, shape, CLV_F32, &err), &err);
    return r;
}

static void test_gather(void **state)
{
    clv_error err = {0};
    clv_reshard_step_info step = {.size = sizeof step};
    clv_reshard *r = plan("x,y", "x,_");
    assert_int_equal(clv_reshard_step_count(r), 1);
    must(clv_reshard_get_step(r, 0, &step, &err), &err);
    assert_string_equal(step.kind, "all_gather");
    assert_true(step.n_axes == 1 && step.axes[0].axis == 1 && step.axes[0].size == 2);
    assert_true(step.bytes == 24 && clv_reshard_bytes(r) == 24);
    assert_int_equal(clv_reshard_lower_bound_bytes(r), 24);
    assert_int_equal(clv_reshard_peak_bytes(r), 24 + 48);
    must(clv_reshard_verify(r, &err), &err);
    clv_reshard_free(r);
}

static void test_others(void **state)
{
    static const char *const pairs[][2] = {
        {"x,y", "x,y"}, {"_,_ + sum{x}", "x,_"}, {"(x,y),_", "_,(y,x)"}, {"_,_ + max{x,y}", "_,_"}, {"_,_", "y,x"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        clv_error err = {0};
        clv_reshard *r = plan(pairs[i][0], pairs[i][1]);
        must(clv_reshard_verify(r, &err), &err);
        assert_int_equal(clv_reshard_step_count(r) == 0, i == 0);
        assert_int_equal(clv_reshard_lower_bound_bytes(r) < 0, i == 1 || i == 3);
        clv_reshard_free(r);
    }
}

static void test_refused(void **state)
{
    clv_mesh mesh;
    clv_layout from, to, flat;
    clv_reshard *r;
    clv_reshard_step_info step = {.size = sizeof step};
    parse(&mesh, &from, &to, "x,y", "_,_");
    must(clv_layout_parse(&flat, "x", &mesh, 1, NULL), NULL);
    assert_int_equal(clv_reshard_new(NULL, &mesh, &from, &to, shape, CLV_F32, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_new(&r, NULL, &from, &to, shape, CLV_F32, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_new(&r, &mesh, NULL, &to, shape, CLV_F32, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_new(&r, &mesh, &from, NULL, shape, CLV_F32, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_new(&r, &mesh, &from, &to, NULL, CLV_F32, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_new(&r, &mesh, &from, &flat, shape, CLV_F32, NULL), CLV_ESHAPE);
    assert_int_equal(clv_reshard_new(&r, &mesh, &from, &to, (int64_t[]){-1, 4}, CLV_F32, NULL), CLV_ESHAPE);
    assert_int_equal(clv_reshard_new(&r, &mesh, &from, &to, shape, (clv_dtype)99, NULL), CLV_EDTYPE);
    r = plan("x,y", "x,_");
    assert_int_equal(clv_reshard_get_step(r, 1, &step, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_get_step(r, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_get_step(NULL, 0, &step, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_verify(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_reshard_step_count(NULL), 0);
    assert_true(clv_reshard_bytes(NULL) == 0);
    assert_int_equal(clv_reshard_peak_bytes(NULL), 0);
    assert_int_equal(clv_reshard_lower_bound_bytes(NULL), -1);
    clv_reshard_free(r);
    clv_reshard_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
