/* output_option.h - `--json`, as every command takes it that prints a table, and `--out`, where what is made goes. */
#ifndef CLEAVE_CLI_OUTPUT_OPTION_H
#define CLEAVE_CLI_OUTPUT_OPTION_H

/* A row of a command's option table. not_beside_: what leaves it nothing to print, or NULL. */
#define CLV_JSON_OPTION_BESIDE(out_, not_beside_, help_)                                                               \
    {                                                                                                                  \
        .names = "--json", .kind = CLV_OPTION_FLAG, .out = (out_), .not_beside = (not_beside_), .help = (help_)        \
    }
#define CLV_JSON_OPTION(out_) CLV_JSON_OPTION_BESIDE(out_, NULL, "print JSON")

/* use_: CLV_OPTION_WRITES a file, or CLV_OPTION_MAKES a folder. */
#define CLV_OUT_OPTION(out_, value_, use_, required_, help_)                                                           \
    {                                                                                                                  \
        .names = "--out", .kind = CLV_OPTION_STRING, .out = (out_), .value = (value_), .use = (use_),                  \
        .required = (required_), .help = (help_)                                                                       \
    }

#endif
