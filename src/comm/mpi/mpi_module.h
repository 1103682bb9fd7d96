/* mpi_module.h - ABI-neutral table of the MPI calls that cleave uses; a loadable module per MPI implementation fills
 * it. Codes are MPI's: 0 is success. One thread at a time calls.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CLV_MPI_VERSION = 4, /* of the table; modules of other versions are refused */
    CLV_MPI_ANY_SOURCE = -1,
    CLV_MPI_MAX_MESSAGE_BYTES = 1 << 30, /* MPI counts in int */
};

/* Hold an MPI_Comm and an MPI_Request, whatever these are. */
typedef struct clv_mpi_comm {
    uint64_t word;
} clv_mpi_comm;
typedef struct clv_mpi_request {
    uint64_t word;
} clv_mpi_request;

typedef struct clv_mpi_process_info {
    int process, processes;
    int max_tag; /* tags are 0 to this */
} clv_mpi_process_info;

typedef struct clv_mpi {
    int version;
    const char *name; /* "openmpi" */
    /* Initialises MPI unless the program has, and makes a communicator of all processes. Not 0: see `why`. */
    int (*join)(clv_mpi_process_info *out, clv_mpi_comm *comm, char *why, size_t size);
    /* Frees the communicator and finalises MPI, if join initialised it: waits for all processes. */
    int (*leave)(clv_mpi_comm comm);
    int (*send)(clv_mpi_request *out, clv_mpi_comm comm, const void *data, int64_t bytes, int to, int tag);
    int (*receive)(clv_mpi_request *out, clv_mpi_comm comm, void *data, int64_t bytes, int from, int tag);
    /* Finds a message for which no receive is posted: its source, tag and size. */
    int (*probe)(clv_mpi_comm comm, int *found, int *from, int *tag, int64_t *bytes);
    int (*copy)(clv_mpi_request *out, clv_mpi_comm *copy, clv_mpi_comm comm); /* MPI_Comm_idup */
    int (*test)(clv_mpi_request *request, int *done);
    int (*peek)(const clv_mpi_request *request, int *done); /* like test, but does not free the request */
    int (*cancel)(clv_mpi_request *request);                /* it has ended when test says so */
    int (*free)(clv_mpi_comm comm);
    void (*text)(int code, char *out, size_t size);
} clv_mpi;

/* The function that a module exports as clv_mpi_module. */
typedef const clv_mpi *clv_mpi_module_fn(void);
