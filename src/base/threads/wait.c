/* wait.c - clocks, deadlines and futex waits: monotonic time, timeouts that pause while the process is stopped, waits
 * on a counter.
 */
#include "base/threads/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

int64_t clv_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double clv_now_seconds(void)
{
    return 1e-9 * (double)clv_now_ns();
}

int64_t clv_timeout_ms_to_ns(int64_t ms)
{
    const int64_t most = INT64_MAX / 16 / 1000000;
    int64_t timeout = ms > 0 ? ms : CLV_DEFAULT_TIMEOUT_MS;
    return (timeout < most ? timeout : most) * 1000000;
}

struct timespec clv_wall_time_after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t fraction = t.tv_nsec + ns % 1000000000;
    return (struct timespec){.tv_sec = t.tv_sec + ns / 1000000000 + fraction / 1000000000,
                             .tv_nsec = fraction % 1000000000};
}

clv_deadline clv_deadline_after(int64_t ns)
{
    return (clv_deadline){.last_polled_ns = clv_now_ns(), .remaining_ns = ns};
}

int64_t clv_deadline_remaining(clv_deadline *deadline)
{
    int64_t now = clv_now_ns(), passed = now - deadline->last_polled_ns;

    deadline->last_polled_ns = now;
    deadline->remaining_ns -= passed < CLV_DEADLINE_POLL_MAX_NS ? passed : CLV_DEADLINE_POLL_MAX_NS;
    if (deadline->remaining_ns < 0)
        deadline->remaining_ns = 0;
    return deadline->remaining_ns;
}

/* Sleeps while *word == value, at most ns (>= 0). May return early; orders no memory. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
}

void clv_futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/* One exchange sets the stamp and reads the sleepers' bit, so that no sleeper is missed. */
void clv_stamp_publish(_Atomic uint32_t *word, uint32_t stamp)
{
    if (atomic_exchange_explicit(word, stamp, memory_order_seq_cst) & 1u)
        clv_futex_wake_all(word);
}

int clv_stamp_wait(_Atomic uint32_t *word, uint32_t stamp, int64_t ns)
{
    uint32_t seen = atomic_load_explicit(word, memory_order_acquire);

    if (clv_stamp_reached(seen, stamp))
        return 1;
    if ((seen & 1u) ||
        atomic_compare_exchange_strong_explicit(word, &seen, seen | 1u, memory_order_relaxed, memory_order_relaxed))
        futex_wait(word, seen | 1u, ns);
    return clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp);
}
