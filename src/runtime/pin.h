/* pin.h - which cores each rank thread gets. Private to src/runtime. */
#ifndef CLEAVE_RUNTIME_PIN_H
#define CLEAVE_RUNTIME_PIN_H

typedef struct clv_pins clv_pins;

/* A plan for ranks of `threads` cores each, from the cores that this process may run on: one thread a core where there
 * are enough, else one a hardware thread, else (wrap) in turn, or (not wrap) NULL. NULL too when the machine cannot be
 * read: pinning is never a reason to fail. */
clv_pins *clv_pins_new(int ranks, int threads, int wrap);
/* Binds the calling thread, and the threads it starts later, to a rank's cores. */
void clv_pins_bind(const clv_pins *pins, int rank);
void clv_pins_free(clv_pins *pins);

#endif
