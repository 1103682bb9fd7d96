/* unique_id.h - unique ids: random 64-bit numbers that identify a run. */
#ifndef CLEAVE_BASE_UNIQUE_ID_H
#define CLEAVE_BASE_UNIQUE_ID_H

#include <stdint.h>

/* One that another process, or an earlier call, will hardly have had; not 0. */
uint64_t clv_unique_id(void);

#endif
