/* fuzz_command.h - the command line as a function: main of src/cli under another name. */
#pragma once

int cleave_main(int argc, char **argv);

/* Runs it without what it prints. The arguments are copied; NULL behind the last is not needed. */
int fuzz_command(int argc, char *const *argv);
