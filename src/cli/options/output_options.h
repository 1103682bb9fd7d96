/* output_options.h - --json, --wide and --out: option rows of commands that print a table or write a file. */
#ifndef CLEAVE_CLI_OPTIONS_OUTPUT_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_OUTPUT_OPTIONS_H

/* Rows of a command's option table. conflicts_with_: what leaves it nothing to print, or NULL. */
#define CLV_JSON_OPTION(out_, conflicts_with_, help_)                                                                  \
    {                                                                                                                  \
        .names = "--json", .kind = CLV_OPTION_FLAG, .out = (out_), .conflicts_with = (conflicts_with_),                \
        .help = (help_)                                                                                                \
    }
#define CLV_WIDE_OPTION(out_, conflicts_with_)                                                                         \
    {                                                                                                                  \
        .names = "--wide", .kind = CLV_OPTION_FLAG, .out = (out_), .conflicts_with = (conflicts_with_),                \
        .help = "print all columns, whole, however wide the terminal is"                                               \
    }
/* Both, of a clv_table_format. others_: the options beside which they say nothing, as "--dot"; "": none. */
#define CLV_FORMAT_OPTIONS(form_, others_, help_)                                                                      \
    CLV_JSON_OPTION(&(form_)->json, others_, help_), CLV_WIDE_OPTION(&(form_)->wide, "--json " others_)

/* suffix_: of the file's name, or NULL for any. use_: CLV_OPTION_OUTPUT_FILE a file, or CLV_OPTION_OUTPUT_FOLDER a
 * folder. */
#define CLV_OUT_OPTION(out_, value_, suffix_, use_, required_, help_)                                                  \
    {                                                                                                                  \
        .names = "--out", .kind = CLV_OPTION_STRING, .out = (out_), .value = (value_), .suffix = (suffix_),            \
        .use = (use_), .required = (required_), .help = (help_)                                                        \
    }

#endif
