/* hwloc_topology.c - hwloc topology: the cores that this process may run on. */
#include "base/hardware/hwloc_topology.h"

bool clv_topology_load(hwloc_topology_t *out)
{
    hwloc_topology_t topology;
    hwloc_cpuset_t mine = hwloc_bitmap_alloc();
    bool ok = mine && hwloc_topology_init(&topology) == 0;

    if (ok && hwloc_topology_load(topology) == 0) {
        if (hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) == 0)
            hwloc_topology_restrict(topology, mine, 0);
        *out = topology;
    } else if (ok) {
        hwloc_topology_destroy(topology);
        ok = false;
    }
    hwloc_bitmap_free(mine);
    return ok;
}
