/* wait.h - clocks, deadlines and futex waits: monotonic time, timeouts that pause while the process is stopped, waits
 * on a counter.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* Return the time of a monotonic clock. */
int64_t clv_now_ns(void);
double clv_now_seconds(void);
/* Returns the time in `ns` nanoseconds by the clock of pthread_cond_timedwait. */
struct timespec clv_wall_time_after(int64_t ns);

/* A deadline that counts only time in which this process runs. Each poll subtracts at most CLV_DEADLINE_POLL_MAX_NS,
 * even if more time has passed, so a process that was stopped (Ctrl-Z, a debugger, a closed laptop) continues with the
 * time that it had left. Poll it far more often than that. */
enum { CLV_DEADLINE_POLL_MAX_NS = 100000000 };
typedef struct clv_deadline {
    int64_t last_polled_ns; /* by clv_now_ns */
    int64_t remaining_ns;
} clv_deadline;

clv_deadline clv_deadline_after(int64_t ns);
/* Converts a timeout option to nanoseconds; 0 means the default. Very large values are capped, so that sums of them do
 * not overflow. */
enum { CLV_DEFAULT_TIMEOUT_MS = 60000 };
int64_t clv_timeout_ms_to_ns(int64_t ms);
/* Polls the deadline: returns the time left, 0 when it has passed. */
int64_t clv_deadline_remaining(clv_deadline *deadline);

/* Wakes all threads that sleep on the word. */
void clv_futex_wake_all(_Atomic uint32_t *word);

/* Stamps: a sequence word that one thread raises by 2 (wrapping) and others wait for. Its lowest bit is 1 while a
 * thread sleeps on it. Publishing is sequentially consistent, reading is an acquire. */

static inline int clv_stamp_reached(uint32_t word, uint32_t stamp)
{
    return (int32_t)((word & ~1u) - stamp) >= 0;
}

/* Sets the word to the stamp and wakes the threads that sleep on it. */
void clv_stamp_publish(_Atomic uint32_t *word, uint32_t stamp);
/* Sleeps until the word reaches the stamp, at most ns. Returns whether it did; may return early. */
int clv_stamp_wait(_Atomic uint32_t *word, uint32_t stamp, int64_t ns);

/* The pause instruction of a spin loop. */
static inline void clv_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
