/* flight_recorder.h - per-rank flight recorder: lock-free ring buffer of the last 256 instructions and collectives.
 *
 * Only the rank's own thread writes, without locks or system calls: some nanoseconds an instruction. Any thread may
 * read meanwhile; of the oldest record it may then find half. Times of instructions are ticks of the processor's clock,
 * which who reads turns into nanoseconds, and which is looked at for one in four: it is what costs most. An instruction
 * ends when the next begins.
 *
 * A step (what members of a group do together) is noted by the transports: which step of its group set, what is
 * expected and was seen, how far it came. Steps outside of programs are records of their own.
 */
#ifndef CLEAVE_COMM_FLIGHT_RECORDER_H
#define CLEAVE_COMM_FLIGHT_RECORDER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/wait.h"

enum { CLV_RECORDER_CAPACITY = 256 /* a power of 2 */, CLV_RECORDER_MAX_MEMBERS = 64, CLV_RECORDER_CLOCK_INTERVAL = 4 };

/* How far a step came. */
typedef enum clv_record_phase {
    CLV_RECORD_NO_COLLECTIVE, /* an op, or a step that stays on the rank */
    CLV_RECORD_BEGUN,         /* sends what is its own */
    CLV_RECORD_WAITING,       /* for the others */
    CLV_RECORD_TRANSFERRING,  /* has heard all, and moves bytes */
    CLV_RECORD_WAITING_END,
    CLV_RECORD_ENDED
} clv_record_phase;

typedef struct clv_record {
    _Atomic(const char *) name; /* lives until clv_world_copy_names */
    _Atomic(const char *) kind; /* lives on */
    _Atomic int64_t begun_ticks;
    _Atomic int32_t instruction; /* of the program; -1: in none */
    _Atomic int32_t phase;       /* clv_record_phase; what follows is only there with a step */
} clv_record;

typedef struct clv_collective_record {
    alignas(64) _Atomic(const char *) what;
    _Atomic uint64_t seq; /* which step of the group set, from 1 */
    _Atomic uint64_t tag;
    _Atomic int64_t waiting_ns;     /* clv_now_ns when it began to wait; 0: it did not */
    _Atomic int64_t expected, seen; /* bytes of others */
    _Atomic uint64_t lacks;         /* bit m: nothing came of member m, of the first 64 */
    _Atomic int32_t set;
} clv_collective_record;

typedef struct clv_recorder {
    alignas(
        CLV_CACHE_LINE) _Atomic uint64_t begun; /* instructions and steps: record n is at n % CLV_RECORDER_CAPACITY */
    _Atomic uint64_t idle;                      /* as many as begun: the last has ended, too */
    _Atomic int64_t idle_ticks;                 /* when */
    int64_t ticks;                              /* when it last looked */
    int64_t first_ticks, first_ns;              /* both clocks, at the beginning */
    clv_record records[CLV_RECORDER_CAPACITY];
    clv_collective_record steps[CLV_RECORDER_CAPACITY];
} clv_recorder;

/* A clock of the processor's: the quickest that there is, in units of its own. */
static inline int64_t clv_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    int64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return clv_now_ns();
#endif
}

#define CLV_RECORD_STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* An instruction begins, and the one before has ended. kind: of the op, or of a step. */
static inline void clv_recorder_begin(clv_recorder *r, const char *name, const char *kind, int instruction)
{
    uint64_t n = atomic_load_explicit(&r->begun, memory_order_relaxed);
    clv_record *at = &r->records[n % CLV_RECORDER_CAPACITY];
    atomic_store_explicit(&at->name, name, memory_order_release);
    CLV_RECORD_STORE(at->kind, kind);
    if (n % CLV_RECORDER_CLOCK_INTERVAL == 0)
        r->ticks = clv_ticks();
    CLV_RECORD_STORE(at->begun_ticks, r->ticks);
    CLV_RECORD_STORE(at->instruction, instruction);
    CLV_RECORD_STORE(at->phase, CLV_RECORD_NO_COLLECTIVE);
    atomic_store_explicit(&r->begun, n + 1, memory_order_release);
}

