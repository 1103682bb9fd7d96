/* model_checker.h - runs a few threads under every schedule, and lets every load return every value that C11's memory
 * model allows: a model checker for protocols of atomics, in the manner of CDSChecker (Norris and Demsky 2013).
 *
 * The code under test is compiled with model_checker_atomics.h, which sends its atomics, locks, futexes and pauses
 * here. Threads are coroutines; each atomic access of a watched location is a choice of who runs and what is read.
 * Memory is a history of stores for each location. A thread has a view, the oldest store of each location that it may
 * still read; a release store carries its writer's view, and an acquire load that reads it takes the view over (Kang et
 * al. 2017, without promises). Sequentially consistent loads see the last sequentially consistent store of their
 * location. Plain data is checked for races by vector clocks. States that were seen before are not explored again: a
 * state is what each thread has read from whom, and the order of stores.
 *
 * What it cannot see: stores that the model orders before earlier ones of other threads (each word here has one writer,
 * or is changed by read-modify-writes alone), and timing: pauses end when there is something new to see,
 * futexes when woken. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEDULE_THREADS = 4 };

typedef struct schedule_case {
    int threads;
    bool slices; /* sleepers look again after a while; false: who is not woken sleeps for ever, and that is a fault */
    void (*set_up)(void);       /* makes what is shared, and watches it; before each execution */
    void (*thread)(int thread); /* what each does; must do the same whenever it reads the same */
    void (*tear_down)(void);    /* after each */
    long (*clock)(int thread);  /* nanoseconds that a thread's next look at the clock shows; NULL: time stands still */
} schedule_case;

typedef struct schedule_result {
    int64_t executions, states;
    char fault[1024]; /* "" when there is none: else what is wrong, and the schedule that leads there */
} schedule_result;

void schedule_explore(schedule_result *out, const schedule_case *c);

/* ---- for set_up: in the same order each time ---- */

/* An atomic word of the model, 4 bytes, that starts with the value it has. */
void schedule_watch(const volatile void *word, const char *name);
/* Plain data, of which only races are found. */
void schedule_watch_data(const void *data, const char *name);

/* ---- for threads ---- */

void schedule_read(const void *data);
void schedule_write(const void *data);
void schedule_expect(bool holds, const char *what);

/* ---- what model_checker_atomics.h calls ---- */

bool schedule_watches(const volatile void *word);
uint32_t schedule_load(const volatile void *word, memory_order order);
void schedule_store(volatile void *word, uint32_t value, memory_order order);
uint32_t schedule_exchange(volatile void *word, uint32_t value, memory_order order);
uint32_t schedule_add(volatile void *word, uint32_t value, memory_order order);
bool schedule_compare_exchange(volatile void *word, uint32_t *expected, uint32_t value, memory_order order);
void schedule_lock(const void *lock);
void schedule_unlock(const void *lock);
/* Until there is a store that was not seen. */
void schedule_pause(void);
long schedule_clock(void);
/* Sleeps while the word has the value, until it is woken; wakes all sleepers. */
void schedule_futex_wait(const volatile void *word, uint32_t value);
void schedule_futex_wake(const volatile void *word);
