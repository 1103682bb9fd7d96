/* plan_target_options.h - options of `cleave plan` and `cleave explain`: a model or one block, sizes, mesh; and
 * compiling them.
 */
#pragma once

#include "cleave/formats.h"
#include "cli/options/model_options.h"
#include "cli/options/size_options.h"

typedef struct clv_plan_option {
    clv_plan_options plan; /* the library's: rows set most of it, _compile the rest */
    clv_lora_options lora;
    clv_mesh_option mesh;
    int64_t hosts, ranks_per_host; /* of --inventory; 0: the profile's */
    int64_t virtual_stages;        /* of --import; 0: not stated */
    const char *hardware, *software, *grad_reduce_dtype;
    bool no_patterns;     /* of a program of StableHLO text */
    clv_machine *machine; /* of --hardware; set by _read, freed by its caller */
} clv_plan_option;

#define CLV_PLAN_OPTION_DEFAULTS                                                                                       \
    {                                                                                                                  \
        .plan = {.size = sizeof(clv_plan_options)}, .mesh = {.tp = 1 }                                                 \
    }

#define CLV_PLAN_MODE_ROW(name, o, mode_, others, help_)                                                               \
    CLV_OPT_SET(name, &(o)->plan.mode, CLV_PLAN_MODE_##mode_, help_, .conflicts_with = others)
#define CLV_PLAN_OPTIONS(o)                                                                                            \
    CLV_MODEL_ROW(&(o)->plan.model, "PATH", ACCEPTED,                                                                  \
                  "config.json, or its folder; no weights are read; or a program (StableHLO text, torch.export)",      \
                  .conflicts_with = "--block", .allows = clv_options_of_program),                                      \
        CLV_NO_PATTERNS_OPTION(&(o)->no_patterns),                                                                     \
        CLV_OPT_ENUM("--block", &(o)->plan.block, "ffn|attention|gpt|llama", clv_plan_block_name,                      \
                     "one transformer block instead of a model"),                                                      \
        CLV_HIDDEN_OPTION(&(o)->plan.hidden, 1, 1 << 24, "M", "width of a block (256)"),                               \
        CLV_HEADS_OPTION(&(o)->plan.heads, 1, 1 << 20, "N", "query heads of a block other than ffn (8)"),              \
        CLV_KV_HEADS_OPTION(&(o)->plan.kv_heads, 0, 1 << 20, "K",                                                      \
                            "key and value heads of a block other than ffn; 0: as many as query heads (0)"),           \
        CLV_HEAD_DIM_OPTION(&(o)->plan.head_dim, 0, 1 << 20, "D",                                                      \
                            "width of a head of a block other than ffn; 0: M / heads (0)"),                            \
        CLV_FFN_OPTION(&(o)->plan.ffn, 0, 1 << 26, "F",                                                                \
                       "feed-forward width of a block other than attention; 0: 4 M (0)"),                              \
        CLV_OPT_FLAG("--bias", &(o)->plan.bias, "biases in the linear layers of a block", .advanced = true),           \
        CLV_PLAN_MODE_ROW("--forward", o, FORWARD, "--grad, --train, --prefill, --decode",                             \
                          "block: the forward pass (default)"),                                                        \
        CLV_PLAN_MODE_ROW(                                                                                             \
            "--grad", o, GRAD, "--train, --prefill, --decode",                                                         \
            "block: forward and backward, with the gradients of weights and input; program: also of its "              \
            "loss"),                                                                                                   \
        CLV_PLAN_MODE_ROW("--train", o, TRAIN, "--prefill, --decode",                                                  \
                          "model: a training step: forward, backward, AdamW (default)"),                               \
        CLV_PLAN_MODE_ROW("--prefill", o, PREFILL, "--decode", "model: S tokens into the KV cache"),                   \
        CLV_PLAN_MODE_ROW("--decode", o, DECODE, NULL, "model: one token after S - 1 others"),                         \
        CLV_LORA_OPTIONS(&(o)->lora, "--block"), CLV_BATCH_OPTION(&(o)->plan.batch, 1, 1 << 30, "B", "sequences (8)"), \
        CLV_ACCUMULATE_OPTIONS(&(o)->plan.accumulate, &(o)->plan.no_sync, &(o)->mesh.given),                           \
        CLV_DROPOUT_OPTIONS(&(o)->plan.dropout, &(o)->plan.attention_dropout),                                         \
        CLV_SEQ_OPTION(&(o)->plan.seq, 1, 1 << 30, "S", "tokens a sequence (128)"),                                    \
        CLV_DTYPE_ROW(&(o)->plan.dtype, "f32|bf16|f16|f64", "of weights and activations (f32)"),                       \
        CLV_QUANT_OPTION(&(o)->plan.quant), CLV_COMM_DTYPE_OPTION(&(o)->plan.compile),                                 \
        CLV_GRAD_REDUCE_DTYPE_OPTION(&(o)->grad_reduce_dtype), CLV_MESH_OPTIONS(&(o)->mesh),                           \
        CLV_RULES_OPTIONS(&(o)->mesh), CLV_LAYOUTS_OPTION(&(o)->mesh, "--rules"),                                      \
        CLV_OPT_STRING("--import", &(o)->mesh.import, "LAYOUT",                                                        \
                       "the layout that you run today: a file with PartitionSpecs or a parallelize_plan, or "          \
                       "Megatron's flags (cleave export)",                                                             \
                       .conflicts_with = "--mesh, -tp, --rules, --sp", .use = CLV_OPTION_INPUT_OR_NAME),               \
        CLV_OVERLAP_OPTION(&(o)->plan.compile), CLV_EXPERT_RANK_CAPACITY_OPTION(&(o)->plan.compile),                   \
        CLV_RECOMPUTE_OPTIONS(&(o)->plan.compile, &(o)->mesh.given),                                                   \
        CLV_OPT_INT("--max-implicit-bytes", &(o)->plan.compile.max_implicit_bytes, 0, INT64_MAX, "N",                  \
                    "fail when a collective that no layout asks for moves more bytes; 0: no limit (0)",                \
                    .advanced = true)

/* Options of plan and explain that have an effect on a program of StableHLO text; NULL: `path` names none. */
const char *clv_options_of_program(const char *path, const char **what);
/* Reads --import into mesh, rules and sizes that were not given, and sets default sizes; before all others. */
clv_status clv_plan_option_import(clv_plan_option *option, clv_error *err);
/* Fills option->plan from the other fields, but for mesh and rules. */
clv_status clv_plan_option_resolve(clv_plan_option *option, clv_error *err);
/* Gives the machine the hosts of --inventory, else those that the mesh was saved with; the mesh is read. */
clv_status clv_plan_option_set_hosts(clv_plan_option *option, clv_error *err);
/* The same with mesh and rules, and compiles it. */
clv_status clv_plan_option_compile(clv_program **out, clv_plan_option *option, clv_error *err);
/* Its graph as StableHLO text, freed by the caller. */
clv_status clv_plan_option_stablehlo(char **out, clv_plan_option *option, clv_error *err);
/* Its layout in a format, freed by the caller. */
clv_status clv_plan_option_layouts(char **out, clv_layout_format format, clv_plan_option *option, clv_error *err);
