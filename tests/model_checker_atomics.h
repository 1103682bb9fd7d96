/* model_checker_atomics.h - sends the atomics of the sources that are included after it to model_checker.c. Words that
 * are not watched are read and written as they are. */
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "model_checker.h"

static inline void schedule_ignore(const void *first, ...)
{
}

#define PLAIN(p) __typeof__(((void)0, *(p)))

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_compare_exchange_strong_explicit

#define atomic_load_explicit(p, order)                                                                                 \
    (schedule_watches(p) ? (PLAIN(p))(uintptr_t)schedule_load(p, order) : (PLAIN(p)) * (p))
#define atomic_store_explicit(p, value, order)                                                                         \
    do {                                                                                                               \
        if (schedule_watches(p))                                                                                       \
            schedule_store(p, (uint32_t)(uintptr_t)(value), order);                                                    \
        else                                                                                                           \
            *(p) = (value);                                                                                            \
    } while (0)
#define atomic_exchange_explicit(p, value, order)  schedule_exchange(p, value, order)
#define atomic_fetch_add_explicit(p, value, order) schedule_add(p, value, order)
#define atomic_compare_exchange_strong_explicit(p, expected, value, order, otherwise)                                  \
    schedule_compare_exchange(p, expected, value, order)

#define pthread_mutex_lock(lock)   schedule_lock(lock)
#define pthread_mutex_unlock(lock) schedule_unlock(lock)
#define nanosleep(time, rest)      ((void)(time), schedule_pause())
#define clock_gettime(clock, time) ((time)->tv_sec = 0, (time)->tv_nsec = schedule_clock())
#define syscall(number, word, op, value, ...)                                                                          \
    (schedule_ignore(__VA_ARGS__),                                                                                     \
     (op) == FUTEX_WAIT_PRIVATE ? schedule_futex_wait(word, (uint32_t)(value)) : schedule_futex_wake(word))
