/* cpu_pinning.h - CPU pinning: which cores each rank thread is bound to. Private to src/runtime. */
#pragma once

typedef struct clv_cpu_pinning clv_cpu_pinning;

/* Assigns `threads` cores per rank, of the cores that this process may use: one thread per core if there are enough,
 * else one per hardware thread, else round robin (wrap) or NULL (not wrap). Also NULL if the topology is unknown:
 * pinning never fails. */
clv_cpu_pinning *clv_cpu_pinning_new(int ranks, int threads, int wrap);
/* Binds the calling thread, and threads that it starts later, to a rank's cores. */
void clv_cpu_pinning_bind(const clv_cpu_pinning *pins, int rank);
void clv_cpu_pinning_free(clv_cpu_pinning *pins);
