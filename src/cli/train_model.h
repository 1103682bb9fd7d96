/* train_model.h - which model train begins with: one of a folder (-m), of a config.json (--config), or of sizes. */
#ifndef CLEAVE_CLI_TRAIN_MODEL_H
#define CLEAVE_CLI_TRAIN_MODEL_H

#include "cleave/model.h"
#include "cli/model_option.h"
#include "cli/options.h"

typedef struct clv_start_option {
    const char *model, *config; /* at most one */
} clv_start_option;

#define CLV_START_OPTIONS(o)                                                                                           \
    {.names = "-m, --model",                                                                                           \
     .kind = CLV_OPTION_STRING,                                                                                        \
     .out = &(o)->model,                                                                                               \
     .value = "DIR",                                                                                                   \
     .use = CLV_OPTION_READS,                                                                                          \
     .absent = clv_model_option_absent,                                                                                \
     .not_beside = "--config, --layers, --hidden, --heads, --kv-heads, --ffn",                                         \
     .help = "go on from the weights of this folder of the Hub"},                                                      \
    {                                                                                                                  \
        .names = "--config", .kind = CLV_OPTION_STRING, .out = &(o)->config, .value = "FILE", .use = CLV_OPTION_READS, \
        .not_beside = "--layers, --hidden, --heads, --kv-heads, --ffn",                                                \
        .help = "begin with a model of this config.json, its weights by --seed"                                        \
    }

/* The model that the options name; *out is untouched where they name none. All processes call it.
 * @return clv_model_open's */
clv_status clv_start_option_open(clv_model **out, const clv_start_option *option, const clv_model_options *options,
                                 clv_error *err);

#endif
