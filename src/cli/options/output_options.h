/* output_options.h - option rows of output: --json, --wide and --out. */
#pragma once

#include "cli/parser/option_parser.h"

#define CLV_JSON_OPTION(out_, conflicts_, help_) CLV_OPT_FLAG("--json", out_, help_, .conflicts_with = (conflicts_))
#define CLV_WIDE_OPTION(out_, conflicts_)                                                                              \
    CLV_OPT_FLAG("--wide", out_, "print all columns at full width", .conflicts_with = (conflicts_))
/* --json and --wide of a clv_table_format. others_: options that replace the table, as "--dot"; "": none. */
#define CLV_FORMAT_OPTIONS(form_, others_, help_)                                                                      \
    CLV_JSON_OPTION(&(form_)->json, others_, help_), CLV_WIDE_OPTION(&(form_)->wide, "--json " others_)
/* kind_: FILE or FOLDER. Further fields: .required, .suffix. */
#define CLV_OUT_OPTION(out_, value_, kind_, ...)                                                                       \
    CLV_OPT_STRING("--out", out_, value_, __VA_ARGS__, .use = CLV_OPTION_OUTPUT_##kind_)
