/* lr_schedule.c - learning-rate schedules: linear warm-up, then cosine, linear, constant or WSD. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "train/trainer.h"

static const double pi = 3.14159265358979323846;

clv_status clv_lr_schedule_check(const clv_lr_schedule *s, clv_error *err)
{
    CLV_TRY(clv_require(s != NULL, "clv_lr_schedule_check", "a schedule", err));
    if (!(s->floor >= 0 && s->floor <= s->peak && isfinite(s->peak)))
        return clv_fail(err, CLV_EINVAL, "learning rates %g down to %g: valid are 0 <= floor <= peak, finite", s->peak,
                        s->floor);
    if (s->steps < 1 || s->warmup < 0 || s->warmup > s->steps)
        return clv_fail(err, CLV_EINVAL, "%lld steps of warm-up in %lld: valid are 0 <= warm-up <= steps, steps >= 1",
                        (long long)s->warmup, (long long)s->steps);
    return CLV_OK;
}

/* ---- shapes ---- */

/* The rate behind the warm-up and before the last step. */
typedef double (*clv_lr_decay_function)(const clv_lr_schedule *s, int64_t decay, int64_t step);

static double decay_progress(const clv_lr_schedule *s, int64_t step)
{
    return (double)(step - s->warmup) / (double)(s->steps - s->warmup);
}

static double cosine(const clv_lr_schedule *s, int64_t decay, int64_t step)
{
    (void)decay;
    return s->floor + (s->peak - s->floor) * (1 + cos(pi * decay_progress(s, step))) / 2;
}

static double linear(const clv_lr_schedule *s, int64_t decay, int64_t step)
{
    (void)decay;
    return s->floor + (s->peak - s->floor) * (1 - decay_progress(s, step));
}

static double constant(const clv_lr_schedule *s, int64_t decay, int64_t step)
{
    (void)decay, (void)step;
    return s->peak;
}

static double warmup_stable_decay(const clv_lr_schedule *s, int64_t decay, int64_t step)
{
    int64_t left = s->steps - step, decay_functions = decay > 0 ? decay : (s->steps + 9) / 10;
    return left >= decay_functions ? s->peak : s->floor + (s->peak - s->floor) * (double)left / (double)decay_functions;
}

static const clv_lr_decay_function decay_functions[] = {cosine, linear, constant, warmup_stable_decay};
static const char *const names[] = {
#define NAME(shape, value, name) [value] = (name),
    CLV_LR_SCHEDULE_SHAPES(NAME)
#undef NAME
};
enum { SHAPES = sizeof names / sizeof names[0] };
_Static_assert(SHAPES == sizeof decay_functions / sizeof decay_functions[0], "a rate for each shape");

clv_status clv_lr_schedule_shape_parse(clv_lr_schedule_shape *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, "clv_lr_schedule_shape_parse", "out and a name", err));
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (clv_lr_schedule_shape)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "schedule '%.64s'; valid: %s, %s, %s, %s", name, names[0], names[1], names[2],
                    names[3]);
}

clv_status clv_lr_schedule_check_shape(const clv_lr_schedule *s, int64_t shape, int64_t decay, clv_error *err)
{
    CLV_TRY(clv_lr_schedule_check(s, err));
    if (shape < 0 || shape >= SHAPES)
        return clv_fail(err, CLV_EINVAL, "schedule shape %lld; valid: 0 to %d", (long long)shape, SHAPES - 1);
    if (decay < 0 || decay > s->steps - s->warmup || (decay > 0 && shape != CLV_LR_SCHEDULE_WSD))
        return clv_fail(err, CLV_EINVAL,
                        "%lld steps in which the learning rate goes down; valid: of wsd, 0 to the %lld behind the "
                        "warm-up; else 0",
                        (long long)decay, (long long)(s->steps - s->warmup));
    return CLV_OK;
}

double clv_lr_schedule_rate_of_shape(const clv_lr_schedule *s, clv_lr_schedule_shape shape, int64_t decay, int64_t step)
{
    if (!s || (unsigned)shape >= SHAPES)
        return 0;
    if (step < s->warmup)
        return s->peak * (double)(step + 1) / (double)s->warmup;
    if (step >= s->steps)
        return shape == CLV_LR_SCHEDULE_CONSTANT ? s->peak : s->floor;
    return decay_functions[shape](s, decay, step);
}

double clv_lr_schedule_rate(const clv_lr_schedule *s, int64_t step)
{
    return clv_lr_schedule_rate_of_shape(s, CLV_LR_SCHEDULE_COSINE, 0, step);
}
