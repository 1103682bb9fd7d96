/* nonfinite_check.h - NaN and infinity check before and after each instruction (option find_nonfinite). */
#ifndef CLEAVE_RUNTIME_CHECKS_NONFINITE_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_NONFINITE_CHECK_H

#include "runtime/session/executor.h"

/* For each buffer whether minus infinity in it stands for "none": partial maxima, results that say so, and copies of
 * these. NULL when out of memory; free with free(). */
bool *clv_nonfinite_allowed(const clv_program *program);

/* An element that is not finite; buffer < 0: none was found. */
typedef struct clv_nonfinite_element {
    int buffer;
    int64_t at; /* of the rank's shard, row-major */
    double value;
} clv_nonfinite_element;

/* Before an instruction: looks at the inputs and state that are not there any more when it has run. CLV_ENONFINITE when
 * a step would carry such an element to other ranks. */
clv_status clv_nonfinite_check_before(clv_nonfinite_element *out, const clv_loaded_program *loaded, int rank,
                                      int instruction, clv_error *err);

/* After it: CLV_ENONFINITE, naming op, tensor, rank and index, when a result is not finite. */
clv_status clv_nonfinite_check_after(const clv_nonfinite_element *before, const clv_loaded_program *loaded, int rank,
                                     int instruction, clv_error *err);

#endif
