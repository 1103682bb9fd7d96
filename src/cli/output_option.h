/* output_option.h - `--json` and `--wide`, as every command takes them that prints a table, and `--out`, where what is
 * made goes. */
#ifndef CLEAVE_CLI_OUTPUT_OPTION_H
#define CLEAVE_CLI_OUTPUT_OPTION_H

/* Rows of a command's option table. not_beside_: what leaves it nothing to print, or NULL. */
#define CLV_JSON_OPTION(out_, not_beside_, help_)                                                                      \
    {                                                                                                                  \
        .names = "--json", .kind = CLV_OPTION_FLAG, .out = (out_), .not_beside = (not_beside_), .help = (help_)        \
    }
#define CLV_WIDE_OPTION(out_, not_beside_)                                                                             \
    {                                                                                                                  \
        .names = "--wide", .kind = CLV_OPTION_FLAG, .out = (out_), .not_beside = (not_beside_),                        \
        .help = "print all columns, whole, however wide the terminal is"                                               \
    }
/* Both, of a clv_table_form. others_: the options beside which they say nothing, as "--dot"; "": none. */
#define CLV_FORM_OPTIONS(form_, others_, help_)                                                                        \
    CLV_JSON_OPTION(&(form_)->json, others_, help_), CLV_WIDE_OPTION(&(form_)->wide, "--json " others_)

/* suffix_: of the file's name, or NULL for any. use_: CLV_OPTION_WRITES a file, or CLV_OPTION_MAKES a folder. */
#define CLV_OUT_OPTION(out_, value_, suffix_, use_, required_, help_)                                                  \
    {                                                                                                                  \
        .names = "--out", .kind = CLV_OPTION_STRING, .out = (out_), .value = (value_), .suffix = (suffix_),            \
        .use = (use_), .required = (required_), .help = (help_)                                                        \
    }

#endif
