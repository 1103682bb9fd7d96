/* cpu_count.c - usable CPUs and cores: affinity mask and cgroup CPU quota (v1 and v2). */
#include "base/hardware/cpu_count.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hardware/hwloc_topology.h"

enum { PATH = 4096 };

/* The first number of a file; -1: there is none ("max", -1, no such file). *second: the one behind it, if any. */
static long long number_of(const char *folder, const char *name, long long *second)
{
    char path[PATH + 64];
    long long first = -1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%lld %lld", &first, second) < 1)
        first = -1;
    fclose(file);
    return first;
}

/* Of one cgroup; 0: none. */
static int quota_of(const char *folder)
{
    long long period = 100000, ignored = 0, quota = number_of(folder, "cpu.max", &period);
    if (quota < 0) {
        quota = number_of(folder, "cpu.cfs_quota_us", &ignored);
        period = number_of(folder, "cpu.cfs_period_us", &ignored);
    }
    if (quota <= 0 || period <= 0)
        return 0;
    return quota < period ? 1 : (int)(quota / period < 1 << 20 ? quota / period : 1 << 20);
}

/* Of two quotas, of which 0 is none. */
static int min_int(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

int clv_cgroup_cpu_quota(const char *mount, const char *path)
{
    char folder[PATH];
    size_t root = strlen(mount);
    int least = 0;
    if (root + strlen(path) >= sizeof folder)
        return 0;
    snprintf(folder, sizeof folder, "%s%s", mount, path);
    for (;;) {
        least = min_int(least, quota_of(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root)
            return least;
        *slash = '\0';
    }
}

/* Of this process: `0::/path` of version 2, `4:cpu,cpuacct:/path` of version 1. */
static int own_quota(void)
{
    char line[PATH];
    int least = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *of = strchr(line, ':'), *path = of ? strchr(of + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        bool is_v1 = strcmp(of, ":cpu") == 0 || strncmp(of, ":cpu,", 5) == 0;
        int quota = is_v1           ? clv_cgroup_cpu_quota("/sys/fs/cgroup/cpu", path)
                    : of[1] == '\0' ? clv_cgroup_cpu_quota("/sys/fs/cgroup", path)
                                    : 0;
        least = min_int(least, quota);
    }
    if (file)
        fclose(file);
    return least;
}

int clv_usable_cpus(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    if (cores == 0) /* more than a cpu_set_t holds */
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return min_int(cores > 0 ? cores : 1, own_quota());
}

int clv_usable_cores(void)
{
    hwloc_topology_t topology;
    int threads = clv_usable_cpus();
    if (!clv_topology_load(&topology))
        return threads;
    int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    hwloc_topology_destroy(topology);
    return cores > 0 && cores < threads ? cores : threads;
}
