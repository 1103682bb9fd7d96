/* test_docs.c - what README.md and docs say that a command prints is what it prints. Blocks that begin as one of those
 * below are run; "..." stands for the rest of the output. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/model.h"
#include "unit_test.h"

/* Commands whose output is the same everywhere: no times of this machine, no files. */
static const char *const checked[] = {"$ cleave einsum ",
                                      "$ cleave reshard ",
                                      "$ cleave plan --block ",
                                      "$ cleave plan -m data/configs/",
                                      "$ cleave explain --block ",
                                      "$ for tp in ",
                                      "$ spmd",
                                      "$ custom_op"};

static const char *path_of(const char *variable)
{
    const char *path = getenv(variable);
    assert_non_null(path);
    return path;
}

static bool is_checked(const char *line)
{
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++)
        if (strncmp(line, checked[i], strlen(checked[i])) == 0)
            return true;
    return strncmp(line, "$ cleave bench block ", 21) == 0 && strstr(line, " --program") != NULL;
}

/* Compares the lines up to the closing fence with those of the command. */
static void check_block(FILE *doc, const char *where, const char *command)
{
    char with_path[8192], want[8192], got[8192];
    snprintf(with_path, sizeof with_path,
             "unset COLUMNS; export LC_ALL=C.UTF-8; PATH='%s':'%s/examples':\"$PATH\"; cd '%s' && { %s; } 2>/dev/null",
             path_of("CLV_BUILD_DIR"), path_of("CLV_BUILD_DIR"), path_of("CLV_SOURCE_DIR"), command);
    FILE *pipe = popen(with_path, "r");
    assert_non_null(pipe);
    bool rest = false;
    while (fgets(want, sizeof want, doc) && strncmp(want, "```", 3) != 0 && !rest) {
        rest = strcmp(want, "...\n") == 0;
        if (rest)
            continue;
        if (!fgets(got, sizeof got, pipe))
            fail_msg("%s: %s prints nothing where '%s' is documented", where, command, want);
        else if (strcmp(got, want) != 0)
            fail_msg("%s: %s prints\n%sbut documented is\n%s", where, command, got, want);
    }
    if (!rest && fgets(got, sizeof got, pipe))
        fail_msg("%s: %s prints more than is documented: %s", where, command, got);
    while (fgets(got, sizeof got, pipe))
        ;
    pclose(pipe);
}

/* ---- pages ---- */

/* Checks a line of a page; returns how much of it there was to check. */
typedef int line_fn(FILE *doc, char *line, const char *folder, const char *page);

/* Shows every line of every page of a folder of the tree; returns what was checked in all. */
static int for_lines(const char *of, line_fn *check)
{
    char folder[4096], path[8192], line[8192];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/%s", path_of("CLV_SOURCE_DIR"), of);
    DIR *pages = opendir(folder);
    assert_non_null(pages);
    for (const struct dirent *entry; (entry = readdir(pages));) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 3, ".md") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *doc = fopen(path, "r");
        if (!doc)
            fail_msg("%s cannot be read", path);
        while (doc && fgets(line, sizeof line, doc))
            n += check(doc, line, folder, entry->d_name);
        fclose(doc);
    }
    closedir(pages);
    return n;
}

static int check_output(FILE *doc, char *line, const char *folder, const char *page)
{
    line[strcspn(line, "\n")] = '\0';
    if (!is_checked(line))
        return 0;
    check_block(doc, page, line + 2);
    return 1;
}

static void test_outputs(void **state)
{
    assert_true(for_lines(".", check_output) > 0);
    assert_true(for_lines("docs", check_output) >= 8);
    for_lines("docs/contributing", check_output);
}

/* Every link of a page to another file leads somewhere. */
static int check_links(FILE *doc, char *line, const char *folder, const char *page)
{
    char target[16384];
    int n = 0;
    for (const char *link = strstr(line, "]("); link; link = strstr(link + 2, "](")) {
        int length = (int)strcspn(link + 2, ")#");
        if (length == 0 || strncmp(link + 2, "http", 4) == 0)
            continue;
        snprintf(target, sizeof target, "%s/%.*s", folder, length, link + 2);
        if (access(target, F_OK) != 0)
            fail_msg("%s/%s links to %.*s, which there is not", folder, page, length, link + 2);
        n++;
    }
    return n;
}

