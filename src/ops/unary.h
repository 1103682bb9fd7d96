/* unary.h - maps a public activation (clv_unary) to its kernel code. */
#ifndef CLEAVE_OPS_UNARY_H
#define CLEAVE_OPS_UNARY_H

#include "cleave/graph.h"
#include "kernels/cpu/elementwise_kernel.h"

clv_unary_op clv_unary_kernel(clv_unary_kind kind);

#endif
