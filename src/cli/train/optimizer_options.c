/* optimizer_options.c - optimizer options of `cleave train`: AdamW, SGD or Lion, learning-rate schedule, weight
 * decay, clipping.
 */
#include "cli/train/optimizer_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
        return clv_fail(err, CLV_EINVAL, "--betas: '%.64s'; valid: two numbers of at least 0 and below 1, as 0.9,0.95",
                        text);
    return CLV_OK;
}

/* In terms of the options; a schedule's own check would speak of what comes of them. */
static clv_status check_rates(const clv_optimizer_option *o, int64_t steps, clv_error *err)
{
    long long left = steps - o->warmup;
    if (o->min_lr > o->lr)
        return clv_fail(err, CLV_EINVAL, "--min-lr %g is above --lr %g", o->min_lr, o->lr);
    if (left < 0)
        return clv_fail(err, CLV_EINVAL, "--warmup %lld is more than --steps %lld", (long long)o->warmup,
                        (long long)steps);
    if (o->decay_steps > 0 && strcmp(o->schedule, "wsd") != 0)
        return clv_fail(err, CLV_EINVAL, "--decay-steps has no effect with --schedule %s; valid: wsd", o->schedule);
    if (o->decay_steps > left)
        return clv_fail(err, CLV_EINVAL, "--decay-steps %lld; --steps leave %lld behind the warm-up",
                        (long long)o->decay_steps, left);
    return CLV_OK;
}

clv_status clv_optimizer_option_finalize(clv_optimizer_option *o, int64_t steps, clv_error *err)
{
    o->warmup = o->warmup < 0 ? steps / 20 : o->warmup;
    o->min_lr = o->min_lr < 0 ? o->lr / 10 : o->min_lr;
    CLV_TRY(check_rates(o, steps, err));
    if (o->betas && strcmp(o->optimizer, "sgd") == 0)
        return clv_fail(err, CLV_EINVAL, "--betas has no effect with --optimizer sgd; valid: --momentum");
    o->betas = o->betas ? o->betas : strcmp(o->optimizer, "lion") == 0 ? "0.9,0.99" : "0.9,0.95";
    return parse_betas(o->beta, o->betas, err);
}

clv_status clv_optimizer_option_apply(clv_trainer_options *options, clv_optimizer_settings *t,
                                      const clv_optimizer_option *o, int64_t steps, clv_error *err)
{
    clv_optimizer optimizer;
    const double *beta = o->beta, decay = o->weight_decay;
    CLV_TRY(clv_optimizer_parse(&optimizer, o->optimizer, err));
    t->adamw = (clv_adamw_options){
        .size = sizeof t->adamw, .beta1 = beta[0], .beta2 = beta[1], .eps = o->eps, .weight_decay = decay, .exact = 1};
    t->sgd = (clv_sgd_options){.size = sizeof t->sgd, .momentum = o->momentum, .weight_decay = decay, .exact = 1};
    t->lion = (clv_lion_options){
        .size = sizeof t->lion, .beta1 = beta[0], .beta2 = beta[1], .weight_decay = decay, .exact = 1};
    t->schedule = (clv_lr_schedule){
        .peak = o->lr, .floor = o->min_lr, .warmup = o->warmup, .steps = steps, .decay_steps = o->decay_steps};
    CLV_TRY(clv_lr_schedule_shape_parse(&t->schedule.shape, o->schedule, err));
    t->update = (clv_update_options){.size = sizeof t->update,
                                     .adamw = &t->adamw,
                                     .clip = o->clip,
                                     .decay_all = o->decay_all,
                                     .optimizer = optimizer,
                                     .sgd = &t->sgd,
                                     .lion = &t->lion,
                                     .accumulate = o->accumulate};
    options->schedule = &t->schedule;
    options->update = &t->update;
    return CLV_OK;
}
