/* control_connect.c - opens the control connections: parses CLEAVE_CONTROL, listens, exchanges addresses, connects. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/threads/thread.h"
#include "comm/control/control_internal.h"

enum {
    MAX_ADDRESSES = 16, /* of a process */
    CONNECT_MS = 1000,  /* timeout at one address */
    CONNECT_ALL_S = 15, /* timeout until all peers have connected */
    MIN_HEARTBEAT_MS = 100,
    HEARTBEAT_MS_PER_PROCESS = 5, /* jobs of many processes have fewer heartbeats */
};

typedef struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    int prefix; /* length of the network's prefix in bits */
} address;

/* Where a process listens; sent to the others over MPI. */
typedef struct endpoint {
    int port, n_addresses;
    address addresses[MAX_ADDRESSES];
    unsigned char token[CLV_CONTROL_TOKEN];
} endpoint;

/* clv_job_options.control: INTERFACE[:PORT[-PORT]]. */
typedef struct listen_spec {
    char interface[IF_NAMESIZE]; /* "": any */
    int first_port, last_port;   /* 0: any */
} listen_spec;

static clv_status parse_spec(listen_spec *out, const char *spec, clv_error *err)
{
    size_t name = strcspn(spec, ":");
    const char *ports = spec + name;
    int end = 0, more = 0;
    *out = (listen_spec){.first_port = 0};
    bool ok = name < sizeof out->interface;
    if (ok)
        memcpy(out->interface, spec, name);
    if (ok && *ports) {
        ok = sscanf(ports, ":%5d%n", &out->first_port, &end) == 1;
        out->last_port = out->first_port;
        if (ok && ports[end] == '-')
            ok = sscanf(ports + end, "-%5d%n", &out->last_port, &more) == 1;
        ok = ok && !ports[end + more] && 1 <= out->first_port && out->first_port <= out->last_port &&
             out->last_port < 65536;
    }
    if (ok)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    CLV_CONTROL_OPTION " is '%s'; valid: off, or INTERFACE:PORT-PORT, either part optional: eth0, "
                                       ":7000-7100, eth0:7000",
                    spec);
}

clv_status clv_control_check_spec(const char *spec, clv_error *err)
{
    listen_spec unused;
    if (strlen(spec) >= CLV_CONTROL_SPEC_BYTES)
        return clv_fail(err, CLV_EINVAL, CLV_CONTROL_OPTION " is longer than %d characters",
                        CLV_CONTROL_SPEC_BYTES - 1);
    return strcmp(spec, "off") == 0 ? CLV_OK : parse_spec(&unused, spec, err);
}

/* ---- addresses ---- */

static const unsigned char *bytes_of(const address *a)
{
    return a->any.sa_family == AF_INET6 ? a->v6.sin6_addr.s6_addr : (const unsigned char *)&a->v4.sin_addr;
}

static int size_of(const address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6.sin6_addr : sizeof a->v4.sin_addr;
}

static socklen_t sockaddr_size(const address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

static void copy_sockaddr(address *out, const struct sockaddr *from)
{
    *out = (address){.any.sa_family = from->sa_family};
    memcpy(&out->any, from, sockaddr_size(out));
}

static address with_port(address a, int port)
{
    *(a.any.sa_family == AF_INET6 ? &a.v6.sin6_port : &a.v4.sin_port) = htons((uint16_t)port);
    return a;
}

/* Copies an interface's address; false: other hosts cannot connect to it. */
static bool read_address(address *out, const struct ifaddrs *i, const listen_spec *spec)
{
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK) || (family != AF_INET && family != AF_INET6) ||
        (spec->interface[0] && strcmp(spec->interface, i->ifa_name) != 0))
        return false;
    copy_sockaddr(out, i->ifa_addr);
    if (i->ifa_netmask) {
        address mask;
        copy_sockaddr(&mask, i->ifa_netmask);
        for (int b = 0; b < size_of(&mask); b++)
            out->prefix += __builtin_popcount(bytes_of(&mask)[b]);
    }
    return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr);
}

