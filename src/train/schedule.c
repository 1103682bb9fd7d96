/* schedule.c - the learning rate of a step: see cleave/train.h. */
#include "cleave/train.h"

#include <math.h>

#include "base/error.h"

static const double pi = 3.14159265358979323846;

clv_status clv_schedule_check(const clv_schedule *s, clv_error *err)
{
    CLV_TRY(clv_require(s != NULL, "clv_schedule_check", "a schedule", err));
    if (!(s->floor >= 0 && s->floor <= s->peak && isfinite(s->peak)))
        return clv_fail(err, CLV_EINVAL, "learning rates %g down to %g: valid are 0 <= floor <= peak, finite", s->peak,
                        s->floor);
    if (s->steps < 1 || s->warmup < 0 || s->warmup > s->steps)
        return clv_fail(err, CLV_EINVAL, "%lld steps of warm-up in %lld: valid are 0 <= warm-up <= steps, steps >= 1",
                        (long long)s->warmup, (long long)s->steps);
    return CLV_OK;
}

double clv_schedule_rate(const clv_schedule *s, int64_t step)
{
    if (!s)
        return 0;
    if (step < s->warmup)
        return s->peak * (double)(step + 1) / (double)s->warmup;
    if (step >= s->steps)
        return s->floor;
    double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return s->floor + (s->peak - s->floor) * (1 + cos(pi * done)) / 2;
}
