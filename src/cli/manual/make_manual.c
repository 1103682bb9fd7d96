/* make_manual.c - generator of man pages and shell completions from the tables of commands and options.
 *
 * usage: make_manual FOLDER        which is laid out as share/ is
 *
 * Linked with --wrap=clv_options_parse: a command hands over its table there, and ends.
 */
#include <sys/stat.h>

#include "cleave/machine.h"
#include "cleave/rules.h"
#include "cli/command.h"
#include "cli/manual/manual.h"

static clv_manual manual;

int __wrap_clv_options_parse(const clv_option *options, int n_options, int argc, char **argv);

int __wrap_clv_options_parse(const clv_option *options, int n_options, int argc, char **argv)
{
    clv_manual_page *page = &manual.page[manual.n - 1];
    if (n_options > CLV_MAX_OPTIONS)
        abort();
    memcpy(page->option, options, (size_t)n_options * sizeof *options);
    page->n = n_options;
    return CLV_EXIT_OK;
}

static void read_commands(const struct clv_command *commands, const char *above)
{
    for (const struct clv_command *c = commands; c->name; c++) {
        if (manual.n == CLV_PAGES)
            abort();
        clv_manual_page *page = &manual.page[manual.n++];
        *page = (clv_manual_page){.summary = c->summary, .help = c->help, .has_commands = c->commands != NULL};
        snprintf(page->path, sizeof page->path, "%s%s%s", above, above[0] ? " " : "", c->name);
        if (c->commands)
            read_commands(c->commands, page->path);
        else
            clv_command_invoke(c->run, 1, (char *[]){page->path, NULL});
    }
}

const char *clv_manual_page_name(const clv_manual_page *page)
{
    const char *blank = strrchr(page->path, ' ');
    return blank ? blank + 1 : page->path;
}

int clv_manual_next_subcommand_or_negative(const clv_manual *of, const clv_manual_page *above, int from)
{
    size_t n = strlen(above->path);
    for (int i = from; i < of->n; i++) {
        const char *path = of->page[i].path, *rest = n == 0 ? path : path + n + 1;
        if (path[0] && strncmp(path, above->path, n) == 0 && (n == 0 || path[n] == ' ') && !strchr(rest, ' '))
            return i;
    }
    return -1;
}

static void add_word(clv_value_hint *hint, const char *word, size_t length)
{
    size_t used = strlen(hint->words);
    snprintf(hint->words + used, sizeof hint->words - used, "%s%.*s", used ? " " : "", (int)length, word);
}

clv_value_hint clv_option_hint(const clv_option *option)
{
    clv_value_hint hint = {0};
    const char *value = option->value ? option->value : "", *name;
    if (option->kind == CLV_OPTION_CHOICE || option->kind == CLV_OPTION_ENUM)
        for (const char *word = value; *word; word += strspn(word, "|")) {
            size_t n = strcspn(word, "|");
            add_word(&hint, word, n);
            word += n;
        }
    for (int i = 0; strcmp(value, "RULES") == 0 && (name = clv_axis_rules_preset_name(i)) != NULL; i++)
        add_word(&hint, name, strlen(name));
    if (strcmp(value, "RULES") == 0)
        add_word(&hint, "auto", strlen("auto"));
    for (int i = 0; strcmp(value, "PROFILE") == 0 && (name = clv_machine_builtin_name(i)) != NULL; i++)
        add_word(&hint, name, strlen(name));
    if (strcmp(value, "DIR") == 0)
        hint.files = CLV_VALUE_FOLDER;
    else if (option->use != CLV_OPTION_NO_FILE || strncmp(value, "FILE", 4) == 0 || strcmp(value, "PATH") == 0 ||
             strcmp(value, "RULES") == 0 || strcmp(value, "PROFILE") == 0)
        hint.files = CLV_VALUE_FILE;
    return hint;
}

/* ---- files ---- */

static FILE *open_in(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *to = fopen(path, "w");
    if (!to)
        perror(path);
    return to;
}

static int finish(FILE *to)
{
    int lost = ferror(to);
    return fclose(to) == 0 && !lost ? 0 : 1;
}

static int write_page(const char *folder, const clv_manual_page *page)
{
    char name[128];
    snprintf(name, sizeof name, "man/man1/cleave%s%s.1", page->path[0] ? "-" : "", page->path);
    for (char *blank = strchr(name, ' '); blank; blank = strchr(blank, ' '))
        *blank = '-';
    FILE *to = open_in(folder, name);
    if (!to)
        return 1;
    clv_write_man_page(to, &manual, page);
    return finish(to);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(FILE *, const clv_manual *);
    } shells[] = {{"bash-completion/completions/cleave", clv_write_bash},
                  {"zsh/site-functions/_cleave", clv_write_zsh},
                  {"fish/vendor_completions.d/cleave.fish", clv_write_fish}};
    int lost = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: make_manual FOLDER\n");
        return CLV_EXIT_USAGE;
    }
    manual.page[manual.n++] =
        (clv_manual_page){.summary = clv_root_command.summary, .help = clv_root_command.help, .has_commands = true};
    read_commands(clv_root_command.commands, "");
    for (int i = 0; i < manual.n; i++)
        lost |= write_page(argv[1], &manual.page[i]);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        FILE *to = open_in(argv[1], shells[i].name);
        if (to)
            shells[i].write(to, &manual);
        lost |= !to || finish(to);
    }
    return lost ? CLV_EXIT_FAILED : CLV_EXIT_OK;
}
