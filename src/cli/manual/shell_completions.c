/* shell_completions.c - writes completions for bash, zsh and fish. */
#include <string.h>

#include "cli/manual/manual.h"

static bool is_positional(const clv_option *o)
{
    return o->names[0] != '-';
}

static bool may_repeat(const clv_option *o)
{
    return o->kind == CLV_OPTION_STRINGS || o->kind == CLV_OPTION_FILES;
}

/* Names with `between` between them. */
static void put_names(FILE *to, const clv_option *o, const char *between)
{
    const char *cursor = o->names;
    char name[CLV_OPTION_NAME_SIZE];
    for (const char *before = ""; clv_option_next_name(&cursor, name); before = between)
        fprintf(to, "%s%s", before, name);
}

/* Within quotes ' of a shell, with a backslash before each of `special`. */
static void put_quoted(FILE *to, const char *text, const char *special, const char *quote)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            fputs(quote, to);
        else
            fprintf(to, strchr(special, *c) ? "\\%c" : "%c", *c);
    }
}

/* Commands right below a page, between blanks. */
static void put_commands(FILE *to, const clv_manual *manual, const clv_manual_page *page)
{
    for (int i = clv_manual_next_subcommand_or_negative(manual, page, 0); i >= 0;
         i = clv_manual_next_subcommand_or_negative(manual, page, i + 1))
        fprintf(to, "%s ", clv_manual_page_name(&manual->page[i]));
}

/* ---- bash ---- */

static void put_bash_values(FILE *to, const clv_option *o)
{
    static const char *const files[] = {"", "-f", "-d"};
    clv_value_hint hint = clv_option_hint(o);
    fprintf(to, "        ");
    put_names(to, o, "|");
    fprintf(to, ") words='%s' files=%s ;;\n", hint.words, files[hint.files]);
}

/* After an option that takes several files, a word is another of them, until the next option. */
static void put_bash_several(FILE *to, const clv_manual_page *page)
{
    bool any = false;
    for (int i = 0; i < page->n; i++)
        if (page->option[i].kind == CLV_OPTION_FILES) {
            fputs(any ? "|" : "        for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do case $word in ", to);
            put_names(to, &page->option[i], "|");
            any = true;
        }
    if (any)
        fprintf(to, ") files=-f ;; -*) files= ;; esac; done\n");
}

static void put_bash_command(FILE *to, const clv_manual_page *page)
{
    fprintf(to, "    '%s')\n", page->path);
    put_bash_several(to, page);
    fprintf(to, "        case $option in\n");
    for (int i = 0; i < page->n; i++)
        if (!is_positional(&page->option[i]) && clv_option_takes_value(&page->option[i]))
            put_bash_values(to, &page->option[i]);
    fprintf(to, "        *) words='");
    for (int i = 0; i < page->n; i++)
        if (!is_positional(&page->option[i])) {
            put_names(to, &page->option[i], " ");
            fputc(' ', to);
        }
    fprintf(to, "--help' ;;\n        esac ;;\n");
}

void clv_write_bash(FILE *to, const clv_manual *manual)
{
    fprintf(to, "# bash completion for cleave\n"
                "_cleave() {\n"
                "    local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local command=${COMP_WORDS[1]} at=1 words= files= word\n"
                "    if [ \"$current\" = = ]; then current=\n"
                "    elif [ \"$option\" = = ]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi\n");
    fprintf(to,
            "    if [ \"$command\" = help ]; then at=2 command=${COMP_WORDS[2]}; fi\n"
            "    if [ \"$command\" = bench ] && [ $COMP_CWORD -gt $at ]; then at=$((at + 1)) "
            "command=\"bench ${COMP_WORDS[at]}\"; fi\n"
            "    if [ $COMP_CWORD = $at ]; then command=\"in ${command%% *}\"; fi\n"
            "    case $command in\n    'in bench')\n        if [ $COMP_CWORD = 1 ]; then words=bench; else words='");
    for (int i = 0; i < manual->n; i++)
        if (strcmp(manual->page[i].path, "bench") == 0)
            put_commands(to, manual, &manual->page[i]);
    fprintf(to, "'; fi ;;\n    'in '*) words='");
    put_commands(to, manual, &manual->page[0]);
    fprintf(to, "help --help --version' ;;\n");
    for (int i = 0; i < manual->n; i++)
        if (!manual->page[i].has_commands)
            put_bash_command(to, &manual->page[i]);
    fprintf(to, "    esac\n"
                "    COMPREPLY=()\n"
                "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(\n"
                "        [ -z \"$words\" ] || compgen -W \"$words\" -- \"$current\"\n"
                "        [ -z \"$files\" ] || compgen $files -- \"$current\")\n"
                "    [ -z \"$files\" ] || compopt -o filenames 2>/dev/null\n"
                "    return 0\n"
                "}\n"
                "complete -F _cleave cleave\n");
}

/* ---- zsh ---- */

static void put_zsh_action(FILE *to, const clv_option *o)
{
    static const char *const files[] = {"", "_files", "_files -/"};
    clv_value_hint hint = clv_option_hint(o);
    if (hint.words[0] && hint.files)
        fprintf(to, "{ compadd -- %s; %s }", hint.words, files[hint.files]);
    else if (hint.words[0])
        fprintf(to, "(%s)", hint.words);
    else
        fprintf(to, "%s", files[hint.files]);
}

