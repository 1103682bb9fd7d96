/** @file cancel.h - cancellation token: stops runs and loads from another thread or from a signal handler.
 *
 *   static clv_cancel cancel;                                     in a handler of SIGINT: clv_cancel_request(&cancel);
 *   clv_model_options options = {.size = sizeof options, .cancel = &cancel};
 *
 * Sessions and models take a clv_cancel in their options. After a request their calls return CLV_ECANCELLED: a run
 * before it starts or between two instructions, a load between two tensors. A run that was cancelled before it started
 * can be repeated after a reset. A run that was cancelled midway leaves its session in the state of any failed run
 * (session.h).
 */
#ifndef CLEAVE_CANCEL_H
#define CLEAVE_CANCEL_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A cancellation token. The caller owns it, zero-initializes it, and keeps it alive as long as any session or model
 *  uses it. Any number of sessions and models may share one. */
typedef struct clv_cancel {
    int requested; /**< use only the functions below */
} clv_cancel;

/** Requests cancellation; does nothing for NULL. Safe from any thread and in a signal handler. */
CLV_API void clv_cancel_request(clv_cancel *cancel);
/** Withdraws the request, once no call that uses the token is running; does nothing for NULL. Safe from any thread and
 *  in a signal handler. */
CLV_API void clv_cancel_reset(clv_cancel *cancel);
/** Returns whether cancellation is requested; 0 for NULL. */
CLV_API int clv_cancel_requested(const clv_cancel *cancel);

#ifdef __cplusplus
}
#endif
#endif