/* What was begun last has ended, and nothing follows for now. */
static inline void clv_recorder_idle(clv_recorder *r)
{
    CLV_RECORD_STORE(r->idle_ticks, clv_ticks());
    atomic_store_explicit(&r->idle, atomic_load_explicit(&r->begun, memory_order_relaxed), memory_order_release);
}

/* A step of a group begins: that of the instruction begun last, unless that has one or is over; then a record of its
 * own, of this name. Returns the record's number. */
uint64_t clv_recorder_begin_collective(clv_recorder *r, const char *name, const char *what, int set, uint64_t seq,
                                       uint64_t tag);

/* Whether record n is the last. */
static inline int clv_recorder_is_last(const clv_recorder *r, uint64_t n)
{
    return n + 1 == atomic_load_explicit(&r->begun, memory_order_relaxed);
}

/* What follows is of the step that is the last record: it has begun, or waits. */
static inline uint64_t clv_recorder_last_slot(const clv_recorder *r)
{
    return (atomic_load_explicit(&r->begun, memory_order_relaxed) - 1) % CLV_RECORDER_CAPACITY;
}

/* It waits since `now`, clv_now_ns. */
void clv_recorder_begin_wait(clv_recorder *r, clv_record_phase phase, int64_t now);

/* Bytes that it is to get of others. lacks: members that it is to hear of, as bits. */
static inline void clv_recorder_expect_bytes(clv_recorder *r, int64_t bytes, uint64_t lacks)
{
    uint64_t at = clv_recorder_last_slot(r);
    CLV_RECORD_STORE(r->steps[at].expected, bytes);
    CLV_RECORD_STORE(r->steps[at].lacks, lacks);
}

/* Member m's have come. */
static inline void clv_recorder_receive(clv_recorder *r, int m, int64_t bytes)
{
    clv_collective_record *s = &r->steps[clv_recorder_last_slot(r)];
    CLV_RECORD_STORE(s->seen, atomic_load_explicit(&s->seen, memory_order_relaxed) + bytes);
    if (m < CLV_RECORDER_MAX_MEMBERS)
        CLV_RECORD_STORE(s->lacks, atomic_load_explicit(&s->lacks, memory_order_relaxed) & ~(UINT64_C(1) << m));
}

/* How far it has come. */
static inline void clv_recorder_set_phase(clv_recorder *r, clv_record_phase phase)
{
    CLV_RECORD_STORE(r->records[clv_recorder_last_slot(r)].phase, phase);
}

/* Everybody's have come. */
static inline void clv_recorder_receive_all(clv_recorder *r)
{
    uint64_t at = clv_recorder_last_slot(r);
    CLV_RECORD_STORE(r->steps[at].seen, atomic_load_explicit(&r->steps[at].expected, memory_order_relaxed));
    CLV_RECORD_STORE(r->steps[at].lacks, 0);
    clv_recorder_set_phase(r, CLV_RECORD_TRANSFERRING);
}

/* All members of a group of n but one, as bits. */
static inline uint64_t clv_recorder_peer_mask(int n, int me)
{
    uint64_t all = n >= CLV_RECORDER_MAX_MEMBERS ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
    return me < CLV_RECORDER_MAX_MEMBERS ? all & ~(UINT64_C(1) << me) : all;
}

/* Names that were recorded, but of kinds, are copied to *kept, so that what they were in may go; the same name once.
 * Not while the rank runs. What cannot be copied for want of memory is forgotten. Free with clv_copied_names_free. */
typedef struct clv_copied_name clv_copied_name;
void clv_recorder_copy_names(clv_recorder *r, clv_copied_name **kept);
void clv_copied_names_free(clv_copied_name *kept);

#endif
