/* schedule.h - the learning rate of a step: a linear warm-up, then half a cosine down to a floor.
 *
 *   step < warmup:  peak * (step + 1) / warmup
 *   else:           floor + (peak - floor) * (1 + cos(pi * (step - warmup) / (steps - warmup))) / 2, floor from `steps` on
 *
 * Source: Loshchilov & Hutter 2017, arXiv:1608.03983, one period.
 */
#ifndef CLEAVE_TRAIN_SCHEDULE_H
#define CLEAVE_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_schedule {
    double peak, floor; /* learning rates, 0 <= floor <= peak */
    int64_t warmup;     /* steps, 0 <= warmup <= steps */
    int64_t steps;      /* in all, >= 1 */
} clv_schedule;

clv_status clv_schedule_check(const clv_schedule *schedule, clv_error *err);

/* Of step 0, 1, ... */
double clv_schedule_rate(const clv_schedule *schedule, int64_t step);

#endif
