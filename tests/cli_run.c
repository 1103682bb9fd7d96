#include "cli_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "io/checkpoint/safetensors.h"
#include "unit_test.h"

enum { LINE = 16384 };

const char *cli_folder(void)
{
    /* In memory, where flushing files costs nothing; else on the disk. */
    static char in_memory[] = "/dev/shm/cleave_cli_XXXXXX", on_disk[] = "/tmp/cleave_cli_XXXXXX";
    static const char *made;
    if (!made)
        made = mkdtemp(in_memory);
    if (!made)
        made = mkdtemp(on_disk);
    assert_non_null(made);
    return made;
}

const char *cli_golden(void)
{
    static char path[2048];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden", source ? source : ".");
    return path;
}

int cli_remove_folder(void **state)
{
    cli_shell("rm -rf {d}");
    return 0;
}

static void fill(char line[LINE], const char *text)
{
    size_t n = 0;
    for (; *text && n < LINE - 2048; text++) {
        bool is_folder = strncmp(text, "{d}", 3) == 0, is_golden = strncmp(text, "{g}", 3) == 0;
        if (is_folder || is_golden) {
            n += (size_t)snprintf(line + n, LINE - n, "%s", is_folder ? cli_folder() : cli_golden());
            text += 2;
        } else {
            line[n++] = *text;
        }
    }
    line[n] = '\0';
}

/* Inserts " --check" after the name of a command that has the option. */
static const char *check_of(const char *command, size_t length)
{
    static const char *const checked[] = {"train", "generate", "forward", "embed", "score"};
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++)
        if (strlen(checked[i]) == length && strncmp(checked[i], command, length) == 0)
            return " --check";
    return "";
}

static const char *launcher = "";

void cli_start_by(const char *by)
{
    launcher = by ? by : "";
}

static int run(char out[CLI_OUTPUT], const char *format, va_list args)
{
    static char arguments[LINE / 2], line[LINE], command[2 * LINE];
    const char *build = getenv("CLV_BUILD_DIR");
    size_t n = 0, got;
    vsnprintf(arguments, sizeof arguments, format, args);
    fill(line, arguments);
    size_t name = strcspn(line, " ");
    snprintf(command, sizeof command, "</dev/null %s '%s/cleave' %.*s%s%s %s", launcher, build ? build : "build",
             (int)name, line, check_of(line, name), line + name, strstr(line, "2>") ? "" : "2>&1");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while (n < CLI_OUTPUT - 1 && (got = fread(out + n, 1, CLI_OUTPUT - 1 - n, pipe)) > 0)
        n += got;
    out[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int cli_run(char out[CLI_OUTPUT], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = run(out, format, args);
    va_end(args);
    return code;
}

void cli_expect(int code, const char *part, const char *format, ...)
{
    static char out[CLI_OUTPUT];
    va_list args;
    va_start(args, format);
    int got = run(out, format, args);
    va_end(args);
    if (got != code || !strstr(out, part))
        fail_msg("cleave %s\nexited with %d, expected %d with '%s':\n%s", format, got, code, part, out);
}

int cli_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    for (int c = f ? getc(f) : EOF; c != EOF; c = getc(f))
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

void cli_shell(const char *format, ...)
{
    static char text[LINE / 2], line[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fill(line, text);
    int status = system(line);
    if (status != 0)
        fail_msg("%s: status %d", line, status);
}

const char *cli_ids(const char *name)
{
    static const char *const taken[] = {"ids", "mask", "token_types"};
    static char path[512];
    char from[4096];
    clv_error err = {0};
    clv_safetensors *file;
    clv_safetensors_writer *writer;
    clv_tensor_spec specs[3];
    const clv_safetensor *tensors[3];
    int n = 0;
    snprintf(from, sizeof from, "%s/%s/values.safetensors", cli_golden(), name);
    snprintf(path, sizeof path, "%s/%s_ids.safetensors", cli_folder(), name);
    if (clv_safetensors_open(&file, from, &err) != CLV_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < 3; i++)
        if (clv_safetensors_find(&tensors[n], file, taken[i], NULL) == CLV_OK) {
            specs[n] = (clv_tensor_spec){.name = taken[i], .dtype = tensors[n]->dtype, .rank = tensors[n]->rank};
            memcpy(specs[n].shape, tensors[n]->shape, sizeof specs[n].shape);
            n++;
        }
    assert_int_equal(clv_safetensors_create(&writer, path, specs, n, &err), CLV_OK);
    for (int i = 0; i < n; i++) {
        void *data = malloc(tensors[i]->end - tensors[i]->begin);
        assert_int_equal(clv_safetensors_read(tensors[i], NULL, tensors[i]->dtype, data, &err), CLV_OK);
        assert_int_equal(clv_safetensors_write(writer, i, NULL, data, &err), CLV_OK);
        free(data);
    }
    assert_int_equal(clv_safetensors_commit(writer, &err), CLV_OK);
    clv_safetensors_close(file);
    return path;
}
