/* size_options.h - option rows of transformer sizes: hidden, layers, heads, ffn, batch, seq, dropout. Their limits and
 * defaults are the command's.
 */
#pragma once

#include "cli/parser/option_parser.h"

/* Arguments: out, min, max, placeholder, help. */
#define CLV_HIDDEN_OPTION(...)   CLV_OPT_INT("--hidden, --hidden-size", __VA_ARGS__)
#define CLV_LAYERS_OPTION(...)   CLV_OPT_INT("--layers, --num-layers", __VA_ARGS__)
#define CLV_HEADS_OPTION(...)    CLV_OPT_INT("--heads, --num-attention-heads", __VA_ARGS__)
#define CLV_KV_HEADS_OPTION(...) CLV_OPT_INT("--kv-heads, --num-query-groups", __VA_ARGS__)
#define CLV_HEAD_DIM_OPTION(...) CLV_OPT_INT("--head-dim, --kv-channels", __VA_ARGS__)
#define CLV_FFN_OPTION(...)      CLV_OPT_INT("--ffn, --ffn-hidden-size", __VA_ARGS__)
#define CLV_BATCH_OPTION(...)    CLV_OPT_INT("--batch, --global-batch-size", __VA_ARGS__)
#define CLV_SEQ_OPTION(...)      CLV_OPT_INT("--seq, --seq-length", __VA_ARGS__)
/* given_: a clv_given_options *. */
#define CLV_ACCUMULATE_OPTIONS(accumulate_, no_sync, given_)                                                           \
    CLV_OPT_INT("--accumulate, --gradient-accumulation-steps", accumulate_, 1, 1 << 20, "N",                           \
                "microbatches of a training step, whose gradients are summed (1)", .given = &(given_)->accumulate),    \
        CLV_OPT_FLAG("--no-sync", no_sync,                                                                             \
                     "sum whole gradients, and reduce them once a step; by default FSDP and ZeRO sum shards",          \
                     .advanced = true)
#define CLV_DROPOUT_OPTIONS(hidden, attention)                                                                         \
    CLV_OPT_REAL("--hidden-dropout", hidden, 0, 0.999999, "P",                                                         \
                 "dropout of the embedding and of the outputs of attention and MLP (0)", .advanced = true),            \
        CLV_OPT_REAL("--attention-dropout", attention, 0, 0.999999, "P", "dropout of attention's weights (0)",         \
                     .advanced = true)
