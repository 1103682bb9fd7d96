/* control_connect.c - opens the control connections: parses CLEAVE_CONTROL, listens, exchanges addresses, connects. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
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
    ADDRESSES = 16,    /* of a process, at most */
    CONNECT_MS = 1000, /* at one address */
    COME_S = 15,       /* until all have come */
    MIN_HEARTBEAT_MS = 100,
    HEARTBEAT_MS_PER_PROCESS = 5, /* longer listen_spec there are many */
};

typedef struct address {
    int family; /* AF_INET, AF_INET6 */
    unsigned char bytes[16];
    int prefix; /* bits that the network has in common */
} address;

/* What a process tells the others over MPI. */
typedef struct endpoint {
    int port, n_addresses;
    address addresses[ADDRESSES];
    unsigned char token[CLV_CONTROL_TOKEN];
} endpoint;

/* What clv_job_options.control says: INTERFACE[:PORT[-PORT]]. */
typedef struct listen_spec {
    char interface[IF_NAMESIZE]; /* "": any */
    int first_port, last_port;   /* 0: any */
} listen_spec;

static clv_status parse(listen_spec *out, const char *how, clv_error *err)
{
    size_t name = strcspn(how, ":");
    const char *ports = how + name;
    int end = 0;
    *out = (listen_spec){.first_port = 0};
    bool ok = name < sizeof out->interface;
    if (ok)
        memcpy(out->interface, how, name);
    if (ok && *ports) {
        ok = sscanf(ports, ":%5d%n", &out->first_port, &end) == 1;
        out->last_port = out->first_port;
        if (ok && ports[end] == '-') {
            int more = 0;
            ok = sscanf(ports + end, "-%5d%n", &out->last_port, &more) == 1;
            end += more;
        }
        ok = ok && !ports[end] && 1 <= out->first_port && out->first_port <= out->last_port && out->last_port < 65536;
    }
    if (ok)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    CLV_CONTROL_OPTION
                    " is '%s'; valid: off, or INTERFACE:PORT-PORT, of which either may be left out: eth0, "
                    ":7000-7100, eth0:7000",
                    how);
}

clv_status clv_control_check_spec(const char *how, clv_error *err)
{
    listen_spec w;
    if (strlen(how) >= CLV_CONTROL_SPEC_BYTES)
        return clv_fail(err, CLV_EINVAL, CLV_CONTROL_OPTION " is longer than %d characters",
                        CLV_CONTROL_SPEC_BYTES - 1);
    return strcmp(how, "off") == 0 ? CLV_OK : parse(&w, how, err);
}

/* ---- addresses ---- */

static int bits_of(const struct sockaddr *mask)
{
    const unsigned char *bytes =
        mask->sa_family == AF_INET6
            ? ((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr.s6_addr
            : (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
    int n = mask->sa_family == AF_INET6 ? 16 : 4, bits = 0;
    for (int i = 0; i < n; i++)
        bits += __builtin_popcount(bytes[i]);
    return bits;
}

/* False: not one to be reached at from another host. */
static bool take_address(address *out, const struct ifaddrs *i, const listen_spec *w)
{
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK) || (family != AF_INET && family != AF_INET6) ||
        (w->interface[0] && strcmp(w->interface, i->ifa_name) != 0))
        return false;
    *out = (address){.family = family, .prefix = i->ifa_netmask ? bits_of(i->ifa_netmask) : 0};
    if (family == AF_INET) {
        memcpy(out->bytes, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, 4);
        return true;
    }
    const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
    memcpy(out->bytes, a, sizeof *a);
    return !IN6_IS_ADDR_LINKLOCAL(a);
}

static int find_addresses(address *out, const listen_spec *w)
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (int v6 = 0; v6 < 2; v6++) /* the older family first */
        for (const struct ifaddrs *i = all; i && n < ADDRESSES; i = i->ifa_next)
            if (take_address(&out[n], i, w) && (out[n].family == AF_INET6) == (v6 == 1))
                n++;
    freeifaddrs(all);
    return n;
}

static void print_address(char *out, size_t size, const address *a)
{
    if (!inet_ntop(a->family, a->bytes, out, (socklen_t)size))
        snprintf(out, size, "?");
}

static bool same_network(const address *a, const address *b)
{
    int bits = a->prefix < b->prefix ? a->prefix : b->prefix;
    if (a->family != b->family || bits == 0 || memcmp(a->bytes, b->bytes, (size_t)(bits / 8)) != 0)
        return false;
    return bits % 8 == 0 || (a->bytes[bits / 8] ^ b->bytes[bits / 8]) >> (8 - bits % 8) == 0;
}

