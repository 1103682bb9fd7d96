/* ready.h - what a run only calls: views, workspace and plan of each op's instruction, made when they are known. */
#ifndef CLEAVE_RUNTIME_READY_H
#define CLEAVE_RUNTIME_READY_H

#include "runtime/executor.h"

/* Makes them, of a program whose kernels are chosen, whenever its views are made. */
clv_status clv_ready_make(clv_loaded *loaded, clv_error *err);
void clv_ready_free(clv_loaded *loaded);

#endif
