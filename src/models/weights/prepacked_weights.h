/* prepacked_weights.h - loads weights prepacked into GEMM panels for decoding, and decides when that is faster.
 *
 * A graph that asks for it has them so where this CPU's products are faster by it (kernels/cpu/cpu_tuning.h), for few
 * rows are multiplied by all weights, again and again. Not where processes have the ranks whose CPUs are not alike:
 * they would not have the same program.
 */
#ifndef CLEAVE_MODELS_WEIGHTS_PREPACKED_WEIGHTS_H
#define CLEAVE_MODELS_WEIGHTS_PREPACKED_WEIGHTS_H

#include "models/model.h"

/* Whether graphs of the model that ask for it are told so. */
bool clv_model_uses_prepacked(const clv_model *model);

/* For tests: 1 or 0: whatever the CPU, where the rest allows it; -1 goes back to what is the faster. */
void clv_model_set_prepacked_for_test(int packs);

/* Reads packed state: as clv_state_source; *known is 0 for what is no packed state of the model. weights are open. */
clv_status clv_prepacked_read(const clv_model_weights *weights, const clv_model_config *model, const char *name,
                              const clv_type *type, const clv_shard *box, void *out, int *known, clv_error *err);

#endif
