/* test_lr_schedule.c - learning rates of every shape, at the steps where they turn. */
#include <math.h>
#include <string.h>

#include "cleave/train.h"
#include "must.h"
#include "unit_test.h"

static const clv_lr_schedule rates = {.peak = 1, .floor = 0.2, .warmup = 4, .steps = 24};

static void assert_rate(clv_lr_schedule_shape shape, int64_t decay, int64_t step, double want)
{
    clv_lr_schedule schedule = rates;
    schedule.shape = shape;
    schedule.decay_steps = decay;
    double got = clv_lr_schedule_rate(&schedule, step);
    if (!(fabs(got - want) <= 1e-12))
        fail_msg("shape %d, step %lld: %.15g, expected %.15g", (int)shape, (long long)step, got, want);
}

/* The warm-up, the turning points, the last step, and later ones. */
static void test_shapes(void **state)
{
    for (int shape = CLV_LR_SCHEDULE_COSINE; shape <= CLV_LR_SCHEDULE_WSD; shape++)
        for (int step = 0; step <= 4; step++)
            assert_rate((clv_lr_schedule_shape)shape, 0, step, step < 4 ? 0.25 * (step + 1) : 1);
    assert_rate(CLV_LR_SCHEDULE_COSINE, 0, 14, 0.6);
    assert_rate(CLV_LR_SCHEDULE_COSINE, 0, 9, 0.2 + 0.4 * (1 + sqrt(0.5)));
    assert_rate(CLV_LR_SCHEDULE_LINEAR, 0, 9, 0.8);
    assert_rate(CLV_LR_SCHEDULE_LINEAR, 0, 23, 0.24);
    assert_rate(CLV_LR_SCHEDULE_CONSTANT, 0, 23, 1);
    assert_rate(CLV_LR_SCHEDULE_WSD, 8, 16, 1);
    assert_rate(CLV_LR_SCHEDULE_WSD, 8, 20, 0.6);
    assert_rate(CLV_LR_SCHEDULE_WSD, 8, 23, 0.3);
    assert_rate(CLV_LR_SCHEDULE_WSD, 0, 21, 1); /* a tenth of 24, rounded up, is 3 */
    assert_rate(CLV_LR_SCHEDULE_WSD, 0, 22, 0.2 + 0.8 * 2 / 3);
    for (int step = 24; step < 30; step += 5) {
        assert_rate(CLV_LR_SCHEDULE_COSINE, 0, step, 0.2);
        assert_rate(CLV_LR_SCHEDULE_LINEAR, 0, step, 0.2);
        assert_rate(CLV_LR_SCHEDULE_CONSTANT, 0, step, 1);
        assert_rate(CLV_LR_SCHEDULE_WSD, 8, step, 0.2);
    }
}

static void test_no_schedule(void **state)
{
    (void)state;
    assert_true(clv_lr_schedule_rate(NULL, 0) == 0);
    assert_rate((clv_lr_schedule_shape)4, 0, 0, 0);
}

static void test_refused(void **state)
{
    static const struct {
        int shape, decay;
        clv_status status;
    } cases[] = {{CLV_LR_SCHEDULE_WSD, 20, CLV_OK},
                 {CLV_LR_SCHEDULE_WSD, 21, CLV_EINVAL},
                 {CLV_LR_SCHEDULE_WSD, -1, CLV_EINVAL},
                 {CLV_LR_SCHEDULE_COSINE, 1, CLV_EINVAL},
                 {4, 0, CLV_EINVAL},
                 {-1, 0, CLV_EINVAL}};
    static const clv_lr_schedule bad[] = {
        {.peak = 1, .floor = 2, .steps = 1},
        {.peak = 1, .floor = -1, .steps = 1},
        {.peak = NAN, .steps = 1},
        {.peak = INFINITY, .steps = 1},
        {.peak = 1},
        {.peak = 1, .warmup = -1, .steps = 1},
        {.peak = 1, .warmup = 2, .steps = 1},
    };
    assert_int_equal(clv_lr_schedule_check(&(clv_lr_schedule){.peak = 1, .warmup = 1, .steps = 1}, NULL), CLV_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(clv_lr_schedule_check(&bad[i], NULL), CLV_EINVAL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_lr_schedule schedule = rates;
        schedule.shape = (clv_lr_schedule_shape)cases[i].shape;
        schedule.decay_steps = cases[i].decay;
        assert_int_equal(clv_lr_schedule_check(&schedule, NULL), cases[i].status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_no_schedule),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