static int list_addresses(address *out, const listen_spec *spec)
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (int v6 = 0; v6 < 2; v6++) /* IPv4 first */
        for (const struct ifaddrs *i = all; i && n < MAX_ADDRESSES; i = i->ifa_next)
            if (read_address(&out[n], i, spec) && (out[n].any.sa_family == AF_INET6) == (v6 == 1))
                n++;
    freeifaddrs(all);
    return n;
}

static bool same_network(const address *a, const address *b)
{
    int bits = a->prefix < b->prefix ? a->prefix : b->prefix;
    if (a->any.sa_family != b->any.sa_family || bits == 0 || memcmp(bytes_of(a), bytes_of(b), (size_t)bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (bytes_of(a)[bits / 8] ^ bytes_of(b)[bits / 8]) >> (8 - bits % 8) == 0;
}

static address loopback_address(void)
{
    return (address){.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
}

/* Whether all processes are in one network namespace, where loopback connects them. */
static bool all_on_one_host(const clv_job *job)
{
    for (int p = 0; p < job->info.processes; p++)
        if (job->members[p].network != job->members[job->info.process].network)
            return false;
    return true;
}

/* ---- listening ---- */

/* -1: see errno. Each port needs a new socket: listen may fail on one that is bound, and it cannot be bound again. */
static int listen_at_port(const address *a, int port, int backlog)
{
    const address to = with_port(*a, port);
    int one = 1, zero = 0, fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, &to.any, sockaddr_size(&to)) == 0 && listen(fd, backlog) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

static int listen_at(const address *a, const listen_spec *spec, int backlog)
{
    for (int port = spec->first_port;; port++) {
        int fd = listen_at_port(a, port, backlog);
        if (fd >= 0 || errno != EADDRINUSE || port >= spec->last_port)
            return fd;
    }
}

int clv_control_listen_loopback(int first_port, int last_port, int backlog)
{
    const address loopback = loopback_address();
    return listen_at(&loopback, &(listen_spec){.first_port = first_port, .last_port = last_port}, backlog);
}

static int port_of(int fd)
{
    address a = {.prefix = 0};
    socklen_t size = sizeof a;
    if (getsockname(fd, &a.any, &size) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static clv_status listen_for_others(clv_control *c, endpoint *mine, const listen_spec *spec, clv_error *err)
{
    static const address any6 = {.any.sa_family = AF_INET6}, any = {.any.sa_family = AF_INET};
    if (spec->interface[0] && if_nametoindex(spec->interface) == 0)
        return clv_fail(err, CLV_ENOTFOUND,
                        CLV_CONTROL_OPTION " names the interface '%s', which this host does not have", spec->interface);
    if (all_on_one_host(c->job)) {
        c->listener = clv_control_listen_loopback(spec->first_port, spec->last_port, c->n);
    } else {
        mine->n_addresses = list_addresses(mine->addresses, spec);
        if (mine->n_addresses == 0)
            return clv_fail(err, CLV_ENOTFOUND, "no address for other hosts at %s%s; valid: an interface that is up",
                            spec->interface[0] ? "interface " : "any interface", spec->interface);
        c->listener = listen_at(spec->interface[0] ? &mine->addresses[0] : &any6, spec, c->n);
        if (c->listener < 0 && !spec->interface[0])
            c->listener = listen_at(&any, spec, c->n);
    }
    if (c->listener < 0)
        return clv_fail(err, CLV_EPEER, "no port to listen at for the other processes, of %d to %d (0: any): %s",
                        spec->first_port, spec->last_port, strerror(errno));
    mine->port = port_of(c->listener);
    return CLV_OK;
}

/* ---- connecting ---- */

static bool poll_socket(int fd, short events, int ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&p, 1, ms);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static bool read_handshake(clv_control_handshake *out, int fd)
{
    for (size_t done = 0; done < sizeof *out;) {
        if (!poll_socket(fd, POLLIN, CONNECT_MS))
            return false;
        ssize_t n = recv(fd, (char *)out + done, sizeof *out - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Connects and exchanges handshakes; -1: nobody is there, or its token is wrong. */
static int connect_at(const clv_control *c, int process, const address *a, int port)
{
    const address to = with_port(*a, port);
    clv_control_handshake mine = {.is = CLV_CONTROL_MAGIC, .from = c->me, .version = CLV_CONTROL_VERSION}, theirs;
    int one = 1, code = 0, fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t code_size = sizeof code;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memcpy(mine.token, c->peer_tokens[process], sizeof mine.token);
    bool ok = connect(fd, &to.any, sockaddr_size(&to)) == 0 || errno == EINPROGRESS;
    ok = ok && poll_socket(fd, POLLOUT, CONNECT_MS) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_size) == 0 &&
         code == 0 && send(fd, &mine, sizeof mine, MSG_NOSIGNAL) == (ssize_t)sizeof mine &&
         read_handshake(&theirs, fd) && memcmp(theirs.is, mine.is, sizeof mine.is) == 0 && theirs.from == process &&
         memcmp(theirs.token, c->token, sizeof c->token) == 0;
    if (ok)
        return fd;
    close(fd);
    return -1;
}

/* Whether the process has this address, or, with `network`, one in its network. */
static bool has_address(const endpoint *mine, const address *a, bool network)
{
    for (int i = 0; i < mine->n_addresses; i++) {
        const address *b = &mine->addresses[i];
        if (network ? same_network(a, b)
                    : a->any.sa_family == b->any.sa_family && memcmp(bytes_of(a), bytes_of(b), (size_t)size_of(a)) == 0)
            return true;
    }
    return false;
}

/* Tries loopback if all are on one host; else the peer's addresses, first those in this process's networks. */
static int connect_to(const clv_control *c, int process, const endpoint *mine, const endpoint *theirs)
{
    const address loopback = loopback_address();
    bool same_host = c->job->members[process].network == c->job->members[c->me].network;
    int fd = -1;
    if (all_on_one_host(c->job))
        return connect_at(c, process, &loopback, theirs->port);
    for (int near = 1; near >= 0; near--)
        for (int i = 0; fd < 0 && i < theirs->n_addresses; i++) {
            const address *a = &theirs->addresses[i];
            if (has_address(mine, a, true) == (near == 1) && (same_host || !has_address(mine, a, false)))
                fd = connect_at(c, process, a, theirs->port);
        }
    return fd;
}

static clv_status fail_missing(const clv_control *c, int process, const endpoint *theirs, clv_error *err)
{
    char me[160], other[160], at[240] = "127.0.0.1";
    size_t used = 0;
    for (int i = 0; i < theirs->n_addresses && used + INET6_ADDRSTRLEN + 2 < sizeof at; i++) {
        char one[INET6_ADDRSTRLEN];
        const address *a = &theirs->addresses[i];
        if (!inet_ntop(a->any.sa_family, bytes_of(a), one, sizeof one))
            snprintf(one, sizeof one, "?");
        used += (size_t)snprintf(at + used, sizeof at - used, "%s%s", used ? ", " : "", one);
    }
    clv_job_describe_process(me, sizeof me, c->job, process > c->me ? process : c->me);
    clv_job_describe_process(other, sizeof other, c->job, process > c->me ? c->me : process);
    return clv_fail(
        err, CLV_EPEER,
        "%s does not reach %s by TCP at %s, port %d; open it, choose another by CLEAVE_CONTROL=IFACE:PORT-PORT, "
        "or go without by CLEAVE_CONTROL=off",
        me, other, at, theirs->port);
}

static clv_status connect_all(clv_control *c, const endpoint *endpoints, clv_error *err)
{
    for (int p = 0; p < c->me; p++) {
        int fd = connect_to(c, p, &endpoints[c->me], &endpoints[p]);
        if (fd < 0)
            return fail_missing(c, p, &endpoints[p], err);
        pthread_mutex_lock(&c->lock);
        clv_control_add_peer(c, p, fd);
        pthread_mutex_unlock(&c->lock);
        clv_control_wake(c);
    }
    const struct timespec until = clv_wall_time_after(CONNECT_ALL_S * INT64_C(1000000000));
    int code = 0, missing = -1;
    pthread_mutex_lock(&c->lock);
    while (c->n_awaited > 0 && code == 0)
        code = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    for (int p = 0; c->n_awaited > 0 && p < c->n && missing < 0; p++)
        missing = p != c->me && atomic_load(&c->peers[p].state) == CLV_PEER_AWAITED ? p : -1;
    pthread_mutex_unlock(&c->lock);
    return missing < 0 ? CLV_OK : fail_missing(c, missing, &endpoints[c->me], err);
}

/* ---- opening ---- */

static clv_control *new_control(clv_job *job)
{
    int heartbeat_ms = HEARTBEAT_MS_PER_PROCESS * job->info.processes;
    size_t n = (size_t)job->info.processes;
    clv_control *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->job = job;
    c->n = job->info.processes;
    c->me = job->info.process;
    c->n_awaited = c->n - 1;
    c->lost_process = -1;
    c->listener = -1;
    c->heartbeat_ns = (heartbeat_ms > MIN_HEARTBEAT_MS ? heartbeat_ms : MIN_HEARTBEAT_MS) * INT64_C(1000000);
    c->n_pending = c->n + CLV_CONTROL_MAX_PENDING;
    c->peer_tokens = calloc(n, sizeof *c->peer_tokens);
    c->peers = calloc(n, sizeof *c->peers);
    c->answered = calloc(n, sizeof *c->answered);
    c->pending = calloc((size_t)c->n_pending, sizeof *c->pending);
    c->polled = calloc(2 + n + (size_t)c->n_pending, sizeof *c->polled);
    c->polled_process = calloc(2 + n + (size_t)c->n_pending, sizeof *c->polled_process);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int p = 0; c->peers && p < c->n; p++)
        c->peers[p].fd = -1;
    for (int s = 0; c->pending && s < c->n_pending; s++)
        c->pending[s].fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->query_lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

static clv_status fill_endpoint(clv_control *c, endpoint *mine, const char *spec, clv_error *err)
{
    listen_spec listen;
    if (!c || !c->peer_tokens || !c->peers || !c->answered || !c->pending || !c->polled || !c->polled_process ||
        c->wake_fd < 0)
        return clv_fail_memory(err, "the connections of a job", sizeof *c);
    CLV_TRY(parse_spec(&listen, spec, err));
    if (getrandom(c->token, sizeof c->token, 0) != (ssize_t)sizeof c->token)
        return clv_fail(err, CLV_EIO, "no random numbers: %s", strerror(errno));
    memcpy(mine->token, c->token, sizeof c->token);
    return listen_for_others(c, mine, &listen, err);
}

static clv_status start_thread(clv_control *c, bool *started, clv_error *err)
{
    int code = clv_thread_start(&c->thread, NULL, clv_control_thread_main, c);
    *started = code == 0;
    return code == 0 ? CLV_OK : clv_fail(err, CLV_ENOMEM, "a job's thread could not be started: %s", strerror(code));
}

static clv_status connect_mesh(clv_control *c, const endpoint *endpoints, bool *started, clv_error *err)
{
    for (int p = 0; p < c->n; p++)
        memcpy(c->peer_tokens[p], endpoints[p].token, sizeof endpoints[p].token);
    CLV_TRY(start_thread(c, started, err));
    for (int p = 0; p < c->n; p++)
        if (endpoints[p].port == 0) /* that process reports why */
            return clv_fail(err, CLV_EPEER, "process %d of %d does not listen", p, c->n);
    return connect_all(c, endpoints, err);
}

clv_status clv_control_open(clv_control **out, clv_job *job, const char *spec, clv_error *err)
{
    clv_error why = {0};
    bool started = false;
    if (job->info.processes == 1 || strcmp(spec, "off") == 0)
        return CLV_OK;
    clv_control *c = new_control(job);
    endpoint mine = {.port = 0};
    void *endpoints;
    clv_status status = fill_endpoint(c, &mine, spec, &why);
    clv_status gathered = clv_job_all_gather(&endpoints, job, &mine, sizeof mine, err);
    if (status == CLV_OK && gathered == CLV_OK)
        status = connect_mesh(c, endpoints, &started, &why);
    if (gathered == CLV_OK)
        status = clv_job_agree(job, status, &why);
    free(endpoints);
    if (status == CLV_OK && gathered == CLV_OK) {
        clv_control_register_atfork(c);
        *out = c;
        return CLV_OK;
    }
    if (started)
        clv_control_close(c, NULL);
    else
        clv_control_free(c);
    if (err && err->code == CLV_OK)
        *err = why;
    return status != CLV_OK ? status : gathered;
}
