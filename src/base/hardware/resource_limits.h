/* resource_limits.h - CPUs, cores and memory that this process may use: affinity, cgroup limits, free memory. */
#pragma once

#include <stdint.h>

/* Returns the number of hardware threads that can run this process at once, at least 1: those of its affinity mask, but
 * no more than its cgroup's CPU quota. (A quota of 1.5 CPUs counts as 1: a second thread would be throttled half of the
 * time, and the first would wait for it.) */
int clv_usable_cpus(void);
/* Returns the same, counting the hardware threads of one core, which share its arithmetic units, as one. */
int clv_usable_cores(void);

/* Returns the CPUs that the quotas of a cgroup and of its parents permit, at least 1; 0: no quota. mount: the mount
 * point of cgroups ("/sys/fs/cgroup"); path: the cgroup within it, "/..." */
int clv_cgroup_cpu_quota(const char *mount, const char *path);

/* Returns the bytes that this process can still touch before the OOM killer acts, by the memory available on the
 * machine and in the container; -1: unknown. (A successful malloc says nothing about that.) */
int64_t clv_available_memory(void);
