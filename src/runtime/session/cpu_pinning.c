/* cpu_pinning.c - CPU pinning of rank threads with hwloc: distributes cores, then hardware threads, over ranks. */
#include "runtime/session/cpu_pinning.h"

#include <stdlib.h>

#include "base/hardware/hwloc_topology.h"

struct clv_cpu_pinning {
    hwloc_topology_t topology;
    hwloc_obj_type_t unit; /* core or PU */
    int units;
    int threads;
};

clv_cpu_pinning *clv_cpu_pinning_new(int ranks, int threads, int wrap)
{
    clv_cpu_pinning *pins = calloc(1, sizeof *pins);

    if (!pins || !clv_topology_load(&pins->topology)) {
        free(pins);
        return NULL;
    }
    long wanted = (long)ranks * threads;
    pins->threads = threads;
    pins->unit = HWLOC_OBJ_CORE;
    pins->units = hwloc_get_nbobjs_by_type(pins->topology, HWLOC_OBJ_CORE);
    if (pins->units < wanted) {
        pins->unit = HWLOC_OBJ_PU;
        pins->units = hwloc_get_nbobjs_by_type(pins->topology, HWLOC_OBJ_PU);
    }
    if (pins->units < 1 || (pins->units < wanted && !wrap)) {
        clv_cpu_pinning_free(pins);
        return NULL;
    }
    return pins;
}

void clv_cpu_pinning_bind(const clv_cpu_pinning *pins, int rank)
{
    hwloc_cpuset_t set = hwloc_bitmap_alloc();

    for (int t = 0; set && t < pins->threads; t++) {
        unsigned i = (unsigned)(((long)rank * pins->threads + t) % pins->units);
        hwloc_obj_t unit = hwloc_get_obj_by_type(pins->topology, pins->unit, i);

        hwloc_bitmap_or(set, set, unit->cpuset);
    }
    if (set)
        hwloc_set_cpubind(pins->topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
}

void clv_cpu_pinning_free(clv_cpu_pinning *pins)
{
    if (!pins)
        return;
    hwloc_topology_destroy(pins->topology);
    free(pins);
}
