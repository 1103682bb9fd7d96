/* cpu_count.h - usable CPUs and cores: affinity mask and cgroup CPU quota (v1 and v2). */
#ifndef CLEAVE_BASE_HARDWARE_CPU_COUNT_H
#define CLEAVE_BASE_HARDWARE_CPU_COUNT_H

/* Hardware threads that run this process at the same time, at least 1: those of its affinity, and no more than the CPU
 * time that its cgroup is given (a quota of 1.5 CPUs is 1: a second thread would be held up half of the time, and the
 * first waits for it). */
int clv_usable_cpus(void);
/* The same, but the hardware threads of one core, which share its units of arithmetic, count as one. */
int clv_usable_cores(void);

/* CPUs that the quota of a cgroup and of those above it leaves, at least 1; 0: no quota. mount: where cgroups are
 * ("/sys/fs/cgroup"); path: the cgroup in it, "/..." */
int clv_cgroup_cpu_quota(const char *mount, const char *path);

#endif
