/* generator.h - internal functions of clv_generator for generate_text.c: resize, split logits, lock during callbacks.
 */
#ifndef CLEAVE_INFER_GENERATION_GENERATOR_H
#define CLEAVE_INFER_GENERATION_GENERATOR_H

#include <stdbool.h>

#include "cleave/generate.h"

const clv_model *clv_generator_model(const clv_generator *generator);
/* Positions that each sequence has; 0: as many as are asked for. */
int64_t clv_generator_context(const clv_generator *generator);
/* Makes a generator whose size is not fixed at least this large, which empties it; one of fixed size stays as it is. */
clv_status clv_generator_reserve(clv_generator *generator, int64_t batch, int64_t context, clv_error *err);
/* Whether its logits stay split over processes, as clv_generator_options has it; returns what was so before. */
bool clv_generator_set_split_logits(clv_generator *generator, bool splits);
/* Held, it refuses calls that would change what is written: those of a caller who is shown a text. */
void clv_generator_set_busy(clv_generator *generator, bool held);

#endif
