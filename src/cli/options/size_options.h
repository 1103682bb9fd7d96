/* size_options.h - option rows of transformer sizes: hidden, layers, heads, ffn, batch, seq, dropout. Rows of a
 * command's option table; how large they may be and what they are by default is each command's.
 */
#ifndef CLEAVE_CLI_OPTIONS_SIZE_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_SIZE_OPTIONS_H

#define CLV_SIZE_ROW(names_, out_, min_, max_, value_, help_)                                                          \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_INT, .out = (out_), .min = (min_), .max = (max_), .value = (value_),       \
        .help = (help_)                                                                                                \
    }
#define CLV_HIDDEN_OPTION(out, min, max, value, help)                                                                  \
    CLV_SIZE_ROW("--hidden, --hidden-size", out, min, max, value, help)
#define CLV_LAYERS_OPTION(out, min, max, value, help) CLV_SIZE_ROW("--layers, --num-layers", out, min, max, value, help)
#define CLV_HEADS_OPTION(out, min, max, value, help)                                                                   \
    CLV_SIZE_ROW("--heads, --num-attention-heads", out, min, max, value, help)
#define CLV_KV_HEADS_OPTION(out, min, max, value, help)                                                                \
    CLV_SIZE_ROW("--kv-heads, --num-query-groups", out, min, max, value, help)
#define CLV_HEAD_DIM_OPTION(out, min, max, value, help)                                                                \
    CLV_SIZE_ROW("--head-dim, --kv-channels", out, min, max, value, help)
#define CLV_FFN_OPTION(out, min, max, value, help) CLV_SIZE_ROW("--ffn, --ffn-hidden-size", out, min, max, value, help)
#define CLV_BATCH_OPTION(out, min, max, value, help)                                                                   \
    CLV_SIZE_ROW("--batch, --global-batch-size", out, min, max, value, help)
#define CLV_ACCUMULATE_OPTION(out)                                                                                     \
    CLV_SIZE_ROW(                                                                                                      \
        "--accumulate, --gradient-accumulation-steps", out, 1, 1 << 20, "N",                                           \
        "parts of a training step's batch, one after the other; their gradients are added up and reduced once (1)")
#define CLV_SEQ_OPTION(out, min, max, value, help) CLV_SIZE_ROW("--seq, --seq-length", out, min, max, value, help)

/* An option's row, of who trains, or plans to. */
#define CLV_DROPOUT_OPTION(to)                                                                                         \
    {                                                                                                                  \
        .names = "--hidden-dropout", .kind = CLV_OPTION_REAL, .out = (to), .real_min = 0, .real_max = 0.999999,        \
        .value = "P", .advanced = true,                                                                                \
        .help =                                                                                                        \
            "the share of the embedding, and of what each layer's attention and MLP add to it, that is 0 in a step "   \
            "(0)"                                                                                                      \
    }
#define CLV_ATTENTION_DROPOUT_OPTION(to)                                                                               \
    {                                                                                                                  \
        .names = "--attention-dropout", .kind = CLV_OPTION_REAL, .out = (to), .real_min = 0, .real_max = 0.999999,     \
        .value = "P", .advanced = true, .help = "the share of attention's weights that is 0 in a step (0)"             \
    }

#endif
