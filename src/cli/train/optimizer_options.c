/* optimizer_options.c - optimizer options of `cleave train`: AdamW, SGD or Lion, learning-rate schedule, weight
 * decay, clipping.
 */
#include "cli/train/optimizer_options.h"

#include <math.h>
#include <stdlib.h>

static bool is_beta(double value)
{
    return value >= 0 && value < 1;
}

static clv_status parse_betas(double beta[2], const char *text, clv_error *err)
{
    char *comma, *end;
    beta[0] = strtod(text, &comma);
    beta[1] = *comma == ',' ? strtod(comma + 1, &end) : NAN;
    if (comma == text || *comma != ',' || end == comma + 1 || *end || !is_beta(beta[0]) || !is_beta(beta[1]))
        return clv_fail(err, CLV_EINVAL, "--betas: '%.64s'; valid: two numbers from 0 to below 1, e.g. 0.9,0.95", text);
    return CLV_OK;
}

/* Errors name options; those of a schedule would name its fields. */
static clv_status check_rates(const clv_optimizer_option *o, clv_error *err)
{
    const clv_lr_schedule *s = &o->schedule;
    long long steps = s->steps, warmup = s->warmup, decay = s->decay_steps;
    if (s->floor > s->peak)
        return clv_fail(err, CLV_EINVAL, "--min-lr %g is above --lr %g", s->floor, s->peak);
    if (warmup > steps)
        return clv_fail(err, CLV_EINVAL, "--warmup %lld is more than --steps %lld", warmup, steps);
    if (decay > 0 && s->shape != CLV_LR_SCHEDULE_WSD)
        return clv_fail(err, CLV_EINVAL, "--decay-steps has no effect without --schedule wsd");
    if (decay > steps - warmup)
        return clv_fail(err, CLV_EINVAL, "--decay-steps %lld is more than the %lld steps after the warm-up", decay,
                        steps - warmup);
    if (o->betas && o->optimizer == CLV_OPTIMIZER_SGD)
        return clv_fail(err, CLV_EINVAL, "--betas has no effect with --optimizer sgd; valid: --momentum");
    return CLV_OK;
}

clv_status clv_optimizer_option_apply(clv_trainer_options *trainer, clv_optimizer_option *o, int64_t steps,
                                      clv_error *err)
{
    double beta[2];
    o->schedule.steps = steps;
    o->schedule.warmup = o->schedule.warmup < 0 ? steps / 20 : o->schedule.warmup;
    o->schedule.floor = o->schedule.floor < 0 ? o->schedule.peak / 10 : o->schedule.floor;
    CLV_TRY(check_rates(o, err));
    if (!o->betas)
        o->betas = o->optimizer == CLV_OPTIMIZER_LION ? "0.9,0.99" : "0.9,0.95";
    CLV_TRY(parse_betas(beta, o->betas, err));
    o->adamw = (clv_adamw_options){.size = sizeof o->adamw,
                                   .beta1 = beta[0],
                                   .beta2 = beta[1],
                                   .eps = o->adamw.eps,
                                   .weight_decay = o->weight_decay,
                                   .exact = 1};
    o->sgd = (clv_sgd_options){
        .size = sizeof o->sgd, .momentum = o->sgd.momentum, .weight_decay = o->weight_decay, .exact = 1};
    o->lion = (clv_lion_options){
        .size = sizeof o->lion, .beta1 = beta[0], .beta2 = beta[1], .weight_decay = o->weight_decay, .exact = 1};
    o->update.size = sizeof o->update;
    o->update.adamw = &o->adamw;
    o->update.sgd = &o->sgd;
    o->update.lion = &o->lion;
    o->update.optimizer = o->optimizer;
    o->update.decay_all = o->decay_all;
    trainer->schedule = &o->schedule;
    trainer->update = &o->update;
    return CLV_OK;
}
