/* openmp_spin.h - restarts the program with a short GOMP_SPINCOUNT, so that idle OpenMP threads do not hold cores. */
#pragma once

/* Restarts the program with GOMP_SPINCOUNT set; libgomp reads it at start-up only. Does nothing when GOMP_SPINCOUNT or
 * OMP_WAIT_POLICY is set, on one core, and when the program has another name than cleave or cannot be restarted.
 *
 * libgomp's threads spin for some 10 ms by default, and so use up their share of a core that another process needs;
 * then all threads of a region wait for them. With a busy loop on one of two cores a training step on two threads took
 * 2.9 times as long as on idle cores, more than on one thread; with half a millisecond of spinning 1.9 times, and the
 * same on idle cores. */
void clv_openmp_restart_with_short_spin(char **argv);
