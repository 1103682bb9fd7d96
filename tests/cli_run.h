/* cli_run.h - running the built program from a test: `cleave ARGUMENTS` with folders put in, its exit code and output.
 */
#pragma once

enum { CLI_OUTPUT = 1 << 16 };

/* The temporary folder of this test program, made at the first call; cli_remove_folder removes it, as the tear-down of
 * a group of tests. */
const char *cli_folder(void);
int cli_remove_folder(void **state);
/* The models of tests/golden. */
const char *cli_golden(void);

/* Runs `cleave ...`, with --check where the command has it, formatted as by printf, {d} in it being the temporary
 * folder and {g} tests/golden; out gets stdout, and stderr unless the arguments send it elsewhere (2>...). Returns the
 * exit code. */
int cli_run(char out[CLI_OUTPUT], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What commands are started by from here on: "mpirun -np 2"; NULL: nothing. */
void cli_start_by(const char *launcher);
/* Fails the test unless it exits with `code` and prints `part`. */
void cli_expect(int code, const char *part, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The path of a file in the temporary folder with what a model takes of tests/golden/<name>/values.safetensors: ids,
 * mask and token_types, for forward --ids. Good until the next call. */
const char *cli_ids(const char *name);
/* The whole lines of a file so far; 0 where there is none. */
int cli_lines(const char *path);
/* A shell command with the same folders, which must succeed. */
void cli_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
