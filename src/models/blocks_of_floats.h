/* blocks_of_floats.h - a folder's weights seen as if files held them in blocks (stored_blocks.h): what a checkpoint in
 * blocks is written from. */
#ifndef CLEAVE_MODELS_BLOCKS_OF_FLOATS_H
#define CLEAVE_MODELS_BLOCKS_OF_FLOATS_H

#include "models/stored_blocks.h"

typedef struct clv_blocks_of_floats clv_blocks_of_floats;

/* One file model.safetensors: every tensor of `floats` but those that blocks stand for, then the blocks, which are made
 * when they are read, as clv_quant_of_floats makes them. floats and model are borrowed.
 * @return CLV_EUNSUPPORTED for a tensor of a dtype that the library lacks; CLV_ENOMEM */
clv_status clv_blocks_of_floats_open(clv_blocks_of_floats **out, const clv_weights *floats,
                                     const clv_model_config *model, clv_quant how, clv_error *err);
/* Its own. */
const clv_weights *clv_blocks_of_floats_weights(const clv_blocks_of_floats *blocks);
/* NULL is a no-op. */
void clv_blocks_of_floats_close(clv_blocks_of_floats *blocks);

#endif
