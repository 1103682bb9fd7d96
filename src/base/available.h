/* available.h - how much memory there is to be had. */
#ifndef CLEAVE_BASE_AVAILABLE_H
#define CLEAVE_BASE_AVAILABLE_H

#include <stdint.h>

/* Bytes that this process may yet fill before others, or it, are ended for want of memory: an allocation that the
 * system grants says nothing of that. Of the machine, and of the container where one is seen; -1: not known. */
int64_t clv_available_memory(void);

#endif
