/* program_text.h - prints a compiled program; replaces names in texts: display names of ops, one name for repeated
 * layers. */
#pragma once

#include "cleave/program.h"

/* Replaces "layers.17.mlp.einsum" by "layers.*.mlp.einsum" anywhere in a text. The caller frees; NULL: no memory. */
char *clv_replace_layer_numbers(const char *text);

/* Replaces op kinds in a sentence ("normalize_dx") by display names ("the gradient of the norm"), but not in op names
 * ("mlp.normalize.grad.normalize_dx"). The caller frees; NULL: no memory. */
char *clv_replace_op_names(const char *sentence);

/* Prints a program on stdout by clv_program_print or clv_program_print_dot. Returns the exit code. */
int clv_print_program(const clv_program *program, size_t (*print)(char *, size_t, const clv_program *));
