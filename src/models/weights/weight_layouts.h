/* weight_layouts.h - computes the layout of each parameter and checkpoint tensor on a mesh under its rules, before
 * anything is compiled. */
#pragma once

#include "models/weights/parameter_map.h"

typedef struct clv_weight_layouts clv_weight_layouts;

/* quant: how weights of linear layers are stored. @return errors of building the graph: CLV_EAXIS, CLV_ELIMIT,
 * CLV_ENOMEM
 */
clv_status clv_weight_layouts_new(clv_weight_layouts **out, const clv_model_config *model, const clv_mesh *mesh,
                                  const clv_axis_rules *rules, clv_quant quant, clv_error *err);
void clv_weight_layouts_free(clv_weight_layouts *placement);

/* The layouts of all tensors of a checkpoint with weights stored that way, in the order of clv_weights_at. Unknown
 * tensors are whole, on rank 0. The caller frees *out. */
clv_status clv_weight_layouts_of_checkpoint(clv_tensor_placement **out, const clv_weight_layouts *placement,
                                            const clv_weights *weights, clv_error *err);

/* The view of a checkpoint tensor that separates the parameter's dimensions (clv_model_tensor_view), and its layout:
 * the boxes that ranks hold. A quantized tensor has the layout of its integers. */
clv_status clv_weight_layouts_of_tensor(clv_tensor_placement *out, const clv_weight_layouts *placement,
                                        const clv_model_tensor *tensor, clv_error *err);

/* Most parameter elements of any rank; only for CLV_QUANT_NONE. */
clv_status clv_weight_layouts_max_rank_elems(int64_t *out, const clv_weight_layouts *placement, clv_error *err);
