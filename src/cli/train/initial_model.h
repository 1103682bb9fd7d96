/* initial_model.h - the model that training starts from: -m FOLDER, --config FILE, or sizes given as options. */
#ifndef CLEAVE_CLI_TRAIN_INITIAL_MODEL_H
#define CLEAVE_CLI_TRAIN_INITIAL_MODEL_H

#include "cleave/model.h"
#include "cli/options/model_options.h"
#include "cli/parser/option_parser.h"

typedef struct clv_initial_model_option {
    const char *model, *config; /* at most one */
} clv_initial_model_option;

#define CLV_INITIAL_MODEL_OPTIONS(o)                                                                                   \
    {.names = "-m, --model",                                                                                           \
     .kind = CLV_OPTION_STRING,                                                                                        \
     .out = &(o)->model,                                                                                               \
     .value = "DIR",                                                                                                   \
     .use = CLV_OPTION_INPUT,                                                                                          \
     .missing_hint = clv_model_missing_hint,                                                                           \
     .conflicts_with = "--config, --layers, --hidden, --heads, --kv-heads, --ffn",                                     \
     .help = "go on from the weights of this folder of the Hub"},                                                      \
    {                                                                                                                  \
        .names = "--config", .kind = CLV_OPTION_STRING, .out = &(o)->config, .value = "FILE", .use = CLV_OPTION_INPUT, \
        .conflicts_with = "--layers, --hidden, --heads, --kv-heads, --ffn",                                            \
        .help = "begin with a model of this config.json, its weights by --seed"                                        \
    }

/* The model that the options name; *out is untouched where they name none. All processes call it.
 * @return clv_model_open's */
clv_status clv_initial_model_open(clv_model **out, const clv_initial_model_option *option,
                                  const clv_model_options *options, clv_error *err);

#endif
