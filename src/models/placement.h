/* placement.h - where a model's parameters, and the tensors of its checkpoint, live on a mesh under rules: what the
 * model's graph states, asked before anything is compiled or allocated. */
#ifndef CLEAVE_MODELS_PLACEMENT_H
#define CLEAVE_MODELS_PLACEMENT_H

#include "models/parameters.h"

typedef struct clv_placement clv_placement;

/* how: what weights of linear layers are held as. @return what building the graph returns: CLV_EAXIS, CLV_ELIMIT,
 * CLV_ENOMEM */
clv_status clv_placement_new(clv_placement **out, const clv_model_config *model, const clv_mesh *mesh,
                             const clv_axis_rules *rules, clv_quant how, clv_error *err);
void clv_placement_free(clv_placement *placement);

/* The same for all tensors of a checkpoint that holds weights so, file by file, each in the order of its data; those
 * that the model does not know are whole. The caller frees *out. */
clv_status clv_placement_weights(clv_tensor_placement **out, const clv_placement *placement, const clv_weights *weights,
                                 clv_error *err);

/* Elements of all parameters, which are floats, on the fullest rank. */
clv_status clv_placement_most_elems(int64_t *out, const clv_placement *placement, clv_error *err);

#endif
