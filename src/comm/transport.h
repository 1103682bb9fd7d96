/* transport.h - transport interface (vtable) and collective descriptors: prepare once, then start and wait per run.
 *
 * A transfer describes a collective as one rank sees it: which boxes move, what is summed and in which order. It
 * becomes a prepared collective when a program is loaded; each run starts that and waits for it. All
 * members of a group start the same transfers in the same order. A transport only moves bytes: sums run over members
 * 0..n-1 in this order, bf16 and f16 are summed in f32 and rounded once, so every transport gives the same bits.
 *
 * Failure: every wait ends by the world's deadline. A rank that fails calls clv_comm_abort; all waiters then return
 * CLV_EPEER with the failing rank, its op and its message. A wait that times out returns CLV_ETIMEOUT, names the
 * missing ranks and their last known activity, and fails the world. Members whose transfers differ (what, tag) get
 * CLV_EPEER, never wrong data.
 */
#pragma once

#include "cleave/dtype.h"
#include "comm/comm.h"
#include "comm/transfer_boxes.h"
#include "device/device.h"

/* Registered memory: a region of every rank, laid out alike, so that an address in a rank's own region gives the
 * address in a peer's. */
typedef struct clv_window clv_window;

struct clv_rank_progress;

/* What a rank sends to a member, or receives from it. */
typedef struct clv_span {
    void *data;
    int64_t bytes;
} clv_span;

/* A collective as one rank sees it. `what`, the group, the spans and the memory must live as long as the prepared
 * collective; the other pointers are borrowed by prepare alone. */
typedef struct clv_transfer {
    const char *what; /* kind, for messages: "all_gather"; must outlive the world */
    uint64_t tag;     /* the same on all members, and different from that of any other collective */
    const clv_group *group;
    clv_dtype dtype;
    clv_reduction reduction; /* CLV_REDUCTION_NONE: elements are copied */
    clv_group_shards parts;  /* shards of the group's members; in a reduction all operands have the same shard */
    const void *in;          /* this rank's operand; must not overlap out */
    void *out;
    const clv_device *in_device, *out_device; /* NULL: the host */
    const clv_window *in_window, *out_window; /* windows that hold in and out; NULL, both: none, and in and out may be
                                                 set anew before each start */
    const clv_span *sends, *receives; /* [members] of an all-to-all of sizes that are known when it runs; NULL: `parts`
                                         says what moves. Set anew before each start, equal at both ends, in memory of
                                         the host; now `bytes` is the most. A rank's own are empty */
} clv_transfer;

typedef enum clv_wait {
    CLV_WAIT_OUTPUT_READY,  /* out holds the result */
    CLV_WAIT_INPUT_REUSABLE /* no peer reads in or writes out any more */
} clv_wait;

/* The common beginning of every transport's prepared collective: the transfer as this rank carries it out. */
typedef struct clv_prepared_collective {
    clv_comm *comm;
    const void *in;
    void *out;
    const clv_group *group;
    const clv_device *in_device, *out_device; /* not NULL */
    clv_dtype dtype;
    clv_reduction reduction;
    clv_shard in_shard, out_shard;    /* this rank's */
    const clv_span *sends, *receives; /* as in clv_transfer */
    int64_t receive_bytes;       /* from all peers together; for the flight recorder. With spans, set before start */
    bool overlapped;             /* set before start: the rank runs ops between start and wait. The times below
                                      (clv_now_ns) are only kept if it is set */
    int64_t begun_ns;            /* kept by the caller of start */
    int64_t compute_ns_at_start; /* kept by the caller of start: time that the rank had spent outside collectives */
    int64_t arrived_ns;          /* after the first wait: when the last peer's data was available; 0: not before that
                                      wait */
} clv_prepared_collective;

clv_prepared_collective clv_prepared_collective_init(clv_comm *comm, const clv_transfer *transfer);

typedef struct clv_transport {
    const char *name;
    /* Makes the transport's state of a world. NULL: it has none. links: NULL: all ranks are in this process. close is
     * called after open, whether open failed or not. */
    clv_status (*open)(clv_world *world, const clv_process_links *links, clv_error *err);
    void (*close)(clv_world *world);
    /* Unregisters a world that is leaked, so that only its late rank still uses it. NULL: nothing to unregister. */
    void (*leak)(clv_world *world);
    /* Sends the world's first failure to the other processes. NULL: the transport has one process. */
    void (*notify_failure)(clv_world *world, const clv_error *error);
    /* Receives failures of other processes; called while ranks wait for each other. NULL: they arrive by themselves. */
    void (*poll_failure)(clv_world *world);
    /* Asks other processes for their ranks' progress, in a group set too, and waits some milliseconds for the answers;
     * fills all[ranks]. NULL: they cannot be asked. */
    void (*query_progress)(clv_world *world, int group_set, struct clv_rank_progress *all);
    /* Names the process of a rank, for messages. NULL: its index is enough. */
    void (*describe_process)(char *out, size_t size, const clv_world *world, int rank);
    /* Registers memory: memory[r] is rank r's, borrowed until the window is freed. NULL: ranks do not reach each
     * other's memory. Not while ranks run. */
    clv_status (*add_window)(clv_window **out, clv_world *world, void *const *memory, clv_error *err);
    void (*free_window)(clv_window *window);
    /* *staging: bytes of staging memory that start needs, aligned as buffers are. */
    clv_status (*prepare)(clv_prepared_collective **out, clv_comm *comm, const clv_transfer *transfer, int64_t *staging,
                          clv_error *err);
    /* Never waits for peers. Until both waits have returned, no other prepared collective of the same group set may be
     * started, in must not be written, and out and staging must not be touched. */
    clv_status (*start)(clv_prepared_collective *prepared, void *staging, clv_error *err);
    /* Tells the transport, after start, that the rank runs ops before it waits: bytes must move meanwhile, and the rank
     * is not in a collective. */
    void (*overlap)(clv_prepared_collective *prepared);
    /* CLV_WAIT_OUTPUT_READY, then CLV_WAIT_INPUT_REUSABLE, once each. */
    clv_status (*wait)(clv_prepared_collective *prepared, clv_wait what, clv_error *err);
    void (*release)(clv_prepared_collective *prepared); /* NULL is a no-op */
} clv_transport;

/* The library's transports (transport.c lists them). */
extern const clv_transport clv_threads_transport, clv_mpi_transport;

/* Finds a transport by name; NULL: "threads". CLV_EINVAL lists the valid names. */
clv_status clv_transport_find(const clv_transport **out, const char *name, clv_error *err);
/* Adds one transport to those that clv_transport_find knows; the last call counts. For tests, before any world is
 * made; the table is borrowed. */
void clv_transport_register(const clv_transport *transport);

const clv_transport *clv_world_transport(const clv_world *world);
