/* model_options.h - options of commands that run a model (model folder, mesh, dtype, quantization, adapters), and
 * opening that model.
 */
#pragma once

#include "cleave/model.h"
#include "cli/job/job_processes.h"
#include "cli/options/auto_parallelism.h"
#include "cli/options/mesh_options.h"
#include "cli/options/run_options.h"

typedef struct clv_model_option {
    const char *path;
    clv_model_options options; /* the library's: rows set dtype, quant, check and compile; _resolve the rest */
    clv_mesh_option mesh;
    clv_comm_option comm;
    int64_t threads; /* a rank's; 0: not given */
    const char *hardware, *grad_reduce_dtype;
    bool no_patterns;            /* of a program of StableHLO text */
    bool every_process_runs_all; /* every process runs the model with all ranks */
    clv_plan_options workload;   /* what --rules auto finds rules for: rows, or the command, set mode, batch and seq;
                                    batch 0: it is refused. _resolve sets the rest */
    clv_auto_parallelism chosen; /* ranks and threads, when none were given; set by opening */
    clv_machine *machine;        /* of --hardware; set by _resolve, freed by its caller */
} clv_model_option;

/* The missing_hint of a model's folder: how to download it, when the name looks like one of the Hugging Face Hub. */
void clv_model_missing_hint(char *out, size_t size, const char *value);

/* -m. positional_: NO or ACCEPTED. Further fields after the help. */
#define CLV_MODEL_ROW(out_, value_, positional_, ...)                                                                  \
    CLV_OPT_INPUT("-m, --model", out_, value_, __VA_ARGS__, .positional = CLV_POSITIONAL_##positional_,                \
                  .missing_hint = clv_model_missing_hint)
/* Of programs of StableHLO text. */
#define CLV_NO_PATTERNS_OPTION(out_)                                                                                   \
    CLV_OPT_FLAG("--no-patterns", out_,                                                                                \
                 "of a program: its ops as they are; else attention, norms, activations and the cross-entropy are "    \
                 "recognised in their parts",                                                                          \
                 .advanced = true)
#define CLV_MODEL_OPTION(out_, value_, help_) CLV_MODEL_ROW(out_, value_, ACCEPTED, help_, .required = true)
/* Options of forward and verify that have an effect on a program; NULL: `path` names none. */
const char *clv_options_of_run_program(const char *path, const char **what);
/* Of a command that runs programs, too. */
#define CLV_MODEL_OR_PROGRAM_OPTION(out_)                                                                              \
    CLV_MODEL_ROW(out_, "PATH", ACCEPTED, "model folder: config.json and safetensors; or a program", .required = true, \
                  .allows = clv_options_of_run_program)
#define CLV_DTYPE_OPTION(out_)     CLV_DTYPE_ROW(out_, "f32|bf16", "of weights and activations (f32)")
#define CLV_QUANT_ROW(out_, help_) CLV_OPT_ENUM("--quant", out_, "none|q8|q4", clv_quant_name, help_)
#define CLV_QUANT_OPTION(out_)                                                                                         \
    CLV_QUANT_ROW(out_, "quantise linear layers to blocks of 32 integers of 8 or 4 bits with a scale, as GGUF's Q8_0 " \
                        "and Q4_0 (as the folder has them)")
/* Of a clv_lora_options. */
#define CLV_LORA_OPTIONS(lora, conflicts_)                                                                             \
    CLV_OPT_INT("--lora-rank", &(lora)->rank, 1, 1 << 20, "R",                                                         \
                "train low-rank adapters (LoRA) of this rank; the model's weights are frozen",                         \
                .conflicts_with = (conflicts_)),                                                                       \
        CLV_OPT_REAL("--lora-alpha", &(lora)->alpha, 1e-6, 1e6, "A", "adapters are scaled by A / R (R)",               \
                     .conflicts_with = (conflicts_), .advanced = true),                                                \
        CLV_OPT_REAL("--lora-dropout", &(lora)->dropout, 0, 0.999999, "P", "dropout of the adapters' inputs (0)",      \
                     .conflicts_with = (conflicts_), .advanced = true),                                                \
        CLV_OPT_STRING("--lora-targets", &(lora)->targets, "NAME,...",                                                 \
                       "modules with adapters, as PEFT's target_modules: q_proj,v_proj, or all-linear (all-linear)",   \
                       .conflicts_with = (conflicts_), .advanced = true)
/* *out: lora, or NULL without --lora-rank. @return CLV_EINVAL for other options of adapters without a rank */
clv_status clv_lora_options_resolve(const clv_lora_options **out, clv_lora_options *lora, clv_error *err);

/* How a clv_model_option runs, after its mesh and rules; */
#define CLV_MODEL_PRECISION_OPTIONS(o)                                                                                 \
    CLV_DTYPE_OPTION(&(o)->options.dtype), CLV_QUANT_OPTION(&(o)->options.quant),                                      \
        CLV_COMM_DTYPE_OPTION(&(o)->options.compile), CLV_COST_MODEL_OPTION(&(o)->hardware)
#define CLV_RUN_OPTIONS(o)                                                                                             \
    CLV_THREADS_OPTION(&(o)->threads, NULL), CLV_COMM_OPTIONS(&(o)->comm), CLV_OVERLAP_OPTION(&(o)->options.compile),  \
        CLV_CHECK_OPTION(&(o)->options.check)
/* all of it; */
#define CLV_MODEL_RUN_OPTIONS(o)                                                                                       \
    CLV_MESH_OPTIONS(&(o)->mesh), CLV_RULES_OPTIONS(&(o)->mesh), CLV_RUN_OPTIONS(o), CLV_MODEL_PRECISION_OPTIONS(o)
/* all of it in a benchmark, which runs in one process. rules_options: CLV_RULES_OPTION or _OPTIONS. */
#define CLV_MODEL_TIMED_OPTIONS(o, rules_options)                                                                      \
    CLV_MESH_OPTIONS(&(o)->mesh), rules_options(&(o)->mesh), CLV_THREADS_OPTION(&(o)->threads, NULL),                  \
        CLV_MODEL_PRECISION_OPTIONS(o)

/* Fills option->options from the other fields: mesh, rules, job, flight recorder, machine, threads, deadline. */
clv_status clv_model_option_resolve(clv_model_option *option, clv_error *err);
/* Opens the model with its files mapped, and a SIGBUS handler: a file that is cut while it is read is CLV_EIO. */
clv_status clv_model_option_open(clv_model **out, clv_model_option *option, clv_error *err);
/* clv_model_open, and clv_model_verify_across_processes. */
clv_status clv_model_open_alike(clv_model **out, const char *path, const clv_model_options *options, clv_error *err);
/* clv_auto_parallelism_fill for a model's folder or config.json. */
void clv_auto_parallelism_for_model(clv_model_option *option, const char *path);
/* Prints on stderr what was chosen for the user: ranks and threads, the rules of --rules auto. */
void clv_model_option_print_chosen(const clv_model_option *option, const char *command);
/* The same, and warnings before the model runs: more ranks than processors, unused tensors of the folder, weights that
 * are not quantised. */
void clv_model_option_warnings(const clv_model *model, const clv_model_option *option, const char *command);
