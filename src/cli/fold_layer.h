/* fold_layer.h - one name for what repeated layers have each. */
#ifndef CLEAVE_CLI_FOLD_LAYER_H
#define CLEAVE_CLI_FOLD_LAYER_H

/* "layers.17.mlp.einsum" -> "layers.*.mlp.einsum", wherever it stands in a text; the caller's to free(). NULL: no
 * memory. */
char *clv_fold_layer(const char *text);

#endif
