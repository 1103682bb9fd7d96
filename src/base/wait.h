/* wait.h - time, and threads sleeping on a word (Linux futexes). */
#ifndef CLEAVE_BASE_WAIT_H
#define CLEAVE_BASE_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* A clock that never goes back, in nanoseconds. */
int64_t clv_now_ns(void);

/* Sleeps while *word == value, at most ns (>= 0). May return early; orders no memory. */
void clv_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns);
void clv_futex_wake_all(_Atomic uint32_t *word);

/* The cores that this process may run on, at least 1. */
int clv_cores(void);

/* Between two looks at a word that another core is about to write. */
static inline void clv_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
