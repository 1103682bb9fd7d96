/* plan_option.h - what `cleave plan` and `cleave explain` look at: one block alone, or a model by its config.json. */
#ifndef CLEAVE_CLI_PLAN_OPTION_H
#define CLEAVE_CLI_PLAN_OPTION_H

#include <stdbool.h>

#include "cleave/plan.h"
#include "cli/mesh_option.h"

typedef struct clv_plan_option {
    clv_plan_options plan;                          /* what needs no reading: sizes, flags, machine */
    const char *block;                              /* ffn, attention, gpt, llama; NULL: a model */
    bool forward, gradient, train, prefill, decode; /* one of them, or none */
    const char *dtype;
    clv_mesh_option mesh;
} clv_plan_option;

/* Their defaults. */
extern const clv_plan_option clv_plan_option_defaults;

/* Rows of a command's option table. */
#define CLV_PLAN_OPTIONS(o)                                                                                            \
    {.names = "-m, --model",                                                                                           \
     .kind = CLV_OPTION_STRING,                                                                                        \
     .out = &(o)->plan.model,                                                                                          \
     .value = "PATH",                                                                                                  \
     .use = CLV_OPTION_READS,                                                                                          \
     .help = "config.json, or the folder that holds it; no weights are read"},                                         \
        {.names = "--block",                                                                                           \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(o)->block,                                                                                           \
         .value = "ffn|attention|gpt|llama",                                                                           \
         .help = "one block alone instead of a model"},                                                                \
        {.names = "--hidden, --hidden-size",                                                                           \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.hidden,                                                                                     \
         .min = 1,                                                                                                     \
         .max = 1 << 24,                                                                                               \
         .value = "M",                                                                                                 \
         .help = "width of a block (256)"},                                                                            \
        {.names = "--heads, --num-attention-heads",                                                                    \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.heads,                                                                                      \
         .min = 1,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .value = "N",                                                                                                 \
         .help = "its query heads (8); not of ffn"},                                                                   \
        {.names = "--kv-heads, --num-query-groups",                                                                    \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.kv_heads,                                                                                   \
         .min = 0,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .value = "K",                                                                                                 \
         .help = "its key and value heads; 0: as many as query heads; not of ffn"},                                    \
        {.names = "--head-dim, --kv-channels",                                                                         \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.head_dim,                                                                                   \
         .min = 0,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .value = "D",                                                                                                 \
         .help = "width of a head; 0: the block's by its heads; not of ffn"},                                          \
        {.names = "--ffn, --ffn-hidden-size",                                                                          \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.ffn,                                                                                        \
         .min = 0,                                                                                                     \
         .max = 1 << 26,                                                                                               \
         .value = "H",                                                                                                 \
         .help = "its feed-forward width; 0: four times its width; not of attention"},                                 \
        {.names = "--bias", .kind = CLV_OPTION_FLAG, .out = &(o)->plan.bias, .help = "its linear layers have biases"}, \
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
        {.names = "--batch, --global-batch-size",                                                                      \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.batch,                                                                                      \
         .min = 1,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "B",                                                                                                 \
         .help = "sequences (8)"},                                                                                     \
        {.names = "--seq, --seq-length",                                                                               \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(o)->plan.seq,                                                                                        \
         .min = 1,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "S",                                                                                                 \
         .help = "tokens a sequence (128)"},                                                                           \
        {.names = "--dtype",                                                                                           \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(o)->dtype,                                                                                           \
         .value = "f32|bf16|f16|f64",                                                                                  \
         .help = "of weights and activations (f32)"},                                                                  \
        CLV_MESH_OPTIONS(&(o)->mesh), CLV_RULES_OPTIONS(&(o)->mesh),                                                   \
        {.names = "--regather",                                                                                        \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->plan.regather,                                                                                   \
         .help = "the backward pass gathers again what the forward pass gathered"},                                    \
    {                                                                                                                  \
        .names = "--max-implicit-bytes", .kind = CLV_OPTION_INT, .out = &(o)->plan.max_implicit_bytes, .min = 0,       \
        .max = INT64_MAX, .value = "N", .help = "refuse a collective of more bytes that nobody asked for; 0: any"      \
    }

/* clv_plan_compile, of what the options say. */
clv_status clv_plan_option_compile(clv_program **out, const clv_plan_option *option, clv_error *err);
/* clv_plan_find_remedies, likewise. */
clv_status clv_plan_option_remedies(clv_plan_remedies **out, const clv_plan_option *option, clv_error *err);

#endif
