/* unary.h - the kernel of a public activation. */
#ifndef CLEAVE_OPS_UNARY_H
#define CLEAVE_OPS_UNARY_H

#include "cleave/graph.h"
#include "kernels/cpu/elementwise.h"

clv_unary_op clv_unary_kernel(clv_unary kind);

#endif
