/* fuzz_argv.c - arguments of every command, a line each. Linked with --wrap=clv_options_parse and
 * clv_output_path_check: a command stops when its options are read, so that nothing is opened, tried or run. */
#include <stdlib.h>

#include "cli/command.h"
#include "cli/parser/option_parser.h"
#include "cli/parser/output_path.h"
#include "fuzz.h"
#include "fuzz_command.h"
#include "fuzz_lines.h"

enum { LINES = 32 };

int __real_clv_options_parse(const clv_option *options, int n_options, int argc, char **argv);
int __wrap_clv_options_parse(const clv_option *options, int n_options, int argc, char **argv);

int __wrap_clv_options_parse(const clv_option *options, int n_options, int argc, char **argv)
{
    int code = __real_clv_options_parse(options, n_options, argc, argv);
    return code == CLV_OPTIONS_RUN ? CLV_EXIT_OK : code;
}

clv_status __wrap_clv_output_path_check(const char *path, bool is_folder, clv_error *err);

clv_status __wrap_clv_output_path_check(const char *path, bool is_folder, clv_error *err)
{
    return CLV_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *argv[LINES + 1] = {(char[]){"cleave"}};
    int n = fuzz_lines(&text, argv + 1, LINES, data, size);
    int code = text ? fuzz_command(n + 1, argv) : CLV_EXIT_OK;
    free(text);
    if (code != CLV_EXIT_OK && code != CLV_EXIT_USAGE)
        abort();
    return 0;
}
