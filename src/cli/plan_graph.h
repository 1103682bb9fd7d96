/* plan_graph.h - the graphs that `cleave plan` and `cleave explain` look at: one block alone, or a model by its
 * config.json. */
#ifndef CLEAVE_CLI_PLAN_GRAPH_H
#define CLEAVE_CLI_PLAN_GRAPH_H

#include <stdbool.h>

#include "cleave/program.h"
#include "cli/mesh_option.h"

typedef struct clv_plan_graph {
    const char *model;                    /* config.json or its folder; NULL: a block */
    const char *block;                    /* ffn, attention, gpt, llama */
    int64_t hidden, heads, kv_heads, ffn; /* of a block; negative: not given */
    bool bias;
    bool forward, gradient;      /* of a block: one of them */
    bool train, prefill, decode; /* of a model: one of them */
    int64_t batch, seq, context; /* context 0: seq */
    const char *dtype;
    clv_mesh_option mesh;
    bool regather;
    int64_t max_implicit_bytes; /* 0: any */
    const char *explain;        /* NULL, or the ops whose candidates are kept */
    bool keep_assignment;       /* or what was decided */
    const clv_machine *machine; /* what choices are priced by; NULL: the default */
} clv_plan_graph;

/* Their defaults. */
extern const clv_plan_graph clv_plan_graph_defaults;

/* Rows of a command's option table. */
#define CLV_PLAN_GRAPH_OPTIONS(g)                                                                                      \
    {.names = "-m, --model",                                                                                           \
     .kind = CLV_OPTION_STRING,                                                                                        \
     .out = &(g)->model,                                                                                               \
     .value = "PATH",                                                                                                  \
     .use = CLV_OPTION_READS,                                                                                          \
     .help = "config.json, or the folder that holds it; no weights are read"},                                         \
        {.names = "--block",                                                                                           \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(g)->block,                                                                                           \
         .value = "ffn|attention|gpt|llama",                                                                           \
         .help = "one block alone instead of a model"},                                                                \
        {.names = "--hidden, --hidden-size",                                                                           \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->hidden,                                                                                          \
         .min = 1,                                                                                                     \
         .max = 1 << 24,                                                                                               \
         .value = "M",                                                                                                 \
         .help = "width of a block (256)"},                                                                            \
        {.names = "--heads, --num-attention-heads",                                                                    \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->heads,                                                                                           \
         .min = 1,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .value = "N",                                                                                                 \
         .help = "its query heads (8); not of ffn"},                                                                   \
        {.names = "--kv-heads, --num-query-groups",                                                                    \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->kv_heads,                                                                                        \
         .min = 0,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .value = "K",                                                                                                 \
         .help = "its key and value heads; 0: as many as query heads; not of ffn"},                                    \
        {.names = "--ffn, --ffn-hidden-size",                                                                          \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->ffn,                                                                                             \
         .min = 0,                                                                                                     \
         .max = 1 << 26,                                                                                               \
         .value = "H",                                                                                                 \
         .help = "its feed-forward width; 0: four times its width; not of attention"},                                 \
        {.names = "--bias", .kind = CLV_OPTION_FLAG, .out = &(g)->bias, .help = "its linear layers have biases"},      \
        {.names = "--forward",                                                                                         \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(g)->forward,                                                                                         \
         .help = "a block's forward pass (what a block does unless told)"},                                            \
        {.names = "--grad",                                                                                            \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(g)->gradient,                                                                                        \
         .help = "forward and backward, with the gradients of its weights and its input"},                             \
        {.names = "--train",                                                                                           \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(g)->train,                                                                                           \
         .help = "a model's training step: forward, backward, AdamW (what a model does unless told)"},                 \
        {.names = "--prefill", .kind = CLV_OPTION_FLAG, .out = &(g)->prefill, .help = "S tokens into its KV cache"},   \
        {.names = "--decode", .kind = CLV_OPTION_FLAG, .out = &(g)->decode, .help = "one token after S - 1 others"},   \
        {.names = "--batch, --global-batch-size",                                                                      \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->batch,                                                                                           \
         .min = 1,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "B",                                                                                                 \
         .help = "sequences (8)"},                                                                                     \
        {.names = "--seq, --seq-length",                                                                               \
         .kind = CLV_OPTION_INT,                                                                                       \
         .out = &(g)->seq,                                                                                             \
         .min = 1,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .value = "S",                                                                                                 \
         .help = "tokens a sequence (128)"},                                                                           \
        {.names = "--dtype",                                                                                           \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(g)->dtype,                                                                                           \
         .value = "f32|bf16|f16|f64",                                                                                  \
         .help = "of weights and activations (f32)"},                                                                  \
        CLV_MESH_OPTIONS(&(g)->mesh), CLV_RULES_OPTIONS(&(g)->mesh),                                                   \
        {.names = "--regather",                                                                                        \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(g)->regather,                                                                                        \
         .help = "the backward pass gathers again what the forward pass gathered"},                                    \
    {                                                                                                                  \
        .names = "--max-implicit-bytes", .kind = CLV_OPTION_INT, .out = &(g)->max_implicit_bytes, .min = 0,            \
        .max = INT64_MAX, .value = "N", .help = "refuse a collective of more bytes that nobody asked for; 0: any"      \
    }

/* Builds and compiles. */
clv_status clv_plan_graph_compile(clv_program **out, const clv_plan_graph *g, clv_error *err);

#endif
