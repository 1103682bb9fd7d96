/* test_cli_spearman.c - Spearman's correlation, against values worked out by hand: equal values share the mean
 * of their ranks. */
#include <math.h>

#include "cli/evaluation/spearman.h"
#include "unit_test.h"

static void expect(double want, const double *x, const double *y, int64_t n)
{
    double got = NAN;
    bool defined = false;
    assert_int_equal(clv_spearman(&got, &defined, x, y, n, NULL), CLV_OK);
    assert_true(defined);
    if (!(fabs(got - want) <= 1e-12))
        fail_msg("%.17g, not %.17g", got, want);
}

static void orders(void **state)
{
    const double x[] = {3, -1, 7, 0.5}, as_x[] = {30, 1, 31, 2}, against[] = {-3, 1, -7, -0.5}, other[] = {1, 2, 4, 3};
    expect(1, x, as_x, 4);
    expect(-1, x, against, 4);
    expect(0.4, x, other, 4); /* 1 - 6 (4 + 1 + 0 + 1) / (4 * 15) */
}

/* Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3. */
static void ties(void **state)
{
    const double x[] = {1, 5, 5, 9}, y[] = {1, 2, 3, 4};
    expect(4.5 / sqrt(4.5 * 5), x, y, 4);
}

static void no_order(void **state)
{
    const double x[] = {1, 1, 1}, y[] = {1, 2, 3};
    double got = 7;
    bool defined = true;
    assert_int_equal(clv_spearman(&got, &defined, x, y, 3, NULL), CLV_OK);
    assert_false(defined);
    defined = true;
    assert_int_equal(clv_spearman(&got, &defined, y, y, 1, NULL), CLV_OK);
    assert_false(defined);
    assert_true(got == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(ties), cmocka_unit_test(no_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