static socklen_t to_sockaddr(struct sockaddr_storage *out, const address *a, int port)
{
    memset(out, 0, sizeof *out);
    out->ss_family = (sa_family_t)a->family;
    if (a->family == AF_INET6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
        v6->sin6_port = htons((uint16_t)port);
        memcpy(&v6->sin6_addr, a->bytes, 16);
        return sizeof *v6;
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    v4->sin_port = htons((uint16_t)port);
    memcpy(&v4->sin_addr, a->bytes, 4);
    return sizeof *v4;
}

static const address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};

/* Whether all processes are in one network namespace: then nobody else need reach this one. */
static bool all_on_one_host(const clv_job *job)
{
    for (int p = 0; p < job->info.processes; p++)
        if (job->members[p].network != job->members[job->info.process].network)
            return false;
    return true;
}

/* ---- listening ---- */

/* -1: errno says why. A socket that is bound to a port may not listen there (others, bound as well, do by now), and
 * cannot be bound to another. */
static int listen_at_port(const address *a, int port, int backlog)
{
    struct sockaddr_storage to;
    socklen_t size = to_sockaddr(&to, a, port);
    int one = 1, zero = 0, fd = socket(a->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, (const struct sockaddr *)&to, size) == 0 && listen(fd, backlog) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

static int listen_at(const address *a, const listen_spec *w, int backlog)
{
    for (int port = w->first_port;; port++) {
        int fd = listen_at_port(a, port, backlog);
        if (fd >= 0 || errno != EADDRINUSE || port >= w->last_port)
            return fd;
    }
}

int clv_control_listen_loopback(int first_port, int last_port, int backlog)
{
    return listen_at(&loopback, &(listen_spec){.first_port = first_port, .last_port = last_port}, backlog);
}

static int port_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return 0;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

static clv_status listen_for_others(clv_control *c, endpoint *mine, const listen_spec *w, clv_error *err)
{
    static const address any6 = {.family = AF_INET6}, any = {.family = AF_INET};
    if (w->interface[0] && if_nametoindex(w->interface) == 0)
        return clv_fail(err, CLV_ENOTFOUND,
                        CLV_CONTROL_OPTION " names the interface '%s', which this host does not have", w->interface);
    if (all_on_one_host(c->job)) {
        c->listener = clv_control_listen_loopback(w->first_port, w->last_port, c->n);
    } else {
        mine->n_addresses = find_addresses(mine->addresses, w);
        if (mine->n_addresses == 0)
            return clv_fail(err, CLV_ENOTFOUND, "no address for other hosts at %s%s; valid: an interface that is up",
                            w->interface[0] ? "interface " : "any interface", w->interface);
        c->listener = listen_at(w->interface[0] ? &mine->addresses[0] : &any6, w, c->n);
        if (c->listener < 0 && !w->interface[0])
            c->listener = listen_at(&any, w, c->n);
    }
    if (c->listener < 0)
        return clv_fail(err, CLV_EPEER, "no port to listen at for the other processes, of %d to %d (0: any): %s",
                        w->first_port, w->last_port, strerror(errno));
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

/* Both show that they are who they say; -1: nobody, or another, is there. */
static int connect_at(const clv_control *c, int process, const address *a, int port)
{
    struct sockaddr_storage to;
    clv_control_handshake mine = {.is = CLV_CONTROL_MAGIC, .from = c->me, .version = CLV_CONTROL_VERSION}, theirs;
    int one = 1, code = 0, fd = socket(a->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = to_sockaddr(&to, a, port), code_size = sizeof code;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memcpy(mine.token, c->peer_tokens[process], sizeof mine.token);
    bool ok = connect(fd, (const struct sockaddr *)&to, size) == 0 || errno == EINPROGRESS;
    ok = ok && poll_socket(fd, POLLOUT, CONNECT_MS) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_size) == 0 &&
         code == 0 && send(fd, &mine, sizeof mine, MSG_NOSIGNAL) == (ssize_t)sizeof mine &&
         read_handshake(&theirs, fd) && memcmp(theirs.is, mine.is, sizeof mine.is) == 0 && theirs.from == process &&
         memcmp(theirs.token, c->token, sizeof c->token) == 0;
    if (ok)
        return fd;
    close(fd);
    return -1;
}

static bool is_own(const address *a, const endpoint *mine)
{
    for (int i = 0; i < mine->n_addresses; i++)
        if (mine->addresses[i].family == a->family && memcmp(mine->addresses[i].bytes, a->bytes, 16) == 0)
            return true;
    return false;
}

static bool is_near(const address *a, const endpoint *mine)
{
    for (int i = 0; i < mine->n_addresses; i++)
        if (same_network(a, &mine->addresses[i]))
            return true;
    return false;
}

/* At each address that may be it: loopback beside; the networks that this process is in; then the others. */
static int connect_to(const clv_control *c, int process, const endpoint *mine, const endpoint *theirs)
{
    const clv_job_member *members = c->job->members;
    int fd = -1;
    if (members[process].network == members[c->me].network && all_on_one_host(c->job))
        return connect_at(c, process, &loopback, theirs->port);
    for (int near = 1; near >= 0; near--)
        for (int i = 0; fd < 0 && i < theirs->n_addresses; i++) {
            const address *a = &theirs->addresses[i];
            bool beside = members[process].network == members[c->me].network;
            if (is_near(a, mine) == (near == 1) && (beside || !is_own(a, mine)))
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
        print_address(one, sizeof one, &theirs->addresses[i]);
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
    const struct timespec until = clv_wall_time_after(COME_S * INT64_C(1000000000));
    int code = 0, missing = -1;
    pthread_mutex_lock(&c->lock);
    while (c->n_awaited > 0 && code == 0)
        code = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    for (int p = 0; c->n_awaited > 0 && p < c->n && missing < 0; p++)
        missing = p != c->me && atomic_load(&c->peers[p].state) == CLV_PEER_AWAITED ? p : -1;
    pthread_mutex_unlock(&c->lock);
    return missing < 0 ? CLV_OK : fail_missing(c, missing, &endpoints[c->me], err);
}

/* ---- both ---- */

static clv_control *new_control(clv_job *job)
{
    int pulse_ms = HEARTBEAT_MS_PER_PROCESS * job->info.processes;
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
    c->heartbeat_ns = (pulse_ms > MIN_HEARTBEAT_MS ? pulse_ms : MIN_HEARTBEAT_MS) * INT64_C(1000000);
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

static clv_status fill_endpoint(clv_control *c, endpoint *mine, const char *how, clv_error *err)
{
    listen_spec w;
    if (!c || !c->peer_tokens || !c->peers || !c->answered || !c->pending || !c->polled || !c->polled_process ||
        c->wake_fd < 0)
        return clv_fail_memory(err, "the connections of a job", sizeof *c);
    CLV_TRY(parse(&w, how, err));
    if (getrandom(c->token, sizeof c->token, 0) != (ssize_t)sizeof c->token)
        return clv_fail(err, CLV_EIO, "no random numbers: %s", strerror(errno));
    memcpy(mine->token, c->token, sizeof c->token);
    return listen_for_others(c, mine, &w, err);
}

static clv_status start_thread(clv_control *c, bool *started, clv_error *err)
{
    int code = clv_thread_start(&c->thread, NULL, clv_control_thread_main, c);
    *started = code == 0;
    return code == 0 ? CLV_OK : clv_fail(err, CLV_ENOMEM, "a job's thread could not be started: %s", strerror(code));
}

static clv_status make(clv_control *c, const endpoint *endpoints, bool *started, clv_error *err)
{
    for (int p = 0; p < c->n; p++)
        memcpy(c->peer_tokens[p], endpoints[p].token, sizeof endpoints[p].token);
    CLV_TRY(start_thread(c, started, err));
    for (int p = 0; p < c->n; p++)
        if (endpoints[p].port == 0) /* it says itself why */
            return clv_fail(err, CLV_EPEER, "process %d of %d does not listen", p, c->n);
    return connect_all(c, endpoints, err);
}

clv_status clv_control_open(clv_control **out, clv_job *job, const char *how, clv_error *err)
{
    size_t n = (size_t)job->info.processes;
    clv_error why = {0};
    bool started = false;
    if (n == 1 || strcmp(how, "off") == 0)
        return CLV_OK;
    clv_control *c = new_control(job);
    endpoint *endpoints = calloc(n, sizeof *endpoints), mine = {.port = 0};
    clv_status status =
        endpoints ? fill_endpoint(c, &mine, how, &why) : clv_fail_memory(&why, "a job's endpoints", sizeof *endpoints);
    clv_status told = endpoints ? clv_job_all_gather(job, &mine, endpoints, sizeof mine, err) : CLV_ENOMEM;
    if (status == CLV_OK && told == CLV_OK)
        status = make(c, endpoints, &started, &why);
    if (told == CLV_OK)
        status = clv_job_agree(job, status, &why);
    if (!job->poisoned)
        free(endpoints);
    if (status == CLV_OK && told == CLV_OK) {
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
    return status != CLV_OK ? status : told;
}
