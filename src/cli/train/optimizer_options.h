/* optimizer_options.h - optimizer options of `cleave train`: AdamW, SGD or Lion, learning-rate schedule, weight
 * decay, clipping.
 */
#pragma once

#include "cleave/train.h"
#include "cli/options/size_options.h"

typedef struct clv_optimizer_option {
    clv_optimizer optimizer;
    clv_lr_schedule schedule; /* floor below 0: a tenth of peak; warmup below 0: a twentieth of the steps */
    const char *betas;        /* NULL: the optimizer's default */
    double weight_decay;
    bool decay_all;
    clv_adamw_options adamw;
    clv_sgd_options sgd;
    clv_lion_options lion;
    clv_update_options update;
} clv_optimizer_option;

#define CLV_OPTIMIZER_OPTIONS(o)                                                                                       \
    CLV_OPT_REAL("--lr", &(o)->schedule.peak, 1e-9, 10, "RATE", "peak learning rate (0.003)"),                         \
        CLV_OPT_ENUM("--schedule, --lr-decay-style", &(o)->schedule.shape, "cosine|linear|constant|wsd", NULL,         \
                     "decay of the rate after the warm-up; wsd: constant, then linear in the last --decay-steps "      \
                     "(cosine)"),                                                                                      \
        CLV_OPT_INT("--warmup, --lr-warmup-iters", &(o)->schedule.warmup, 0, 1 << 30, "N",                             \
                    "steps of linear warm-up (a twentieth of the steps)"),                                             \
        CLV_OPT_REAL("--min-lr", &(o)->schedule.floor, 0, 10, "RATE", "final learning rate (a tenth of --lr)",         \
                     .advanced = true),                                                                                \
        CLV_OPT_INT("--decay-steps, --lr-wsd-decay-iters", &(o)->schedule.decay_steps, 0, 1 << 30, "N",                \
                    "decay steps of --schedule wsd; 0: a tenth of the steps (0)", .advanced = true),                   \
        CLV_OPT_ENUM("--optimizer", &(o)->optimizer, "adamw|sgd|lion", clv_optimizer_name,                             \
                     "optimizer (adamw); sgd has momentum"),                                                           \
        CLV_OPT_STRING("--betas", &(o)->betas, "B1,B2",                                                                \
                       "decay rates of the moments of AdamW (0.9,0.95) and Lion (0.9,0.99)", .advanced = true),        \
        CLV_OPT_REAL("--eps, --adam-eps", &(o)->adamw.eps, 1e-30, 1, "E", "epsilon of AdamW (1e-8)",                   \
                     .advanced = true),                                                                                \
        CLV_OPT_REAL("--momentum, --sgd-momentum", &(o)->sgd.momentum, 0, 0.999999, "M",                               \
                     "momentum of --optimizer sgd (0.9)", .advanced = true),                                           \
        CLV_OPT_REAL("--weight-decay", &(o)->weight_decay, 0, 1, "W",                                                  \
                     "weight decay, decoupled but in sgd; not of norms and biases (0.1)"),                             \
        CLV_OPT_FLAG("--decay-all", &(o)->decay_all, "weight decay of norms and biases, too", .advanced = true),       \
        CLV_OPT_REAL("--clip, --clip-grad", &(o)->update.clip, 0, 1e6, "NORM",                                         \
                     "maximum global gradient norm; 0: no clipping (1.0)"),                                            \
        CLV_OPT_REAL("--moe-router-bias-update-rate", &(o)->update.router_bias_update_rate, 0, 1, "RATE",              \
                     "what a step adds to the bias of each expert with fewer rows than the mean, and takes from "      \
                     "those with more; Megatron's is 0.001 (0)",                                                       \
                     .advanced = true)

#define CLV_OPTIMIZER_DEFAULTS                                                                                         \
    {                                                                                                                  \
        .schedule = {.peak = 3e-3, .floor = -1, .warmup = -1}, .sgd.momentum = 0.9, .adamw.eps = 1e-8,                 \
        .weight_decay = 0.1, .update = {                                                                               \
            .clip = 1,                                                                                                 \
            .accumulate = 1                                                                                            \
        }                                                                                                              \
    }

/* Fills in defaults for a run of so many steps, and sets the optimizer of a trainer's options, which point into
 * *option from then on. @return CLV_EINVAL naming the option */
clv_status clv_optimizer_option_apply(clv_trainer_options *trainer, clv_optimizer_option *option, int64_t steps,
                                      clv_error *err);
