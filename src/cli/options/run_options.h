/* run_options.h - option rows of how a program is compiled and run: --overlap, --comm-dtype, --recompute, --hardware,
 * --threads, --check, --seed, --dtype, --trace-out.
 */
#pragma once

#include "cleave/program.h"
#include "cli/parser/option_parser.h"

/* conflicts_: the options that a row cannot be combined with, or NULL. */

/* ---- fields of clv_compile_options ---- */

#define CLV_OVERLAP_OPTION(compile)                                                                                    \
    CLV_OPT_FLAG("--overlap", &(compile)->overlap,                                                                     \
                 "run collectives while ops that do not need them run: same results, more memory", .advanced = true)
#define CLV_PIPELINE_SCHEDULE_OPTION(compile)                                                                          \
    CLV_OPT_ENUM("--pipeline-schedule", &(compile)->schedule, "gpipe|1f1b|interleaved|zero-bubble|auto",               \
                 clv_plan_schedule_name,                                                                               \
                 "order in which the stages of a mesh with an axis pipe take microbatches; auto: the fastest that "    \
                 "fits (1f1b)",                                                                                        \
                 .advanced = true)
#define CLV_EXPERT_RANK_CAPACITY_OPTION(compile)                                                                       \
    CLV_OPT_REAL(                                                                                                      \
        "--moe-expert-rank-capacity-factor", &(compile)->expert_rank_capacity_factor, 0, 1e6, "F",                     \
        "room of a rank's experts: F times its own rows times the experts that a row chooses; more rows are an "       \
        "error; 0: all that might come (0)",                                                                           \
        .advanced = true)
#define CLV_COMM_DTYPE_OPTION(compile)                                                                                 \
    CLV_OPT_ENUM("--comm-dtype", &(compile)->comm_dtype, "f32|bf16|f16|q8", clv_comm_dtype_name,                       \
                 "wire dtype of f32 activations, gradients and weights (f32)", .advanced = true)
/* given_: a clv_given_options *. */
#define CLV_RECOMPUTE_OPTIONS(compile, given_)                                                                         \
    CLV_OPT_SET("--reshard-after-forward, --regather", &(compile)->reshard_after_forward, CLV_RESHARD_ALL,             \
                "gather activations again in the backward pass, too; by default weights alone are (FSDP)",             \
                .conflicts_with = "--keep-gathered, --reshard-weights", .advanced = true,                              \
                .given = &(given_)->reshard_after_forward),                                                            \
        CLV_OPT_SET("--reshard-weights", &(compile)->reshard_after_forward, CLV_RESHARD_WEIGHTS,                       \
                    "gather weights alone again in the backward pass (default)", .conflicts_with = "--keep-gathered",  \
                    .advanced = true, .given = &(given_)->reshard_after_forward),                                      \
        CLV_OPT_SET("--keep-gathered", &(compile)->reshard_after_forward, CLV_RESHARD_NONE,                            \
                    "gather weights once a step, and keep them for the backward pass", .advanced = true,               \
                    .given = &(given_)->reshard_after_forward),                                                        \
        CLV_OPT_ENUM("--recompute, --recompute-granularity", &(compile)->recompute, "none|selective|full",             \
                     clv_recompute_name,                                                                               \
                     "activation checkpointing: the backward pass recomputes what is cheap (selective), or all of a "  \
                     "block but its input (full) (none)",                                                              \
                     .given = &(given_)->recompute),                                                                   \
        CLV_OPT_SET("--recompute-activations", &(compile)->recompute, CLV_RECOMPUTE_SELECTIVE,                         \
                    "the same as --recompute selective", .conflicts_with = "--recompute", .advanced = true,            \
                    .given = &(given_)->recompute)
/* const char **out: for clv_grad_reduce_dtype_apply. */
#define CLV_GRAD_REDUCE_DTYPE_OPTION(out)                                                                              \
    CLV_OPT_CHOICE("--grad-reduce-dtype", out, "f32|bf16",                                                             \
                   "dtype of gradient sums: f32: bf16 gradients are computed and summed in f32; bf16: wire dtype of "  \
                   "f32 gradients (their dtype, and --comm-dtype)",                                                    \
                   .advanced = true)
/* Sets what --grad-reduce-dtype says; `word` NULL: not given. @return CLV_EINVAL for f32 with another --comm-dtype */
clv_status clv_grad_reduce_dtype_apply(clv_compile_options *compile, bool *f32_gradients, const char *word,
                                       clv_error *err);

/* ---- --hardware: a profile file, or the name of a built-in profile ---- */

#define CLV_HARDWARE_ROW(out, conflicts_, help_)                                                                       \
    CLV_OPT_STRING("--hardware", out, "PROFILE", help_ ": a file of bench profile, or a name of plan --hardware list", \
                   .conflicts_with = (conflicts_))
/* Commands that predict time. */
#define CLV_HARDWARE_OPTION(out, conflicts_)                                                                           \
    CLV_HARDWARE_ROW(out, conflicts_, "machine that layouts are chosen, and times predicted, for")
#define CLV_SOFTWARE_OPTION(out)                                                                                       \
    CLV_OPT_STRING("--software", out, "NAME",                                                                          \
                   "predict for another program on that machine, as its profile's \"software\" lists them, e.g. "      \
                   "pytorch, torch-compile; collectives overlap")
/* Commands that only run what they compile. */
#define CLV_COST_MODEL_OPTION(out) CLV_HARDWARE_ROW(out, NULL, "machine that layouts are chosen for")
/* Opens a profile; software: an entry of the profile's
 * "software", or NULL. profile NULL: *out is NULL, the default machine. Free with clv_machine_free. */
clv_status clv_hardware_option_open(clv_machine **out, const char *profile, const char *software, clv_error *err);

/* ---- running ---- */

#define CLV_THREADS_OPTION(out, conflicts_)                                                                            \
    CLV_OPT_INT("-t, --threads", out, 1, 1024, "N", "threads a rank (1; none of -tp, --mesh, -t: all cores)",          \
                .host_local = true, .conflicts_with = (conflicts_))
#define CLV_CHECK_OPTION(out)                                                                                          \
    CLV_OPT_FLAG("--check", out, "check the memory accesses of every op; slow", .advanced = true)
#define CLV_DTYPE_ROW(out, words, help_) CLV_OPT_ENUM("--dtype", out, words, clv_dtype_name, help_)
#define CLV_SEED_OPTION(out, conflicts_, help_)                                                                        \
    CLV_OPT_INT("-s, --seed", out, 0, INT64_MAX, "N", help_, .conflicts_with = (conflicts_))
#define CLV_TRACE_OUT_OPTION(out, conflicts_, help_)                                                                   \
    CLV_OPT_STRING("--trace-out", out, "FILE", help_, .use = CLV_OPTION_OUTPUT_FILE, .conflicts_with = (conflicts_),   \
                   .advanced = true)
#define CLV_ITERATIONS_OPTION(out, conflicts_)                                                                         \
    CLV_OPT_INT("--iterations", out, 1, 1 << 20, "N", "timed runs (7)", .conflicts_with = (conflicts_))
