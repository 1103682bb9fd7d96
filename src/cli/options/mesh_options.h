/* mesh_options.h - -tp, --mesh, --rules and --sp: option rows, and the mesh and sharding rules they give. */
#ifndef CLEAVE_CLI_OPTIONS_MESH_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_MESH_OPTIONS_H

#include <stdbool.h>

#include "cleave/mesh.h"
#include "cleave/plan.h"
#include "cleave/rules.h"

typedef struct clv_mesh_option {
    int64_t tp;        /* -tp */
    const char *text;  /* --mesh, instead of tp; NULL: not given */
    const char *rules; /* --rules, a preset or a file; NULL: not given */
    bool sp;           /* --sp: the same as --rules megatron-sp */
    bool generates;    /* of a command, not given: sequences grow by a token at a time, and stay whole: no --sp */
} clv_mesh_option;

/* Rows of a command's option table, one at a time, for those that take them otherwise than most: -tp, --mesh (a STRING,
 * or STRINGS), --rules. */
#define CLV_TP_ROW(out_, min_, max_, conflicts_with_, help_)                                                           \
    {                                                                                                                  \
        .names = "-tp, --tensor-parallel-size", .kind = CLV_OPTION_INT, .out = (out_), .min = (min_), .max = (max_),   \
        .value = "N", .conflicts_with = (conflicts_with_), .help = (help_)                                             \
    }
#define CLV_MESH_ROW(kind_, out_, required_, help_)                                                                    \
    {                                                                                                                  \
        .names = "--mesh", .kind = (kind_), .out = (out_), .value = "AXES", .required = (required_), .help = (help_)   \
    }
#define CLV_RULES_ROW(out_, help_)                                                                                     \
    {                                                                                                                  \
        .names = "--rules", .kind = CLV_OPTION_STRING, .out = (out_), .value = "RULES",                                \
        .use = CLV_OPTION_INPUT_OR_NAME, .help = (help_)                                                               \
    }

/* -tp and --mesh, and --rules and --sp. */
#define CLV_MESH_OPTIONS(option)                                                                                       \
    CLV_TP_ROW(&(option)->tp, 1, CLV_PLAN_MAX_RANKS, "--mesh", "ranks that split each layer: the mesh model=N"),       \
        CLV_MESH_ROW(CLV_OPTION_STRING, &(option)->text, false, "named axes of ranks, e.g. data=2,model=2")
/* Of commands that generate. */
#define CLV_RULES_OPTION(option)                                                                                       \
    CLV_RULES_ROW(                                                                                                     \
        &(option)->rules,                                                                                              \
        "how layers are split: dp, fsdp, megatron, megatron-sp, fsdp+megatron-sp, gspmd-2d, zero1, or a file")
#define CLV_RULES_OPTIONS(option)                                                                                      \
    CLV_RULES_OPTION(option),                                                                                          \
    {                                                                                                                  \
        .names = "--sp, --sequence-parallel", .kind = CLV_OPTION_FLAG, .out = &(option)->sp,                           \
        .conflicts_with = "--rules", .help = "the same as --rules megatron-sp"                                         \
    }

/* --mesh AXES. CLV_ESYNTAX where there are none. */
clv_status clv_mesh_option_parse(clv_mesh *out, const char *text, clv_error *err);
/* The mesh that was given, or model=N of -tp N. */
clv_status clv_mesh_option_read(clv_mesh *out, const clv_mesh_option *option, clv_error *err);
/* Warns on stderr when there are more ranks than processors: before they run, when nothing asked for is at fault. */
void clv_mesh_option_warn_oversubscribed(const clv_mesh *mesh, const char *command);
/* The rules for that mesh: a preset's name or a file. */
clv_status clv_mesh_option_rules(clv_axis_rules *out, const clv_mesh_option *option, const clv_mesh *mesh,
                                 clv_error *err);

#endif
