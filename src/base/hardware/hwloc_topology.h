/* hwloc_topology.h - hwloc topology: the cores that this process may run on. */
#ifndef CLEAVE_BASE_HARDWARE_HWLOC_TOPOLOGY_H
#define CLEAVE_BASE_HARDWARE_HWLOC_TOPOLOGY_H

#include <hwloc.h>
#include <stdbool.h>

/* What taskset, a cpuset and the like leave this process is all that is in it. False: the machine could not be read,
 * and there is nothing to destroy. */
bool clv_topology_load(hwloc_topology_t *out);

#endif