static void test_links(void **state)
{
    assert_true(for_lines(".", check_links) > 10);
    assert_true(for_lines("docs", check_links) > 10);
    assert_true(for_lines("docs/contributing", check_links) > 0);
}

/* ---- commands and ops are documented ---- */

/* Whether a line of the page that begins with `begin` has `text` somewhere. */
static bool has_line(const char *page, const char *begin, const char *text)
{
    char path[4096], line[8192];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", path_of("CLV_SOURCE_DIR"), page);
    FILE *doc = fopen(path, "r");
    if (!doc)
        fail_msg("%s cannot be read", path);
    while (doc && !found && fgets(line, sizeof line, doc))
        found = strncmp(line, begin, strlen(begin)) == 0 && strstr(line, text);
    fclose(doc);
    return found;
}

/* README's table lists every command. */
static void test_commands(void **state)
{
    char command[4096], line[1024], name[64], cell[80];
    int n = 0;
    snprintf(command, sizeof command, "'%s/cleave' --help", path_of("CLV_BUILD_DIR"));
    FILE *help = popen(command, "r");
    assert_non_null(help);
    while (fgets(line, sizeof line, help) && strcmp(line, "Commands:\n") != 0)
        ;
    for (; fgets(line, sizeof line, help) && sscanf(line, "  %60[a-z]", name) == 1; n++) {
        snprintf(cell, sizeof cell, "`%s", name);
        if (!has_line("README.md", "| `", cell))
            fail_msg("README.md has no row for the command %s", name);
    }
    while (fgets(line, sizeof line, help))
        ;
    pclose(help);
    assert_true(n > 10);
}

/* Every family that the library knows has a row in docs/models.md, and a model to compare with. */
static void test_families(void **state)
{
    char folder[] = "/tmp/cleave_test_XXXXXX", path[4096], cell[80];
    clv_error err = {0};
    clv_model *model;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *config = fopen(path, "w");
    assert_non_null(config);
    fputs("{\"model_type\": \"there is none such\"}", config);
    fclose(config);
    assert_int_equal(clv_model_open(&model, folder, &(clv_model_options){.config_only = 1}, &err), CLV_EUNSUPPORTED);
    unlink(path);
    rmdir(folder);
    char *names = strstr(err.message, "supported: "), *left = NULL;
    assert_non_null(names);
    int n = 0;
    for (char *name = strtok_r(names + strlen("supported: "), ", )", &left); name;
         name = strtok_r(NULL, ", )", &left), n++) {
        snprintf(cell, sizeof cell, "| `%s`", name);
        if (!has_line("docs/models.md", cell, ""))
            fail_msg("docs/models.md has no row for the family %s", name);
        snprintf(path, sizeof path, "%s/tests/golden/%s", path_of("CLV_SOURCE_DIR"), name);
        if (access(path, F_OK) != 0)
            fail_msg("there is no tests/golden/%s", name);
    }
    assert_true(n >= 6);
}

/* Files of the tree that a line names in `quotes` are there; what is in CHANGELOG.md was. */
static int check_names(FILE *doc, char *line, const char *folder, const char *page)
{
    static const char *const tops[] = {"src/", "tests/", "scripts/", "examples/", "include/", "cmake/", "data/"};
    char path[16384];
    int n = 0;
    if (strcmp(page, "CHANGELOG.md") == 0)
        return 0;
    for (char *at = strchr(line, '`'), *end; at && (end = strchr(at + 1, '`')); at = strchr(end + 1, '`')) {
        *end = '\0';
        bool named = strcspn(at + 1, " <>*{},:()$ABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(at + 1), ours = false;
        for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
            ours |= strncmp(at + 1, tops[i], strlen(tops[i])) == 0;
        if (!named || !ours)
            continue;
        snprintf(path, sizeof path, "%s/%s", path_of("CLV_SOURCE_DIR"), at + 1);
        if (access(path, F_OK) != 0)
            fail_msg("%s names %s, which there is not", page, at + 1);
        n++;
    }
    return n;
}

static void test_names(void **state)
{
    assert_true(for_lines(".", check_names) > 3);
    assert_true(for_lines("docs", check_names) > 20);
    assert_true(for_lines("docs/contributing", check_names) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs),  cmocka_unit_test(test_links), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_families), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
