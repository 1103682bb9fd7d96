/* device.h - device backend interface: memory, copies, fills, ordered reductions and kernels by op; the registry of
 * backends.
 *
 * A backend is a table of functions, found by its name; the host ("cpu") is one. Each rank opens a device of its
 * session's backend. The runtime and the transports touch the memory of tensors by these functions alone; only where
 * is_host says that the device's memory is the host's do some of them look into it (memory_check.c, nonfinite_check.c).
 *
 * **Order.** What is asked of one device happens in the order in which it was asked. A call may return before it is
 * done, unless it reads or writes host memory; `synchronize` waits. Whoever lets another rank reach a device's memory
 * finishes it first. All arguments but tensors' memory are read before a call returns.
 *
 * **Reach.** The input of a copy or sum on the device may be memory of another rank's device of the same backend, and
 * the output of a copy too: ranks are threads of this process.
 *
 * **Threads.** A rank's device is used by its thread, and by the caller's while no rank runs.
 */
#ifndef CLEAVE_DEVICE_DEVICE_H
#define CLEAVE_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/threads/work_stealing.h"
#include "cleave/cancel.h"
#include "cleave/dtype.h"
#include "cleave/layout.h"

struct clv_call;

typedef struct clv_device_backend clv_device_backend;

/* What an opened device begins with. */
typedef struct clv_device {
    const clv_device_backend *backend;
} clv_device;

/* What a kernel may know of where it runs, beside its views: in each clv_call. */
struct clv_context {
    const clv_device *device;
    int rank, threads;
    clv_task_pool_member work; /* where ranks that wait may take part */
    const clv_cancel *cancel;  /* NULL: none */
    const _Atomic int *failed; /* whether a rank has; NULL: nobody says */
};

/* On which side of a copy host memory is. */
typedef enum clv_copy_kind { CLV_COPY_ON_DEVICE, CLV_COPY_TO_HOST, CLV_COPY_FROM_HOST } clv_copy_kind;

/* An op that the device has a kernel for. */
typedef struct clv_device_kernel {
    const char *op; /* its def's name */
    /* Whether it takes this call, asked when a program is loaded: the same on all ranks, so by attributes, dtypes and
     * whole shapes alone. NULL: any. */
    bool (*takes)(const struct clv_call *call);
    clv_status (*run)(const struct clv_call *call, clv_error *err); /* all of its memory is the device's */
} clv_device_kernel;

struct clv_device_backend {
    const char *name;
    bool is_host; /* its memory is the host's, and its kernels are those of the ops */
    clv_status (*open)(const clv_device **out, int ordinal, clv_error *err); /* among this process's ranks */
    void (*close)(const clv_device *device); /* drops what is not done yet; NULL: nothing to do */
    /* bytes > 0, a multiple of align, a power of two up to a page's size; NULL when out of memory. */
    void *(*alloc)(const clv_device *device, size_t align, size_t bytes);
    void (*free)(const clv_device *device, void *memory); /* NULL is a no-op */
    /* As clv_box_copy, clv_fill_reduction_identity and clv_box_reduce (tensor/box_copy.h), with the same bits. */
    clv_status (*copy)(const clv_device *device, clv_copy_kind kind, void *out, const clv_shard *out_shard,
                       const void *in, const clv_shard *in_shard, const clv_shard *box, size_t elem_size,
                       clv_error *err);
    clv_status (*fill)(const clv_device *device, void *out, int64_t count, clv_dtype dtype, clv_reduction reduction,
                       clv_error *err);
    clv_status (*reduce)(const clv_device *device, void *out, const clv_shard *out_shard, const void *const *in, int n,
                         const clv_shard *in_shard, const clv_shard *box, clv_dtype dtype, clv_reduction reduction,
                         clv_error *err);
    /* Waits for what was asked; its first failure. NULL: each call is done when it returns. */
    clv_status (*synchronize)(const clv_device *device, clv_error *err);
    const clv_device_kernel *kernels; /* ended by a NULL op; ops that are not here run on the host. Unused if is_host */
};

extern const clv_device_backend clv_device_cpu;
extern const clv_device clv_device_host; /* opened */

/* By name, NULL: the host. CLV_EINVAL with the names that there are. */
clv_status clv_device_find(const clv_device_backend **out, const char *name, clv_error *err);

/* Makes one more backend known, for as long as the process lives; at most 8, each name once. From one thread at a time.
 */
clv_status clv_device_register(const clv_device_backend *backend, clv_error *err);

/* The kernel for a call; NULL: the device lists none that takes it. */
const clv_device_kernel *clv_device_kernel_for(const clv_device *device, const char *op, const struct clv_call *call);

/* Plain bytes. */
clv_status clv_device_copy_bytes(const clv_device *device, clv_copy_kind kind, void *out, const void *in, int64_t bytes,
                                 clv_error *err);

static inline clv_status clv_device_synchronize(const clv_device *device, clv_error *err)
{
    return device->backend->synchronize ? device->backend->synchronize(device, err) : CLV_OK;
}

#endif
