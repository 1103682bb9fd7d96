/* mesh_options.h - -tp, --mesh, --rules and --sp: option rows, and the mesh and sharding rules they give. */
#pragma once

#include "cleave/plan_search.h"
#include "cli/parser/option_parser.h"

/* Options of a training step that the command line has, though it be with their defaults. */
typedef struct clv_given_options {
    bool accumulate, recompute, reshard_after_forward;
} clv_given_options;

typedef struct clv_mesh_option {
    int64_t tp;             /* -tp; 0: not given */
    const char *text;       /* --mesh; NULL: not given */
    const char *rules;      /* --rules, a preset, a file or "auto"; NULL: not given */
    const char *stages;     /* --stages, the layers of each; NULL: balanced */
    int64_t virtual_stages; /* --virtual-stages; 0: not given */
    bool sp;                /* --sp: the same as --rules megatron-sp */
    const char *layouts;    /* --layouts, a file, of a program's tensors; NULL: not given */
    const char *import;     /* --import; NULL: not given */
    clv_saved_plan saved;   /* of --rules FILE; set by clv_mesh_option_read_rules_file, as file_mesh; or of --import */
    char file_mesh[CLV_MESH_TEXT];
    clv_given_options given;          /* set by the rows; a saved plan does not replace them */
    bool whole_sequences;             /* the command generates tokens: auto-parallelism must not choose --sp */
    const clv_plan_options *workload; /* what --rules auto finds rules for, but for its mesh; NULL: it is refused */
    int64_t memory_limit;             /* of --rules auto; 0: the machine's */
    clv_mesh mesh;                    /* set by clv_mesh_option_resolve, as axis_rules */
    clv_axis_rules axis_rules;
    clv_found_rules found; /* by --rules auto; priced 0: no search */
} clv_mesh_option;

/* Rows for commands that take these options in their own way. --mesh is a STRING or STRINGS. */
#define CLV_TP_ROW(out_, min_, max_, conflicts_, help_)                                                                \
    CLV_OPT_INT("-tp, --tensor-parallel-size", out_, min_, max_, "N", help_, .conflicts_with = (conflicts_))
#define CLV_MESH_ROW(kind_, out_, required_, help_)                                                                    \
    CLV_OPT_VALUE(kind_, "--mesh", out_, "AXES", help_, .required = (required_))
#define CLV_RULES_ROW(out_, help_) CLV_OPT_STRING("--rules", out_, "RULES", help_, .use = CLV_OPTION_INPUT_OR_NAME)

#define CLV_MESH_OPTIONS(option)                                                                                       \
    CLV_TP_ROW(&(option)->tp, 1, CLV_PLAN_MAX_RANKS, "--mesh", "ranks that split each layer: the mesh model=N"),       \
        CLV_MESH_ROW(STRING, &(option)->text, false, "named axes of ranks, e.g. data=2,model=2")
/* Without --sp, for commands that generate. */
#define CLV_RULES_OPTION(option)                                                                                       \
    CLV_RULES_ROW(&(option)->rules,                                                                                    \
                  "how layers are split: dp, fsdp, megatron, megatron-sp, fsdp+megatron-sp, gspmd-2d, zero1, "         \
                  "zero1+megatron-sp, a file, or auto: the fastest that a search finds")
#define CLV_RULES_OPTIONS(option)                                                                                      \
    CLV_RULES_OPTION(option), CLV_OPT_FLAG("--sp, --sequence-parallel", &(option)->sp,                                 \
                                           "the same as --rules megatron-sp", .conflicts_with = "--rules")

#define CLV_STAGES_OPTION(option)                                                                                      \
    CLV_OPT_STRING("--stages", &(option)->stages, "N,N,...",                                                           \
                   "layers of each pipeline stage, of virtual ones of each of these (balanced by predicted time)",     \
                   .advanced = true)
#define CLV_VIRTUAL_STAGES_OPTION(out)                                                                                 \
    CLV_OPT_INT("--virtual-stages, --num-virtual-stages-per-pipeline-rank", out, 1, CLV_MAX_VIRTUAL_STAGES, "N",       \
                "runs of layers of each pipeline stage: interleaved schedule (1)", .advanced = true)

/* For commands that take programs: what --rules is to models. conflicts_: "--rules", if the command has it. */
#define CLV_LAYOUTS_OPTION(option, conflicts_)                                                                         \
    CLV_OPT_INPUT("--layouts", &(option)->layouts, "FILE",                                                             \
                  "layouts of a program's tensors by name, as JSON (docs/programs.md)",                                \
                  .conflicts_with = (conflicts_))

/* Parses --mesh AXES. CLV_ESYNTAX for no axes. */
clv_status clv_mesh_option_parse(clv_mesh *out, const char *text, clv_error *err);
/* Where --rules is a file with a mesh, and neither --mesh nor -tp was given, sets option->text to the file's. */
void clv_mesh_option_read_rules_file(clv_mesh_option *option);
/* Sets the options of a training step that --rules FILE has and the command line has not; before or after
 * clv_mesh_option_resolve. accumulate NULL: not an option of the command. */
void clv_mesh_option_apply_rules_file(clv_mesh_option *option, clv_compile_options *compile, int64_t *accumulate,
                                      bool *no_sync);
/* Fills option->mesh alone. */
clv_status clv_mesh_option_read_mesh(clv_mesh_option *option, clv_error *err);
/* Fills option->mesh (of --mesh, or model=N of -tp N) and option->axis_rules; with --rules auto option->found. */
clv_status clv_mesh_option_resolve(clv_mesh_option *option, clv_error *err);
/* Whether rules are searched: --rules auto, and no file has that name. */
bool clv_mesh_option_is_auto(const clv_mesh_option *option);
/* Whether --rules names a file. */
bool clv_mesh_option_has_file(const clv_mesh_option *option);
/* Warns on stderr when there are more ranks than processors. */
void clv_mesh_option_warn_oversubscribed(const clv_mesh *mesh, const char *command);
