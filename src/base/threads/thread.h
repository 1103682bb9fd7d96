/* thread.h - library threads: pthread_create with all asynchronous signals blocked. */
#ifndef CLEAVE_BASE_THREADS_THREAD_H
#define CLEAVE_BASE_THREADS_THREAD_H

#include <pthread.h>

/* pthread_create, with all signals blocked but those of the thread's own faults: they are for the program's threads. */
int clv_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg);

#endif
