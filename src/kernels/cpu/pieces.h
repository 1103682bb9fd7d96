/* pieces.h - work that is cut in pieces, and by whom they are done. Internal to this folder. What a piece does must not
 * depend on who does it. */
#ifndef CLEAVE_KERNELS_CPU_PIECES_H
#define CLEAVE_KERNELS_CPU_PIECES_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/line.h"
#include "base/workpool.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/threads.h"

/* Where piece i begins of n that are cut into `pieces` alike, each a multiple of `unit`; i == pieces: n. */
static inline int64_t clv_piece_at(int64_t n, int64_t unit, int64_t pieces, int64_t i)
{
    return clv_min_i64(clv_pieces(n, unit) * i / pieces * unit, n);
}

/* Into how many pieces n columns of `bytes` in all are cut, each a multiple of `unit`, for so many threads, or ranks,
 * to share: few rows are multiplied by them at the speed of memory, which takes some microseconds for one. Each thread
 * has as many. */
static inline int clv_stream_pieces(int threads, int64_t n, int64_t unit, int64_t bytes)
{
    enum { LEAST = 64 * 1024 };
    const int64_t each = clv_min_i64(bytes / LEAST, clv_pieces(n, unit)) / threads;
    return (int)(clv_max_i64(1, each) * threads);
}

/* The next of the pieces that a thread begins with. */
typedef struct clv_pieces_left {
    _Alignas(CLV_LINE) _Atomic int64_t next;
} clv_pieces_left;

/* fn(arg, piece, who) for each of n pieces. One thread shares them with ranks that wait. Several begin with as many
 * each, side by side, which is how memory is read best; who has done those takes others', so that a thread on a slower
 * core does fewer. Beyond MOST threads two begin with the same. */
static inline void clv_share_pieces(clv_workplace work, int threads, clv_piece_fn *fn, void *arg, int n)
{
    enum { MOST = 64 }; /* 8 KiB of stack */
    if (threads == 1) { /* no parallel region, which costs more than a small product (block.h) */
        clv_workpool_share(work, CLV_WORKPOOL_ALL, fn, arg, n);
        return;
    }
    const int64_t parts = threads < MOST ? threads : MOST;
    clv_pieces_left left[MOST];
    for (int64_t p = 0; p < parts; p++)
        atomic_init(&left[p].next, clv_piece_at(n, 1, parts, p));
    CLV_PRAGMA(omp parallel)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t p = (clv_threads_index() + i) % parts, end = clv_piece_at(n, 1, parts, p + 1);
        while (atomic_load_explicit(&left[p].next, memory_order_relaxed) < end) { /* else its line is not taken */
            const int64_t at = atomic_fetch_add_explicit(&left[p].next, 1, memory_order_relaxed);
            if (at < end)
                fn(arg, (int)at, clv_threads_index());
        }
    }
}

/* Inside a parallel region, by all threads of its team: into how many parts, `most` of them, each of `down` blocks is
 * cut, so that there are some pieces for each thread. A team of one shares whole blocks with ranks. */
static inline int64_t clv_team_parts(int64_t down, int64_t most)
{
    enum { EACH = 4 };
    const int team = clv_threads_team();
    return team == 1 ? 1 : clv_min_i64(clv_pieces(EACH * team, down), most);
}

/* There, too: fn(arg, piece, who) for each of n pieces that are worth milliseconds, whose operands caches have: in
 * turn. A team of one shares them with ranks that wait. All return when all have ended. */
static inline void clv_team_share(clv_workplace work, clv_piece_fn *fn, void *arg, int n)
{
    if (clv_threads_team() == 1) {
        clv_workpool_share(work, CLV_WORKPOOL_ALL, fn, arg, n);
        return;
    }
    CLV_PRAGMA(omp for schedule(dynamic, 1))
    for (int i = 0; i < n; i++)
        fn(arg, i, clv_threads_index());
}

#endif
