/* resident_memory.h - peak anonymous resident memory of the process, sampled by a thread. */
#ifndef CLEAVE_CLI_BENCH_RESIDENT_MEMORY_H
#define CLEAVE_CLI_BENCH_RESIDENT_MEMORY_H

#include <stdint.h>

/* Bytes now (proc(5), statm: resident less shared); 0 where the system does not tell. */
int64_t clv_resident_bytes(void);

/* The most since the watch began, looked at every millisecond by a thread of its own. */
typedef struct clv_resident_watch clv_resident_watch;
/* NULL when there is no memory or no thread for it: the peak is then unknown, 0. */
clv_resident_watch *clv_resident_watch_start(void);
/* Ends the watch and frees it. */
int64_t clv_resident_watch_peak(clv_resident_watch *watch);

#endif
