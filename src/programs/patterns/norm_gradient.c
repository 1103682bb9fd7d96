#include "programs/patterns/term.h"
bool find_norm_gradient(rewriter *rw, const clv_op *op)
{
    return false;
}
