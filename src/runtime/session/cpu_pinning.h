/* cpu_pinning.h - CPU pinning: which cores each rank thread is bound to. Private to src/runtime. */
#ifndef CLEAVE_RUNTIME_SESSION_CPU_PINNING_H
#define CLEAVE_RUNTIME_SESSION_CPU_PINNING_H

typedef struct clv_cpu_pinning clv_cpu_pinning;

/* A plan for ranks of `threads` cores each, from the cores that this process may run on: one thread a core where there
 * are enough, else one a hardware thread, else (wrap) in turn, or (not wrap) NULL. NULL too when the machine cannot be
 * read: pinning is never a reason to fail. */
clv_cpu_pinning *clv_cpu_pinning_new(int ranks, int threads, int wrap);
/* Binds the calling thread, and the threads it starts later, to a rank's cores. */
void clv_cpu_pinning_bind(const clv_cpu_pinning *pins, int rank);
void clv_cpu_pinning_free(clv_cpu_pinning *pins);

#endif
