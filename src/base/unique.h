/* unique.h - numbers that tell runs apart. */
#ifndef CLEAVE_BASE_UNIQUE_H
#define CLEAVE_BASE_UNIQUE_H

#include <stdint.h>

/* One that another process, or an earlier call, will hardly have had; not 0. */
uint64_t clv_unique(void);

#endif
