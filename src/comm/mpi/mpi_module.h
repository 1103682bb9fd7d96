/* mpi_module.h - ABI-neutral table of the MPI calls that cleave uses; a loadable module per MPI implementation fills
 * it. Codes are MPI's: 0 is success. One thread at a time calls.
 */
#ifndef CLEAVE_COMM_MPI_MPI_MODULE_H
#define CLEAVE_COMM_MPI_MPI_MODULE_H

#include <stddef.h>
#include <stdint.h>

enum {
    CLV_MPI_VERSION = 4,                 /* of the table: a module of another is not used */
    CLV_MPI_ANY_SOURCE = -1,             /* from whichever process */
    CLV_MPI_MAX_MESSAGE_BYTES = 1 << 30, /* of a message: MPI counts in int */
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
    int most_tag; /* tags are 0 to this */
} clv_mpi_process_info;

typedef struct clv_mpi {
    int version;
    const char *name; /* "openmpi" */
    /* Initialises MPI unless the program has, and takes a communicator of all processes. Not 0: `why` says why not. */
    int (*join)(clv_mpi_process_info *out, clv_mpi_comm *comm, char *why, size_t size);
    /* Gives back the communicator and finalises MPI, if join initialised it: waits for all processes. */
    int (*leave)(clv_mpi_comm comm);
    int (*send)(clv_mpi_request *out, clv_mpi_comm comm, const void *data, int64_t bytes, int to, int tag);
    int (*receive)(clv_mpi_request *out, clv_mpi_comm comm, void *data, int64_t bytes, int from, int tag);
    /* A message that no receive was asked for yet: from whom, its tag and size. */
    int (*probe)(clv_mpi_comm comm, int *found, int *from, int *tag, int64_t *bytes);
    int (*copy)(clv_mpi_request *out, clv_mpi_comm *copy, clv_mpi_comm comm); /* of all processes, in the same order */
    int (*test)(clv_mpi_request *request, int *done);
    int (*peek)(const clv_mpi_request *request, int *done); /* test, after which it is to be tested all the same */
    int (*cancel)(clv_mpi_request *request);                /* test says when it has ended */
    int (*free)(clv_mpi_comm comm);
    void (*text)(int code, char *out, size_t size);
} clv_mpi;

/* What a module exports: clv_mpi_module. */
typedef const clv_mpi *clv_mpi_module_fn(void);

#endif
