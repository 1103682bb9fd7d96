/* optimizer_options.h - optimizer options of `cleave train`: AdamW, SGD or Lion, learning-rate schedule, weight
 * decay, clipping.
 */
#ifndef CLEAVE_CLI_TRAIN_OPTIMIZER_OPTIONS_H
#define CLEAVE_CLI_TRAIN_OPTIMIZER_OPTIONS_H

#include "cleave/train.h"
#include "cli/parser/option_parser.h"

typedef struct clv_optimizer_option {
    const char *optimizer, *schedule, *betas;             /* betas NULL: the optimizer's */
    double beta[2];                                       /* what settle reads of them */
    double lr, min_lr, weight_decay, eps, clip, momentum; /* min_lr below 0: a tenth of lr */
    int64_t warmup, decay_steps;                          /* warmup below 0: a twentieth of the steps */
    int64_t accumulate;                                   /* parts of a step; 0: 1 */
    bool decay_all;
} clv_optimizer_option;

/* Rows of a command's option table. */
#define CLV_OPTIMIZER_OPTIONS(option)                                                                                  \
    {.names = "--lr",                                                                                                  \
     .kind = CLV_OPTION_REAL,                                                                                          \
     .out = &(option)->lr,                                                                                             \
     .real_min = 1e-9,                                                                                                 \
     .real_max = 10,                                                                                                   \
     .value = "RATE",                                                                                                  \
     .help = "peak learning rate (0.003)"},                                                                            \
        {.names = "--schedule, --lr-decay-style",                                                                      \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(option)->schedule,                                                                                   \
         .value = "cosine|linear|constant|wsd",                                                                        \
         .help =                                                                                                       \
             "how the rate goes down behind the warm-up; wsd: not at all, but for the last --decay-steps, straight "   \
             "(cosine)"},                                                                                              \
        {.names = "--warmup, --lr-warmup-iters",                                                                       \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(option)->warmup,                                                                                     \
         .min = 0,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "N",                                                                                                 \
         .help = "steps of linear warm-up (a twentieth of the steps)"},                                                \
        {.names = "--min-lr",                                                                                          \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(option)->min_lr,                                                                                     \
         .real_min = 0,                                                                                                \
         .real_max = 10,                                                                                               \
         .value = "RATE",                                                                                              \
         .advanced = true,                                                                                             \
         .help = "the rate that it goes down to (a tenth of --lr)"},                                                   \
        {.names = "--decay-steps, --lr-wsd-decay-iters",                                                               \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(option)->decay_steps,                                                                                \
         .min = 0,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "N",                                                                                                 \
         .advanced = true,                                                                                             \
         .help = "steps in which --schedule wsd goes down; 0: a tenth of the steps (0)"},                              \
        {.names = "--optimizer",                                                                                       \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(option)->optimizer,                                                                                  \
         .value = "adamw|sgd|lion",                                                                                    \
         .help = "what updates parameters (adamw); sgd has momentum"},                                                 \
        {.names = "--betas",                                                                                           \
         .kind = CLV_OPTION_STRING,                                                                                    \
         .out = &(option)->betas,                                                                                      \
         .value = "B1,B2",                                                                                             \
         .advanced = true,                                                                                             \
         .help = "how much of their means of gradients AdamW (0.9,0.95) and Lion (0.9,0.99) keep"},                    \
        {.names = "--eps, --adam-eps",                                                                                 \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(option)->eps,                                                                                        \
         .real_min = 1e-30,                                                                                            \
         .real_max = 1,                                                                                                \
         .value = "E",                                                                                                 \
         .advanced = true,                                                                                             \
         .help = "what AdamW adds to the root of squares (1e-8)"},                                                     \
        {.names = "--momentum, --sgd-momentum",                                                                        \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(option)->momentum,                                                                                   \
         .real_min = 0,                                                                                                \
         .real_max = 0.999999,                                                                                         \
         .value = "M",                                                                                                 \
         .advanced = true,                                                                                             \
         .help = "how much of its buffer --optimizer sgd keeps (0.9)"},                                                \
        {.names = "--weight-decay",                                                                                    \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(option)->weight_decay,                                                                               \
         .real_min = 0,                                                                                                \
         .real_max = 1,                                                                                                \
         .value = "W",                                                                                                 \
         .help = "weight decay (0.1), of sgd a part of the gradient, else apart; norms and biases are not decayed"},   \
        {.names = "--decay-all",                                                                                       \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(option)->decay_all,                                                                                  \
         .advanced = true,                                                                                             \
         .help = "decay norms and biases, too"},                                                                       \
    {                                                                                                                  \
        .names = "--clip, --clip-grad", .kind = CLV_OPTION_REAL, .out = &(option)->clip, .real_min = 0,                \
        .real_max = 1e6, .value = "NORM",                                                                              \
        .help = "gradients are scaled to a norm, of all together, of at most this (1.0); 0: they are not"              \
    }

/* What holds where nothing is given. */
#define CLV_OPTIMIZER_DEFAULTS                                                                                         \
    {                                                                                                                  \
        .optimizer = "adamw", .schedule = "cosine", .lr = 3e-3, .min_lr = -1, .momentum = 0.9, .weight_decay = 0.1,    \
        .eps = 1e-8, .clip = 1, .warmup = -1, .accumulate = 1                                                          \
    }

/* Options of a trainer, which hold pointers into one another. */
typedef struct clv_optimizer_settings {
    clv_lr_schedule schedule;
    clv_adamw_options adamw;
    clv_sgd_options sgd;
    clv_lion_options lion;
    clv_update_options update;
} clv_optimizer_settings;

/* Fills in what was not given, and checks the rest, for so many steps. @return CLV_EINVAL naming the option */
clv_status clv_optimizer_option_finalize(clv_optimizer_option *option, int64_t steps, clv_error *err);
/* Fills the optimizer's part of a trainer's options, of what was settled. */
clv_status clv_optimizer_option_apply(clv_trainer_options *options, clv_optimizer_settings *taken,
                                      const clv_optimizer_option *option, int64_t steps, clv_error *err);

#endif
