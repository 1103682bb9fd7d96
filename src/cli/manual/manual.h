/* manual.h - tables of commands and options as the man page and completion writers read them. */
#pragma once

#include <stdio.h>

#include "cli/parser/option_parser.h"

enum { CLV_PAGES = 48 };

/* A command, or a command of commands, as `bench` is. Options' values lead nowhere. */
typedef struct clv_manual_page {
    char path[48]; /* "plan", "bench gemm"; "" is cleave itself */
    const char *summary, *help;
    bool has_commands;
    int n;
    clv_option option[CLV_MAX_OPTIONS];
} clv_manual_page;

typedef struct clv_manual {
    int n;
    clv_manual_page page[CLV_PAGES];
} clv_manual;

/* The commands right below a page, by number from `from` on; -1: no more. */
int clv_manual_next_subcommand_or_negative(const clv_manual *manual, const clv_manual_page *above, int from);
/* The last word of its path. */
const char *clv_manual_page_name(const clv_manual_page *page);

/* What a value may be: words, and names of files or folders. */
typedef enum clv_value_files { CLV_VALUE_NONE, CLV_VALUE_FILE, CLV_VALUE_FOLDER } clv_value_files;
typedef struct clv_value_hint {
    char words[512]; /* between blanks; "": any */
    clv_value_files files;
} clv_value_hint;
clv_value_hint clv_option_hint(const clv_option *option);

void clv_write_man_page(FILE *to, const clv_manual *manual, const clv_manual_page *page);
void clv_write_bash(FILE *to, const clv_manual *manual);
void clv_write_zsh(FILE *to, const clv_manual *manual);
void clv_write_fish(FILE *to, const clv_manual *manual);
