/** @file cancel.h - ending what runs, from another thread or from a signal's handler.
 *
 *   static clv_cancel cancel;                                     in a handler of SIGINT: clv_cancel_request(&cancel);
 *   clv_model_options options = {.size = sizeof options, .cancel = &cancel};
 *
 * What sessions and models were told of a clv_cancel returns CLV_ECANCELLED once it is requested: a run before it
 * starts, or between two of its instructions, and loading between two tensors. What was cancelled before it started may
 * be run again after a reset; a run that was cancelled in its middle leaves its session as every failed run does
 * (session.h).
 */
#ifndef CLEAVE_CANCEL_H
#define CLEAVE_CANCEL_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The caller's, zero-initialised; it outlives what was told of it. Any number of sessions and models may be told of
 *  one. */
typedef struct clv_cancel {
    int requested; /**< by the functions below alone */
} clv_cancel;

/** Asks. NULL is a no-op, as in the next. Both are safe from any thread and in a signal's handler. */
CLV_API void clv_cancel_request(clv_cancel *cancel);
/** Takes the request back, when nothing that it was meant for runs any more. */
CLV_API void clv_cancel_reset(clv_cancel *cancel);
/** Whether it was asked; 0 for NULL. */
CLV_API int clv_cancel_requested(const clv_cancel *cancel);

#ifdef __cplusplus
}
#endif
#endif
