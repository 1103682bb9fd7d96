/* wait.h - clocks, deadlines and futex waits: monotonic time, timeouts that pause while the process is stopped, waits
 * on a counter.
 */
#ifndef CLEAVE_BASE_THREADS_WAIT_H
#define CLEAVE_BASE_THREADS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* A clock that never goes back, in nanoseconds. */
int64_t clv_now_ns(void);
double clv_now_seconds(void);
/* When it will be in so many, by the clock of pthread_cond_timedwait. */
struct timespec clv_wall_time_after(int64_t ns);

/* A deadline that counts time in which this process ran. Each look at it adds at most CLV_DEADLINE_POLL_MAX_NS,
 * whatever the clock says: a process that was stopped (Ctrl-Z, a debugger, a laptop's lid) finds as much time left as
 * it had. So look far more often than that. */
enum { CLV_DEADLINE_POLL_MAX_NS = 100000000 };
typedef struct clv_deadline {
    int64_t last_polled_ns; /* at the clock, last */
    int64_t remaining_ns;
} clv_deadline;

clv_deadline clv_deadline_after(int64_t ns);
/* How long waits for others last that are told `ms`; 0 is the default. Years are as good as for ever, and can be
 * added. */
enum { CLV_DEFAULT_TIMEOUT_MS = 60000 };
int64_t clv_timeout_ns(int64_t ms);
/* What is left of it; 0 when it has passed. */
int64_t clv_deadline_remaining(clv_deadline *deadline);

void clv_futex_wake_all(_Atomic uint32_t *word);

/* Stamps: a word that one thread raises, by 2 each time (wrapping), and others wait for. Its lowest bit is 1 while
 * someone sleeps on it. Publishing is sequentially consistent, seeing is an acquire. */

static inline int clv_stamp_reached(uint32_t word, uint32_t stamp)
{
    return (int32_t)((word & ~1u) - stamp) >= 0;
}

/* Sets the word to the stamp and wakes who sleeps. */
void clv_stamp_publish(_Atomic uint32_t *word, uint32_t stamp);
/* Sleeps, at most ns, until the word has reached the stamp. Returns whether it has; may return early. */
int clv_stamp_wait(_Atomic uint32_t *word, uint32_t stamp, int64_t ns);

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
