/* custom_family_view.c - converts the internal config to clv_family_model, the struct that user-defined families see.
 */
#include "models/families/custom_family_view.h"

#include <string.h>

clv_family_model clv_family_model_from_config(const clv_model_config *c)
{
    clv_family_model m = {.hidden = c->hidden,
                          .layers = c->layers,
                          .heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .ffn = c->ffn,
                          .vocab = c->vocab,
                          .max_positions = c->max_positions,
                          .norm_eps = c->norm_eps,
                          .rope_theta = c->rope.theta,
                          .activation = c->activation,
                          .bidirectional = c->bidirectional,
                          .headless = c->headless,
                          .tied_embeddings = c->tie_word_embeddings};
    memcpy(m.number, c->number, sizeof m.number);
    memcpy(m.real, c->real, sizeof m.real);
    return m;
}
