/* repeatability_check.h - determinism check of an op: same operands, same bits, on any memory and threads. */
#ifndef CLEAVE_RUNTIME_CHECKS_REPEATABILITY_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_REPEATABILITY_CHECK_H

#include "runtime/checks/op_harness.h"

/* Runs the kernel of a trial that has run again: where all memory but its operands holds other bytes, then by three
 * threads. CLV_ECHECK names an element of a result that is not the same, bit for bit. */
clv_status clv_repeatability_check(const clv_op_harness *whole, clv_error *err);

#endif
