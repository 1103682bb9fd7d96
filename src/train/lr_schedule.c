/* lr_schedule.c - learning-rate schedules: linear warm-up, then cosine, linear, constant or WSD. */
#include <math.h>

#include "train/trainer.h"

static const double pi = 3.14159265358979323846;
static const char *const names[] = {"cosine", "linear", "constant", "wsd"};
enum { SHAPES = sizeof names / sizeof names[0] };

clv_status clv_lr_schedule_check(const clv_lr_schedule *s, clv_error *err)
{
    CLV_TRY(clv_require(s != NULL, __func__, "a schedule", err));
    if (!(s->floor >= 0 && s->floor <= s->peak && isfinite(s->peak)))
        return clv_fail(err, CLV_EINVAL, "learning rate from %g to %g; valid: 0 <= floor <= peak, finite", s->peak,
                        s->floor);
    if (s->steps < 1 || s->warmup < 0 || s->warmup > s->steps)
        return clv_fail(err, CLV_EINVAL, "%lld warm-up steps of %lld; valid: 0 <= warmup <= steps, steps >= 1",
                        (long long)s->warmup, (long long)s->steps);
    if ((unsigned)s->shape >= SHAPES)
        return clv_fail(err, CLV_EINVAL, "schedule shape %d; valid: 0 to %d", (int)s->shape, SHAPES - 1);
    int64_t most = s->shape == CLV_LR_SCHEDULE_WSD ? s->steps - s->warmup : 0;
    if (s->decay_steps < 0 || s->decay_steps > most)
        return clv_fail(err, CLV_EINVAL, "%lld decay steps with schedule %s; valid: 0 to %lld",
                        (long long)s->decay_steps, names[s->shape], (long long)most);
    return CLV_OK;
}

clv_status clv_lr_schedule_shape_parse(clv_lr_schedule_shape *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and a name", err));
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (clv_lr_schedule_shape)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "schedule '%.64s'; valid: %s, %s, %s, %s", name, names[0], names[1], names[2],
                    names[3]);
}

double clv_lr_schedule_rate(const clv_lr_schedule *s, int64_t step)
{
    if (!s || (unsigned)s->shape >= SHAPES)
        return 0;
    if (step < s->warmup)
        return s->peak * (double)(step + 1) / (double)s->warmup;
    if (s->shape == CLV_LR_SCHEDULE_CONSTANT)
        return s->peak;
    if (step >= s->steps)
        return s->floor;
    int64_t left = s->steps - step, decay_steps = s->decay_steps > 0 ? s->decay_steps : (s->steps + 9) / 10;
    double range = s->peak - s->floor, done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    if (s->shape == CLV_LR_SCHEDULE_COSINE)
        return s->floor + range * (1 + cos(pi * done)) / 2;
    if (s->shape == CLV_LR_SCHEDULE_LINEAR)
        return s->floor + range * (1 - done);
    return left >= decay_steps ? s->peak : s->floor + range * (double)left / (double)decay_steps;
}
