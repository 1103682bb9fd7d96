/* finite.h - finds the first instruction whose result is infinite or NaN though its operands are not. */
#ifndef CLEAVE_RUNTIME_FINITE_H
#define CLEAVE_RUNTIME_FINITE_H

#include "runtime/executor.h"

/* For each buffer whether minus infinity in it stands for "none": partial maxima, results that say so, and copies of
 * these. NULL when out of memory; free with free(). */
bool *clv_finite_lowest(const clv_program *program);

/* An element that is not finite; buffer < 0: none was found. */
typedef struct clv_nonfinite {
    int buffer;
    int64_t at; /* of the rank's shard, row-major */
    double value;
} clv_nonfinite;

/* Before an instruction: looks at the inputs and state that are not there any more when it has run. CLV_ENONFINITE when
 * a step would carry such an element to other ranks. */
clv_status clv_finite_before(clv_nonfinite *out, const clv_loaded *loaded, int rank, int instruction, clv_error *err);

/* After it: CLV_ENONFINITE, naming op, tensor, rank and index, when a result is not finite. */
clv_status clv_finite_after(const clv_nonfinite *before, const clv_loaded *loaded, int rank, int instruction,
                            clv_error *err);

#endif
