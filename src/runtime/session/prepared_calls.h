/* prepared_calls.h - op calls whose views, workspace and op plan are bound before a run. */
#ifndef CLEAVE_RUNTIME_SESSION_PREPARED_CALLS_H
#define CLEAVE_RUNTIME_SESSION_PREPARED_CALLS_H

#include "runtime/session/executor.h"

/* Makes them, of a program whose kernels are chosen, whenever its views are made. */
clv_status clv_prepared_calls_make(clv_loaded_program *loaded, clv_error *err);
void clv_prepared_calls_free(clv_loaded_program *loaded);

#endif
