/* layer_pattern.h - "layers.17.mlp" to "layers.*.mlp": one name for all repeated layers. */
#ifndef CLEAVE_CLI_REPORTS_LAYER_PATTERN_H
#define CLEAVE_CLI_REPORTS_LAYER_PATTERN_H

/* "layers.17.mlp.einsum" -> "layers.*.mlp.einsum", wherever it stands in a text; the caller's to free(). NULL: no
 * memory. */
char *clv_layer_pattern(const char *text);

#endif
