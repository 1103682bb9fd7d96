/* flight_recorder.h - per-rank flight recorder: lock-free ring buffer of the last 256 instructions and collectives.
 *
 * Only the rank's own thread writes, without locks or system calls, at a cost of some nanoseconds per instruction. Any
 * thread may read meanwhile; the oldest record that it finds may be half overwritten. Times of instructions are ticks
 * of the processor's clock, which readers convert to nanoseconds; the clock is read for one instruction in four, as
 * reading it costs most. An instruction ends when the next begins.
 *
 * Transports record collectives: index in its group set, bytes expected and received, phase. A collective outside of
 * programs is a record of its own.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/wait.h"

enum { CLV_RECORDER_CAPACITY = 256 /* a power of 2 */, CLV_RECORDER_MAX_MEMBERS = 64, CLV_RECORDER_CLOCK_INTERVAL = 4 };

/* How far a collective has come on this rank. */
typedef enum clv_record_phase {
    CLV_RECORD_NO_COLLECTIVE, /* an op, or a collective without communication */
    CLV_RECORD_BEGUN,         /* sends its own data */
    CLV_RECORD_WAITING,       /* waits for the other members */
    CLV_RECORD_TRANSFERRING,  /* all members have come; moves bytes */
    CLV_RECORD_WAITING_END,   /* waits for all members to end it */
    CLV_RECORD_ENDED
} clv_record_phase;

typedef struct clv_record {
    _Atomic(const char *) name; /* valid until clv_world_copy_names */
    _Atomic(const char *) kind; /* outlives the recorder */
    _Atomic int64_t begun_ticks;
    _Atomic int32_t instruction; /* index in the program; -1: in none */
    _Atomic int32_t phase;       /* clv_record_phase; the clv_collective_record is valid unless NO_COLLECTIVE */
} clv_record;

typedef struct clv_collective_record {
    alignas(64) _Atomic(const char *) what;
    _Atomic uint64_t seq; /* index among the collectives of the group set, from 1 */
    _Atomic uint64_t tag;
    _Atomic int64_t waiting_ns;         /* clv_now_ns when the wait began; 0: it did not wait */
    _Atomic int64_t expected, received; /* bytes from other members */
    _Atomic uint64_t awaited;           /* bit m: nothing has come from member m; the first 64 members */
    _Atomic int32_t group_set;
} clv_collective_record;

typedef struct clv_recorder {
    alignas(
        CLV_CACHE_LINE) _Atomic uint64_t begun; /* number of records begun: record n is at n % CLV_RECORDER_CAPACITY */
    _Atomic uint64_t idle;                      /* equal to begun: the last record has ended, too */
    _Atomic int64_t idle_ticks;                 /* when it ended */
    int64_t ticks;                              /* the clock when it was last read */
    int64_t first_ticks, first_ns;              /* both clocks when the recorder was made */
    clv_record records[CLV_RECORDER_CAPACITY];
    clv_collective_record collectives[CLV_RECORDER_CAPACITY];
} clv_recorder;

/* The processor's fastest clock, in its own units. */
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

/* Begins an instruction and ends the one before. kind: the kind of op or collective. */
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

/* Ends the last instruction; none follows for now. */
static inline void clv_recorder_idle(clv_recorder *r)
{
    CLV_RECORD_STORE(r->idle_ticks, clv_ticks());
    atomic_store_explicit(&r->idle, atomic_load_explicit(&r->begun, memory_order_relaxed), memory_order_release);
}

/* Begins a collective: as part of the instruction begun last, or, if that has one or has ended, as a record of its own
 * with this name. Returns the record's index. */
uint64_t clv_recorder_begin_collective(clv_recorder *r, const char *name, const char *what, int group_set, uint64_t seq,
                                       uint64_t tag);

/* Whether record n is the last. */
static inline int clv_recorder_is_last(const clv_recorder *r, uint64_t n)
{
    return n + 1 == atomic_load_explicit(&r->begun, memory_order_relaxed);
}

/* The functions below update the collective of the last record. */

/* Index of the last record in the ring buffer. */
static inline uint64_t clv_recorder_last_slot(const clv_recorder *r)
{
    return (atomic_load_explicit(&r->begun, memory_order_relaxed) - 1) % CLV_RECORDER_CAPACITY;
}

/* It waits since `now` (clv_now_ns). */
void clv_recorder_begin_wait(clv_recorder *r, clv_record_phase phase, int64_t now);

/* It expects bytes from other members. awaited: these members, as bits. */
static inline void clv_recorder_expect_bytes(clv_recorder *r, int64_t bytes, uint64_t awaited)
{
    uint64_t at = clv_recorder_last_slot(r);
    CLV_RECORD_STORE(r->collectives[at].expected, bytes);
    CLV_RECORD_STORE(r->collectives[at].awaited, awaited);
}

/* The bytes of member m have come. */
static inline void clv_recorder_receive(clv_recorder *r, int m, int64_t bytes)
{
    clv_collective_record *s = &r->collectives[clv_recorder_last_slot(r)];
    CLV_RECORD_STORE(s->received, atomic_load_explicit(&s->received, memory_order_relaxed) + bytes);
    if (m < CLV_RECORDER_MAX_MEMBERS)
        CLV_RECORD_STORE(s->awaited, atomic_load_explicit(&s->awaited, memory_order_relaxed) & ~(UINT64_C(1) << m));
}

static inline void clv_recorder_set_phase(clv_recorder *r, clv_record_phase phase)
{
    CLV_RECORD_STORE(r->records[clv_recorder_last_slot(r)].phase, phase);
}

/* All members' bytes have come. */
static inline void clv_recorder_receive_all(clv_recorder *r)
{
    uint64_t at = clv_recorder_last_slot(r);
    CLV_RECORD_STORE(r->collectives[at].received,
                     atomic_load_explicit(&r->collectives[at].expected, memory_order_relaxed));
    CLV_RECORD_STORE(r->collectives[at].awaited, 0);
    clv_recorder_set_phase(r, CLV_RECORD_TRANSFERRING);
}

/* All members of a group of n but `me`, as bits. */
static inline uint64_t clv_recorder_peer_mask(int n, int me)
{
    uint64_t all = n >= CLV_RECORDER_MAX_MEMBERS ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
    return me < CLV_RECORDER_MAX_MEMBERS ? all & ~(UINT64_C(1) << me) : all;
}

/* Copies recorded names (not kinds) to *copies, each name once, so that their memory may be freed. Not while the rank
 * runs. A name that cannot be copied becomes "". Free with clv_copied_names_free. */
typedef struct clv_copied_name clv_copied_name;
void clv_recorder_copy_names(clv_recorder *r, clv_copied_name **copies);
void clv_copied_names_free(clv_copied_name *copies);
