/* plan_target_options.h - options of `cleave plan` and `cleave explain`: a model or one block, sizes, mesh; and
 * compiling them.
 */
#ifndef CLEAVE_CLI_OPTIONS_PLAN_TARGET_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_PLAN_TARGET_OPTIONS_H

#include <stdbool.h>

#include "cleave/plan.h"
#include "cli/options/lora_options.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/recompute_options.h"
#include "cli/options/size_options.h"

typedef struct clv_plan_option {
    clv_plan_options plan;                          /* what needs no reading: sizes, flags, machine */
    const char *block;                              /* ffn, attention, gpt, llama; NULL: a model */
    bool forward, gradient, train, prefill, decode; /* one of them, or none */
    clv_lora_option lora;
    const char *dtype, *comm_dtype, *grad_reduce_dtype, *quant;
    clv_recompute_option recompute;
    clv_mesh_option mesh;
} clv_plan_option;

/* Their defaults. */
extern const clv_plan_option clv_plan_option_defaults;

/* Rows of a command's option table. */
#define CLV_PLAN_OPTIONS(o)                                                                                            \
    CLV_MODEL_ROW(&(o)->plan.model, "PATH", false, CLV_POSITIONAL_ACCEPTED,                                            \
                  "config.json, or the folder that holds it; no weights are read"),                                    \
        {.names = "--block",                                                                                           \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(o)->block,                                                                                           \
         .value = "ffn|attention|gpt|llama",                                                                           \
         .help = "one block alone instead of a model"},                                                                \
        CLV_HIDDEN_OPTION(&(o)->plan.hidden, 1, 1 << 24, "M", "width of a block (256)"),                               \
        CLV_HEADS_OPTION(&(o)->plan.heads, 1, 1 << 20, "N", "its query heads (8); not of ffn"),                        \
        CLV_KV_HEADS_OPTION(&(o)->plan.kv_heads, 0, 1 << 20, "K",                                                      \
                            "its key and value heads; 0: as many as query heads; not of ffn"),                         \
        CLV_HEAD_DIM_OPTION(&(o)->plan.head_dim, 0, 1 << 20, "D",                                                      \
                            "width of a head; 0: the block's by its heads; not of ffn"),                               \
        CLV_FFN_OPTION(&(o)->plan.ffn, 0, 1 << 26, "H",                                                                \
                       "its feed-forward width; 0: four times its width; not of attention"),                           \
        {.names = "--bias",                                                                                            \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->plan.bias,                                                                                       \
         .advanced = true,                                                                                             \
         .help = "its linear layers have biases"},                                                                     \
        {.names = "--forward",                                                                                         \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->forward,                                                                                         \
         .help = "a block's forward pass (what a block does unless told)"},                                            \
        {.names = "--grad",                                                                                            \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->gradient,                                                                                        \
         .help = "forward and backward, with the gradients of its weights and its input"},                             \
        {.names = "--train",                                                                                           \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->train,                                                                                           \
         .help = "a model's training step: forward, backward, AdamW (what a model does unless told)"},                 \
        {.names = "--prefill", .kind = CLV_OPTION_FLAG, .out = &(o)->prefill, .help = "S tokens into its KV cache"},   \
        {.names = "--decode", .kind = CLV_OPTION_FLAG, .out = &(o)->decode, .help = "one token after S - 1 others"},   \
        CLV_LORA_OPTIONS(&(o)->lora, "--block"), CLV_BATCH_OPTION(&(o)->plan.batch, 1, 1 << 30, "B", "sequences (8)"), \
        CLV_ACCUMULATE_OPTION(&(o)->plan.accumulate), CLV_DROPOUT_OPTION(&(o)->plan.dropout),                          \
        CLV_ATTENTION_DROPOUT_OPTION(&(o)->plan.attention_dropout),                                                    \
        CLV_SEQ_OPTION(&(o)->plan.seq, 1, 1 << 30, "S", "tokens a sequence (128)"),                                    \
        CLV_DTYPE_ROW(&(o)->dtype, "f32|bf16|f16|f64", "of weights and activations (f32)"),                            \
        CLV_QUANT_OPTION(&(o)->quant), CLV_COMM_DTYPE_OPTION(&(o)->comm_dtype, NULL),                                  \
        CLV_GRAD_REDUCE_DTYPE_OPTION(&(o)->grad_reduce_dtype), CLV_MESH_OPTIONS(&(o)->mesh),                           \
        CLV_RULES_OPTIONS(&(o)->mesh), CLV_OVERLAP_OPTION(&(o)->plan.compile.overlap),                                 \
        CLV_RESHARD_AFTER_FORWARD_OPTION(&(o)->plan.compile.reshard_after_forward),                                    \
        CLV_RECOMPUTE_OPTIONS(&(o)->recompute),                                                                        \
    {                                                                                                                  \
        .names = "--max-implicit-bytes", .kind = CLV_OPTION_INT, .out = &(o)->plan.compile.max_implicit_bytes,         \
        .min = 0, .max = INT64_MAX, .value = "N", .advanced = true,                                                    \
        .help = "refuse a collective of more bytes that nobody asked for; 0: any"                                      \
    }

/* clv_plan_compile, of what the options say. */
clv_status clv_plan_option_compile(clv_program **out, const clv_plan_option *option, clv_error *err);
/* clv_plan_find_suggestions, likewise. */
clv_status clv_plan_option_suggestions(clv_plan_suggestions **out, const clv_plan_option *option, clv_error *err);
/* clv_plan_find_axis_order, likewise. */
clv_status clv_plan_option_device_order(clv_mesh *mesh, double *seconds, const clv_plan_option *option, clv_error *err);

#endif
