/* available_memory.h - free memory: bytes this process can still use before the OOM killer acts (machine and cgroup
 * limits).
 */
#ifndef CLEAVE_BASE_HARDWARE_AVAILABLE_MEMORY_H
#define CLEAVE_BASE_HARDWARE_AVAILABLE_MEMORY_H

#include <stdint.h>

/* Bytes that this process may yet fill before others, or it, are ended for want of memory: an allocation that the
 * system grants says nothing of that. Of the machine, and of the container where one is seen; -1: not known. */
int64_t clv_available_memory(void);

#endif
