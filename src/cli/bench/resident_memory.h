/* resident_memory.h - samples the peak anonymous resident memory of the process on a thread. */
#pragma once

#include <stdint.h>

/* Anonymous resident bytes now (resident - shared of /proc/self/statm); 0: unknown. */
int64_t clv_resident_bytes(void);

/* A thread that samples the peak every millisecond. */
typedef struct clv_resident_watch clv_resident_watch;
/* NULL when no memory or thread is available; the peak is then 0. */
clv_resident_watch *clv_resident_watch_start(void);
/* Stops the thread, frees the watch, and returns the peak. */
int64_t clv_resident_watch_stop(clv_resident_watch *watch);
