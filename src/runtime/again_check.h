/* again_check.h - a kernel called once more, which makes of the same operands the same results. */
#ifndef CLEAVE_RUNTIME_AGAIN_CHECK_H
#define CLEAVE_RUNTIME_AGAIN_CHECK_H

#include "runtime/trial.h"

/* Runs the kernel of a trial that has run again: where all memory but its operands holds other bytes, then by three
 * threads. CLV_ECHECK names an element of a result that is not the same, bit for bit. */
clv_status clv_again_try(const clv_trial *whole, clv_error *err);

#endif
