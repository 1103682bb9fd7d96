/* mpi_module.c - loadable module cleave_mpi_NAME.so: implements the table of MPI calls; built once for each MPI. It
 * uses nothing of the library.
 */
#include "comm/mpi/mpi_module.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(MPI_Comm) <= sizeof(clv_mpi_comm), "a communicator fits");
_Static_assert(sizeof(MPI_Request) <= sizeof(clv_mpi_request), "a request fits");

/* MPI can be initialised only once per process. */
static bool joined, initialised, across_hosts;

/* Over TCP, MPICH's MPI_Finalize (4.0 on UCX) sometimes hangs: it waits for an answer of a process that is further in
 * MPI_Finalize and no longer receives. Its launchers accept processes that end without it. */
#ifdef MPICH_VERSION
enum { SKIP_FINALIZE_ACROSS_HOSTS = 1 };
#else
enum { SKIP_FINALIZE_ACROSS_HOSTS = 0 };
#endif

/* Open MPI's TCP asks for a large message by one that waits behind what goes the other way (PUT), so that messages of
 * both ways, which every collective has, follow one another. In fragments (SEND, 1) they do not. What is stated stays.
 */
static void send_both_ways_at_once(void)
{
#ifdef OPEN_MPI
    setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
#endif
}

static MPI_Comm to_comm(clv_mpi_comm comm)
{
    MPI_Comm c;
    memcpy(&c, &comm, sizeof c);
    return c;
}

static MPI_Request to_request(const clv_mpi_request *request)
{
    MPI_Request r;
    memcpy(&r, request, sizeof r);
    return r;
}

static int return_request(clv_mpi_request *out, MPI_Request r, int code)
{
    memcpy(out, &r, sizeof r);
    return code;
}

static void text(int code, char *out, size_t size)
{
    char message[MPI_MAX_ERROR_STRING + 1] = "";
    int length;
    if (MPI_Error_string(code, message, &length) != MPI_SUCCESS)
        snprintf(message, sizeof message, "error %d", code);
    snprintf(out, size, "%s", message);
}

/* MPI_THREAD_SERIALIZED is enough: the library calls from several threads, one at a time. */
static int initialise(char *why, size_t size)
{
    int before = 0, after = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&before);
    MPI_Finalized(&after);
    if (after)
        return snprintf(why, size, "MPI was finalized in this process, and cannot be initialized again");
    if (!before)
        send_both_ways_at_once();
    int code = before ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS)
        return snprintf(why, size, "MPI_Init_thread failed with %d", code);
    initialised = !before;
    if (level >= MPI_THREAD_SERIALIZED)
        return 0;
    return snprintf(why, size, "MPI was initialized without threads; valid: MPI_THREAD_SERIALIZED or MULTIPLE%s",
                    before ? " (the program called MPI_Init)" : "");
}

static int find_processes(clv_mpi_process_info *out, MPI_Comm all)
{
    MPI_Comm same_host;
    int *max_tag, found;
    int code = MPI_Comm_rank(all, &out->process);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(all, &out->processes);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(all, MPI_TAG_UB, &max_tag, &found);
    if (code == MPI_SUCCESS)
        out->max_tag = found ? *max_tag : 32767; /* the minimum that MPI guarantees */
    if (code == MPI_SUCCESS)
        code = MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, out->process, MPI_INFO_NULL, &same_host);
    if (code == MPI_SUCCESS) {
        int n = 0;
        code = MPI_Comm_size(same_host, &n);
        MPI_Comm_free(&same_host);
        across_hosts = n < out->processes;
    }
    return code;
}

static int join(clv_mpi_process_info *out, clv_mpi_comm *comm, char *why, size_t size)
{
    MPI_Comm all;
    if (joined)
        return snprintf(why, size, "this process has joined already");
    if (initialise(why, size))
        return 1;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &all);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN); /* inherited by its copies */
    if (code == MPI_SUCCESS)
        code = find_processes(out, all);
    if (code != MPI_SUCCESS) {
        text(code, why, size);
        return 1;
    }
    memcpy(comm, &all, sizeof all);
    joined = true;
    return 0;
}

static int free_comm(clv_mpi_comm comm)
{
    MPI_Comm c = to_comm(comm);
    return MPI_Comm_free(&c);
}

static int leave(clv_mpi_comm comm)
{
    int code = free_comm(comm);
    joined = false;
    bool ends = initialised && !(SKIP_FINALIZE_ACROSS_HOSTS && across_hosts);
    return code == MPI_SUCCESS && ends ? MPI_Finalize() : code;
}

static int send(clv_mpi_request *out, clv_mpi_comm comm, const void *data, int64_t bytes, int to, int tag)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, to_comm(comm), &r);
    return return_request(out, r, code);
}

static int receive(clv_mpi_request *out, clv_mpi_comm comm, void *data, int64_t bytes, int from, int tag)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from == CLV_MPI_ANY_SOURCE ? MPI_ANY_SOURCE : from, tag,
                         to_comm(comm), &r);
    return return_request(out, r, code);
}

static int probe(clv_mpi_comm comm, int *found, int *from, int *tag, int64_t *bytes)
{
    MPI_Status status;
    int count = 0;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, to_comm(comm), found, &status);
    if (code != MPI_SUCCESS || !*found)
        return code;
    *from = status.MPI_SOURCE;
    *tag = status.MPI_TAG;
    code = MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes = count;
    return code;
}

/* MPI writes the handle before the request is done, at the latest. */
static int copy(clv_mpi_request *out, clv_mpi_comm *to, clv_mpi_comm comm)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Comm_idup(to_comm(comm), (MPI_Comm *)(void *)to, &r);
    return return_request(out, r, code);
}

static int test(clv_mpi_request *request, int *done)
{
    MPI_Request r = to_request(request);
    int code = MPI_Test(&r, done, MPI_STATUS_IGNORE);
    return return_request(request, r, code);
}

static int peek(const clv_mpi_request *request, int *done)
{
    return MPI_Request_get_status(to_request(request), done, MPI_STATUS_IGNORE);
}

static int cancel(clv_mpi_request *request)
{
    MPI_Request r = to_request(request);
    int code = r == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Cancel(&r);
    return return_request(request, r, code);
}

static const clv_mpi module = {
    .version = CLV_MPI_VERSION,
    .name = CLV_MPI_NAME,
    .join = join,
    .leave = leave,
    .send = send,
    .receive = receive,
    .probe = probe,
    .copy = copy,
    .test = test,
    .peek = peek,
    .cancel = cancel,
    .free = free_comm,
    .text = text,
};

extern __attribute__((visibility("default"))) clv_mpi_module_fn clv_mpi_module;

const clv_mpi *clv_mpi_module(void)
{
    return &module;
}
