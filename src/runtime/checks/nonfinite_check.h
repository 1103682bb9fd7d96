/* nonfinite_check.h - NaN and infinity check before and after each instruction (option find_nonfinite). */
#pragma once

#include "runtime/session/executor.h"

/* For each buffer, whether minus infinity is allowed because it means "none": in partial maxima, results whose op says
 * so, and copies of these. NULL when out of memory; free with free(). */
bool *clv_negative_infinity_allowed(const clv_program *program);

/* An element that is not finite; buffer < 0: none was found. */
typedef struct clv_nonfinite_element {
    int buffer;
    int64_t at; /* row-major index in the rank's shard */
    double value;
} clv_nonfinite_element;

/* Before an instruction: checks the inputs and state that it overwrites or sends. CLV_ENONFINITE if a collective would
 * send such an element to other ranks. */
clv_status clv_nonfinite_check_before(clv_nonfinite_element *out, const clv_loaded_program *loaded, int rank,
                                      int instruction, clv_error *err);

/* After it: CLV_ENONFINITE, naming op, tensor, rank and index, if a result is not finite. */
clv_status clv_nonfinite_check_after(const clv_nonfinite_element *before, const clv_loaded_program *loaded, int rank,
                                     int instruction, clv_error *err);
