/* prepacked_weights.h - loads weights prepacked into GEMM panels for decoding, and decides when that is faster.
 *
 * Decoding multiplies few rows by all weights, again and again. Whether panels make that faster depends on the CPU
 * (kernels/cpu/cpu_tuning.h). Processes of a job must have equal CPUs: all must compile the same program.
 */
#pragma once

#include "models/model.h"

/* Whether graphs of the model with clv_model_graph_options.packed prepack weights. */
bool clv_model_uses_prepacked(const clv_model *model);

/* For tests: 1 or 0 overrides the choice by CPU; -1 restores it. */
void clv_model_set_prepacked_for_test(int packs);

/* Whether a state "<name>.packed" has the shape of its parameter in panels. */
bool clv_state_is_prepacked(const clv_state_read_request *read);
/* Reads a box of it, which must have whole panels. */
clv_status clv_read_prepacked(const clv_state_read_request *read, clv_error *err);
