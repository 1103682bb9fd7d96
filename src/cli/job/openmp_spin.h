/* openmp_spin.h - restarts the program with a short GOMP_SPINCOUNT, so that idle OpenMP threads do not hold cores. */
#ifndef CLEAVE_CLI_JOB_OPENMP_SPIN_H
#define CLEAVE_CLI_JOB_OPENMP_SPIN_H

/* libgomp's threads spin for some 10 ms, and so use up their share of a core that another process wants; when there
 * is work they have to wait for their turn, and all threads of a region wait for them. With a busy loop on one of two
 * cores a training step on two threads took 2.9 times as long as on quiet cores, more than on one thread; spinning
 * for half a millisecond it takes 1.9 times, and nothing is lost on quiet cores. libgomp reads GOMP_SPINCOUNT when a
 * process begins, so this one begins again with it, unless the environment says already how threads wait
 * (GOMP_SPINCOUNT, OMP_WAIT_POLICY). It returns where that is so, where there is one core, and where the program
 * cannot be started again, or has another name than cleave: then they spin. */
void clv_openmp_limit_spin(char **argv);

#endif
