/* model_options.h - options of commands that run a model (model folder, mesh, dtype, quantization), and opening that
 * model.
 */
#ifndef CLEAVE_CLI_OPTIONS_MODEL_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_MODEL_OPTIONS_H

#include "cleave/model.h"
#include "cli/options/auto_parallelism.h"
#include "cli/options/hardware_option.h"
#include "cli/options/mesh_options.h"
#include "cli/options/run_options.h"
#include "cli/parser/option_parser.h"

typedef struct clv_model_option {
    const char *path;
    clv_mesh_option mesh;
    clv_run_option run;
    const char *dtype, *comm_dtype, *hardware;
    const char *quant;          /* NULL: none */
    clv_cancel *cancel;         /* as clv_model_options says it */
    clv_auto_parallelism whole; /* what was taken because nothing was said; set by opening */
} clv_model_option;

/* What is added where a folder of a model is not there: how one is fetched, if it was named as those of the Hub are. */
void clv_model_missing_hint(char *out, size_t size, const char *value);

/* Rows of a command's option table: which model, `-m`; */
#define CLV_MODEL_ROW(out_, value_, required_, bare_, help_)                                                           \
    {                                                                                                                  \
        .names = "-m, --model", .kind = CLV_OPTION_STRING, .out = (out_), .value = (value_), .required = (required_),  \
        .use = CLV_OPTION_INPUT, .bare = (bare_), .missing_hint = clv_model_missing_hint, .help = (help_)              \
    }
#define CLV_MODEL_OPTION(out_, value_, help_) CLV_MODEL_ROW(out_, value_, true, CLV_POSITIONAL_ACCEPTED, help_)
/* in which dtype, `--dtype`; */
#define CLV_DTYPE_OPTION(out_)                CLV_DTYPE_ROW(out_, "f32|bf16", "of weights and activations (f32)")
/* how weights are held, `--quant`; */
#define CLV_QUANT_ROW(out_, help_)                                                                                     \
    {                                                                                                                  \
        .names = "--quant", .kind = CLV_OPTION_CHOICE, .out = (out_), .value = "none|q8|q4", .help = (help_)           \
    }
#define CLV_QUANT_OPTION(out_)                                                                                         \
    CLV_QUANT_ROW(out_, "hold weights of linear layers in blocks of 32 integers of 8 or 4 bits, with a scale each, "   \
                        "as GGUF's Q8_0 and Q4_0 do (as the folder has them)")
/* what ranks carry to each other, `--comm-dtype`; */
#define CLV_COMM_DTYPE_OPTION(out_, conflicts_with_)                                                                   \
    {                                                                                                                  \
        .names = "--comm-dtype", .kind = CLV_OPTION_CHOICE, .out = (out_), .value = "f32|bf16|f16|q8",                 \
        .conflicts_with = (conflicts_with_), .advanced = true,                                                         \
        .help = "what ranks carry activations, gradients and weights of f32 to each other as (f32)"                    \
    }
/* what gradients are summed in, `--grad-reduce-dtype`; NULL: not given. */
#define CLV_GRAD_REDUCE_DTYPE_OPTION(out_)                                                                             \
    {                                                                                                                  \
        .names = "--grad-reduce-dtype", .kind = CLV_OPTION_CHOICE, .out = (out_), .value = "f32|bf16",                 \
        .advanced = true,                                                                                              \
        .help =                                                                                                        \
            "what gradients are added up in: f32: those of bf16, too, from where they are made; bf16: ranks carry "    \
            "those of f32 so to each other (what they are made in, and as --comm-dtype says)"                          \
    }
/* and all of how it runs. */
#define CLV_MODEL_RUN_OPTIONS(option)                                                                                  \
    CLV_MESH_OPTIONS(&(option)->mesh), CLV_RULES_OPTIONS(&(option)->mesh), CLV_RUN_OPTIONS(&(option)->run),            \
        CLV_DTYPE_OPTION(&(option)->dtype), CLV_QUANT_OPTION(&(option)->quant),                                        \
        CLV_COMM_DTYPE_OPTION(&(option)->comm_dtype, NULL), CLV_COST_MODEL_OPTION(&(option)->hardware)

/* And of commands that time it, alone in their process; between are --rules, and --sp where it has that. */
#define CLV_MODEL_TIMED_OPTIONS(option, rules_options)                                                                 \
    CLV_MESH_OPTIONS(&(option)->mesh), rules_options(&(option)->mesh),                                                 \
        CLV_THREADS_OPTION(&(option)->run.threads, NULL), CLV_DTYPE_OPTION(&(option)->dtype),                          \
        CLV_QUANT_OPTION(&(option)->quant), CLV_COMM_DTYPE_OPTION(&(option)->comm_dtype, NULL),                        \
        CLV_COST_MODEL_OPTION(&(option)->hardware)

/* What holds where nothing is given; the mesh and threads of zeros: the whole machine. The second of commands that
 * generate. */
#define CLV_MODEL_DEFAULTS                                                                                             \
    {                                                                                                                  \
        .dtype = "f32", .comm_dtype = "f32"                                                                            \
    }
#define CLV_MODEL_GENERATION_DEFAULTS                                                                                  \
    {                                                                                                                  \
        .mesh = {.generates = true}, .dtype = "f32", .comm_dtype = "f32"                                               \
    }

/* Of --grad-reduce-dtype: a clv_comm_dtype, and whether gradients are to be f32 whatever weights are. CLV_EINVAL for
 * f32 beside another --comm-dtype. */
clv_status clv_grad_reduce_option_read(clv_comm_dtype *carried, bool *f32, const char *grad_reduce,
                                       const char *comm_dtype, clv_error *err);

/* Of --quant: a clv_quant, as options structs have it. */
clv_status clv_quant_option_read(clv_quant *out, const char *quant, clv_error *err);

/* Opens the model, its files mapped, with a handler of SIGBUS: one that becomes shorter while it is read is CLV_EIO. */
clv_status clv_model_option_open(clv_model **out, clv_model_option *option, clv_error *err);
/* clv_auto_parallelism_fill for a model's folder or config.json. */
clv_auto_parallelism clv_auto_parallelism_for_model(clv_mesh_option *option, int64_t *threads, const char *path);

/* Says on stderr, before the model runs and when nothing asked for is at fault, that it runs on the whole machine, that
 * there are more ranks than processors, and that tensors of the folder are not the model's, if so. */
void clv_model_option_warnings(const clv_model *model, const clv_model_option *option, const char *command);

#endif
