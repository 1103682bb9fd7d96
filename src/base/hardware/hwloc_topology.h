/* hwloc_topology.h - hwloc topology: the cores that this process may run on. */
#pragma once

#include <hwloc.h>
#include <stdbool.h>

/* Loads the topology, restricted to the CPUs that this process may run on (taskset, cpuset). False on failure, when
 * there is nothing to destroy. */
bool clv_topology_load(hwloc_topology_t *out);
