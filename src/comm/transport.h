/* transport.h - transport interface (vtable) and collective descriptors: prepare once, then start and wait per run.
 *
 * A step says what is moved, and what is summed in which order; a transport only moves bytes. Sums run over members
 * 0..n-1 in this order, bf16 and f16 in f32, rounded once: so every transport gives the same bits.
 *
 * A step as one rank sees it is a transfer. It becomes a plan once, when a program is loaded; each run starts it and
 * waits for it. All members of a group start the same transfers in the same order.
 *
 * Failure: every wait ends by the world's deadline. A rank that fails calls clv_comm_abort; all waiters then return
 * CLV_EPEER with the failing rank, its op and its message. A wait that times out returns CLV_ETIMEOUT naming the ranks
 * that did not come and what they were last known to do, and aborts the world. Members whose transfers do not match
 * (what, tag) get CLV_EPEER, not wrong data.
 */
#ifndef CLEAVE_COMM_TRANSPORT_H
#define CLEAVE_COMM_TRANSPORT_H

#include "cleave/dtype.h"
#include "comm/comm.h"
#include "comm/transfer_boxes.h"
#include "device/device.h"

/* Memory that all ranks made alike, so that a place in one's own tells the place in a peer's. */
typedef struct clv_window clv_window;

struct clv_rank_progress;

/* A step as one rank sees it; pointers are borrowed by prepare alone, but for `what`, the group and memory. */
typedef struct clv_transfer {
    const char *what; /* "all_gather", for messages; outlives the world */
    uint64_t tag;     /* the same on all members, and no other step's */
    const clv_group *group;
    clv_dtype dtype;
    clv_reduction reduction; /* CLV_REDUCTION_NONE: elements are copied */
    clv_group_shards parts;  /* of the group's members. Where values are reduced all members hold the same shard */
    const void *in;          /* mine; does not overlap out */
    void *out;
    const clv_device *in_device, *out_device; /* in whose memory they are; NULL: the host's */
    const clv_window *in_window,
        *out_window; /* that they lie in; NULL, both: in none, and the plan may be used elsewhere */
} clv_transfer;

typedef enum clv_wait {
    CLV_WAIT_OUTPUT_READY,  /* my out is there */
    CLV_WAIT_INPUT_REUSABLE /* no peer reads my in, or writes my out, any more */
} clv_wait;

/* What every transport's plan begins with: its transfer as this rank carries it out. Where that named no windows, in
 * and out may be set anew before each start. */
typedef struct clv_plan {
    clv_comm *comm;
    const void *in;
    void *out;
    const clv_group *group;
    const clv_device *in_device, *out_device; /* not NULL */
    clv_dtype dtype;
    clv_reduction reduction;
    clv_shard in_shard, out_shard; /* mine */
    int64_t receive_bytes;         /* of others, in all; for the flight recorder */
    /* How much of it hides behind ops; clv_now_ns. */
    bool flies;       /* said before start: the rank runs ops until it waits. Only then what follows counts */
    int64_t begun_ns; /* kept by who started it */
    int64_t compute_ns_at_start; /* likewise: what of the rank's time was not in steps until then */
    int64_t arrived_ns; /* after wait for OUT: since when all that is of others has been here, or, where it is read in
                             place, to be read; 0: not before that wait */
} clv_plan;

clv_plan clv_plan_init(clv_comm *comm, const clv_transfer *transfer);

typedef struct clv_transport {
    const char *name;
    /* What the transport keeps for a world; NULL: nothing. close after any open, in vain or not. links: to ranks of
     * other processes; NULL: there are none. */
    clv_status (*open)(clv_world *world, const struct clv_process_links *links, clv_error *err);
    void (*close)(clv_world *world);
    /* The world is leaked: nothing but its late rank looks at it any more. NULL: nothing else does. */
    void (*leak)(clv_world *world);
    /* Tells other processes of the world's first failure. NULL: the transport does not reach any. */
    void (*tell)(clv_world *world, const clv_error *error);
    /* Looks whether other processes have told of a failure; while ranks wait for each other. NULL likewise. */
    void (*hear)(clv_world *world);
    /* Asks other processes where their ranks stand, and where in a group set, for some milliseconds at most: all
     * [ranks]. NULL: they cannot be asked. */
    void (*stand)(clv_world *world, int set, struct clv_rank_progress *all);
    /* The process of a rank elsewhere, for messages; NULL: its number says enough. */
    void (*whose)(char *out, size_t size, const clv_world *world, int rank);
    /* memory[r]: where rank r's lies, borrowed until the window is freed. NULL: ranks do not reach each other's memory.
     * Not while ranks run. */
    clv_status (*add_window)(clv_window **out, clv_world *world, void *const *memory, clv_error *err);
    void (*free_window)(clv_window *window);
    /* *staging: bytes that start is to be given, aligned as buffers are. */
    clv_status (*prepare)(clv_plan **out, clv_comm *comm, const clv_transfer *transfer, int64_t *staging,
                          clv_error *err);
    /* Never waits for peers. Until both waits have returned, no other plan of the same group set is started, in is not
     * written, and out and staging are not touched. */
    clv_status (*start)(clv_plan *plan, void *staging, clv_error *err);
    /* The rank that started it runs ops before it waits: its bytes are to move meanwhile, and it is in no step. */
    void (*beside)(clv_plan *plan);
    /* OUT, then IN, once each. */
    clv_status (*wait)(clv_plan *plan, clv_wait what, clv_error *err);
    void (*release)(clv_plan *plan); /* NULL is a no-op */
} clv_transport;

/* The library's transports (transport.c lists them). */
extern const clv_transport clv_threads_transport, clv_mpi_transport;

/* Finds a transport by name; NULL: "threads". CLV_EINVAL lists the valid names. */
clv_status clv_transport_find(const clv_transport **out, const char *name, clv_error *err);
/* Adds one transport to those that clv_transport_find knows; the last call counts. For tests, before any world is
 * made; the table is borrowed. */
void clv_transport_register(const clv_transport *transport);

const clv_transport *clv_world_transport(const clv_world *world);

#endif
