/* available_memory.c - free memory: bytes this process can still use before the OOM killer acts (machine and cgroup
 * limits).
 */
#include "base/hardware/available_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind a word that begins a line of a file; "": at its beginning. -1: there is none. */
static int64_t number_in(const char *path, const char *word)
{
    char line[256];
    int64_t number = -1;
    size_t length = strlen(word);
    FILE *file = fopen(path, "re");
    while (file && number < 0 && fgets(line, sizeof line, file)) {
        char *end = line;
        long long read = strncmp(line, word, length) == 0 ? strtoll(line + length, &end, 10) : -1;
        if (end > line + length)
            number = read;
    }
    if (file)
        fclose(file);
    return number;
}

/* cgroup v2, as a container sees its own; what it has of files is given back when it is wanted. */
static int64_t cgroup_memory_left(void)
{
    int64_t most = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", ""),
            files = number_in("/sys/fs/cgroup/memory.stat", "inactive_file");
    if (most < 0 || used < 0)
        return -1;
    int64_t left = most - used + (files > 0 ? files : 0);
    return left > 0 ? left : 0;
}

int64_t clv_available_memory(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:"), left = cgroup_memory_left();
    int64_t here = kib < 0 ? -1 : kib * 1024;
    return left >= 0 && (here < 0 || left < here) ? left : here;
}
