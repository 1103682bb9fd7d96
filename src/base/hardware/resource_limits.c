/* resource_limits.c - CPUs, cores and memory that this process may use: affinity, cgroup limits, free memory. */
#include "base/hardware/resource_limits.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hardware/hwloc_topology.h"

enum { PATH = 4096 };

/* Returns the first number of the line that begins with `word` ("": the first line) in folder/name; -1: there is none
 * ("max", no such file). *second, unless NULL, receives the number after it, if any. */
static long long read_number(const char *folder, const char *name, const char *word, long long *second)
{
    char path[PATH + 64], line[256], *end;
    long long first = -1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    while (file && first < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0) {
            const char *number = line + strlen(word);
            long long value = strtoll(number, &end, 10);
            first = end > number ? value : -1;
            if (second && *end == ' ')
                *second = strtoll(end, NULL, 10);
        }
    if (file)
        fclose(file);
    return first;
}

/* Returns the CPUs of one cgroup's quota; 0: none. */
static int read_cpu_quota(const char *folder)
{
    long long period = 100000, quota = read_number(folder, "cpu.max", "", &period);
    if (quota < 0) {
        quota = read_number(folder, "cpu.cfs_quota_us", "", NULL);
        period = read_number(folder, "cpu.cfs_period_us", "", NULL);
    }
    if (quota <= 0 || period <= 0)
        return 0;
    return quota < period ? 1 : (int)(quota / period < 1 << 20 ? quota / period : 1 << 20);
}

/* The smaller of two quotas; 0 is none. */
static int min_quota(int a, int b)
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
        least = min_quota(least, read_cpu_quota(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root)
            return least;
        *slash = '\0';
    }
}

/* The quota of this process, by /proc/self/cgroup: `0::/path` for cgroup v2, `4:cpu,cpuacct:/path` for v1. */
static int own_cpu_quota(void)
{
    char line[PATH];
    int least = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        bool is_v1 = strcmp(controllers, ":cpu") == 0 || strncmp(controllers, ":cpu,", 5) == 0;
        int quota = is_v1                    ? clv_cgroup_cpu_quota("/sys/fs/cgroup/cpu", path)
                    : controllers[1] == '\0' ? clv_cgroup_cpu_quota("/sys/fs/cgroup", path)
                                             : 0;
        least = min_quota(least, quota);
    }
    if (file)
        fclose(file);
    return least;
}

int clv_usable_cpus(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    if (cores == 0) /* more CPUs than a cpu_set_t holds */
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return min_quota(cores > 0 ? cores : 1, own_cpu_quota());
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

/* cgroup v2, as a container sees its own. File pages that are inactive are reclaimed on demand. */
static int64_t cgroup_memory_left(void)
{
    static const char folder[] = "/sys/fs/cgroup";
    int64_t limit = read_number(folder, "memory.max", "", NULL), used = read_number(folder, "memory.current", "", NULL),
            files = read_number(folder, "memory.stat", "inactive_file", NULL);
    if (limit < 0 || used < 0)
        return -1;
    int64_t left = limit - used + (files > 0 ? files : 0);
    return left > 0 ? left : 0;
}

int64_t clv_available_memory(void)
{
    int64_t kib = read_number("/proc", "meminfo", "MemAvailable:", NULL), left = cgroup_memory_left();
    int64_t machine = kib < 0 ? -1 : kib * 1024;
    return left >= 0 && (machine < 0 || left < machine) ? left : machine;
}
