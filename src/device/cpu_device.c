/* cpu_device.c - CPU device backend: synchronous host memory, copies and reductions. */
#include <stdlib.h>

#include "base/memory/aligned_memory.h"
#include "device/device.h"
#include "tensor/box_copy.h"

static clv_status open_host(const clv_device **out, int ordinal, clv_error *err)
{
    *out = &clv_device_host;
    return CLV_OK;
}

static void *alloc(const clv_device *device, size_t align, size_t bytes)
{
    return clv_huge_pages_alloc(align, bytes);
}

static void free_memory(const clv_device *device, void *memory)
{
    free(memory);
}

static clv_status copy(const clv_device *device, clv_copy_kind kind, void *out, const clv_shard *out_shard,
                       const void *in, const clv_shard *in_shard, const clv_shard *box, size_t elem_size,
                       clv_error *err)
{
    clv_box_copy(out, out_shard, in, in_shard, box, elem_size);
    return CLV_OK;
}

static clv_status fill(const clv_device *device, void *out, int64_t count, clv_dtype dtype, clv_reduction reduction,
                       clv_error *err)
{
    clv_fill_reduction_identity(out, count, dtype, reduction);
    return CLV_OK;
}

static clv_status reduce(const clv_device *device, void *out, const clv_shard *out_shard, const void *const *in, int n,
                         const clv_shard *in_shard, const clv_shard *box, clv_dtype dtype, clv_reduction reduction,
                         clv_error *err)
{
    clv_box_reduce(out, out_shard, in, n, in_shard, box, dtype, reduction);
    return CLV_OK;
}

const clv_device_backend clv_device_cpu = {
    .name = "cpu",
    .is_host = true,
    .open = open_host,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .fill = fill,
    .reduce = reduce,
};

const clv_device clv_device_host = {&clv_device_cpu};