static void put_zsh_option(FILE *to, const clv_option *o)
{
    const char *cursor = o->names;
    char name[CLV_OPTION_NAME_SIZE];
    while (clv_option_next_name(&cursor, name)) {
        fprintf(to, " \\\n            '");
        if (is_positional(o))
            fprintf(to, "1:%s", name);
        else if (may_repeat(o))
            fprintf(to, "*%s", name);
        else {
            fputc('(', to);
            put_names(to, o, " ");
            fprintf(to, ")%s", name);
        }
        if (!is_positional(o)) {
            fprintf(to, "%s[", clv_option_takes_value(o) && name[1] == '-' ? "=" : "");
            put_quoted(to, o->help, "[]:\\", "'\\''");
            fputc(']', to);
        }
        if (clv_option_takes_value(o) && !is_positional(o)) {
            fputc(':', to);
            put_quoted(to, o->value ? o->value : "value", ":\\", "'\\''");
        }
        if (clv_option_takes_value(o)) {
            fputc(':', to);
            put_zsh_action(to, o);
        }
        fputc('\'', to);
    }
}

/* The commands below a page, and the options of each. */
static void put_zsh_commands(FILE *to, const clv_manual *manual, const clv_manual_page *page, const char *function)
{
    fprintf(to, "%s() {\n    local line state\n    local -a commands\n    commands=(\n", function);
    for (int i = clv_manual_next_subcommand_or_negative(manual, page, 0); i >= 0;
         i = clv_manual_next_subcommand_or_negative(manual, page, i + 1)) {
        fprintf(to, "        '%s:", clv_manual_page_name(&manual->page[i]));
        put_quoted(to, manual->page[i].summary, ":\\", "'\\''");
        fprintf(to, "'\n");
    }
    fprintf(to, "    )\n    _arguments -C '1: :->command' '*:: :->options'\n    case $state in\n"
                "    command) _describe -t commands command commands ;;\n    options)\n        case $line[1] in\n");
    for (int i = clv_manual_next_subcommand_or_negative(manual, page, 0); i >= 0;
         i = clv_manual_next_subcommand_or_negative(manual, page, i + 1)) {
        const clv_manual_page *p = &manual->page[i];
        fprintf(to, "        %s)\n            ", clv_manual_page_name(p));
        if (p->has_commands) {
            fprintf(to, "%s_%s ;;\n", function, clv_manual_page_name(p));
            continue;
        }
        fprintf(to, "_arguments '(-h --help)'{-h,--help}'[print help]'");
        for (int k = 0; k < p->n; k++)
            put_zsh_option(to, &p->option[k]);
        fprintf(to, " ;;\n");
    }
    fprintf(to, "        esac ;;\n    esac\n}\n");
}

void clv_write_zsh(FILE *to, const clv_manual *manual)
{
    char function[128];
    fprintf(to, "#compdef cleave\n");
    for (int i = manual->n - 1; i >= 0; i--) {
        const clv_manual_page *page = &manual->page[i];
        if (!page->has_commands)
            continue;
        snprintf(function, sizeof function, "_cleave%s%s", page->path[0] ? "_" : "", page->path);
        put_zsh_commands(to, manual, page, function);
    }
    fprintf(to, "_cleave \"$@\"\n");
}

/* ---- fish ---- */

/* The condition: the words begin with the page's command; for a command of commands: they are no more than that. */
static void put_fish_condition(FILE *to, const clv_manual_page *page)
{
    fprintf(to, "complete -c cleave -n '%s %s'", page->has_commands ? "__cleave_at" : "__cleave_in", page->path);
}

static void put_fish_option(FILE *to, const clv_manual_page *page, const clv_option *o)
{
    const char *cursor = o->names;
    char name[CLV_OPTION_NAME_SIZE];
    clv_value_hint hint = clv_option_hint(o);
    put_fish_condition(to, page);
    while (clv_option_next_name(&cursor, name))
        fprintf(to, name[1] == '-' ? " -l %s" : strlen(name) == 2 ? " -s %s" : " -o %s", name + strspn(name, "-"));
    if (clv_option_takes_value(o))
        fprintf(to, hint.files ? " -r -F" : " -x");
    if (hint.files == CLV_VALUE_FOLDER)
        fprintf(to, " -a '(__fish_complete_directories)'");
    else if (hint.words[0])
        fprintf(to, " -a '%s'", hint.words);
    fprintf(to, " -d '");
    put_quoted(to, o->help, "\\", "\\'");
    fprintf(to, "'\n");
}

void clv_write_fish(FILE *to, const clv_manual *manual)
{
    fprintf(to, "# fish completion for cleave\n"
                "function __cleave_in\n"
                "    set -l words (commandline -opc)[2..-1]\n"
                "    test (count $words) -ge (count $argv); or return 1\n"
                "    test (count $argv) = 0; and return 0\n"
                "    set -l first $words[1..(count $argv)]\n"
                "    test \"$first\" = \"$argv\"\n"
                "end\n"
                "function __cleave_at\n"
                "    set -l words (commandline -opc)[2..-1]\n"
                "    test (count $words) = (count $argv); and __cleave_in $argv\n"
                "end\n"
                "complete -c cleave -f\n");
    for (int i = 0; i < manual->n; i++) {
        const clv_manual_page *page = &manual->page[i];
        for (int k = clv_manual_next_subcommand_or_negative(manual, page, 0); page->has_commands && k >= 0;
             k = clv_manual_next_subcommand_or_negative(manual, page, k + 1)) {
            put_fish_condition(to, page);
            fprintf(to, " -a %s -d '", clv_manual_page_name(&manual->page[k]));
            put_quoted(to, manual->page[k].summary, "\\", "\\'");
            fprintf(to, "'\n");
        }
        for (int k = 0; k < page->n; k++)
            if (!is_positional(&page->option[k]))
                put_fish_option(to, page, &page->option[k]);
    }
}
