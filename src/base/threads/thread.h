/* thread.h - library threads: pthread_create with all asynchronous signals blocked. */
#pragma once

#include <pthread.h>

/* pthread_create with all signals blocked except those of the thread's own faults (SIGSEGV, ...): signals to the
 * process are for the program's threads. Returns an errno value, as pthread_create does. */
int clv_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg);
