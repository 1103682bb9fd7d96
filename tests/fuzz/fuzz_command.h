/* fuzz_command.h - the command line as a function: main of src/cli under another name. */
#pragma once

int cleave_main(int argc, char **argv);

/* Runs it with its output discarded. The arguments are copied, and need not end with NULL. */
int fuzz_command(int argc, char *const *argv);
