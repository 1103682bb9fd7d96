/* control_atfork.c - closes the control connections in a forked child (pthread_atfork). */
#include "comm/control/control_internal.h"

/* That of this process, which is in one job at most: what runs at a fork is given nothing. */
static _Atomic(clv_control *) ours;

static void before_fork(void)
{
    clv_control *c = atomic_load(&ours);
    if (c)
        pthread_mutex_lock(&c->lock);
}

static void after_fork(void)
{
    clv_control *c = atomic_load(&ours);
    if (c)
        pthread_mutex_unlock(&c->lock);
}

/* The child is no process of the job; with the connections in its hands others would not see the parent's end. */
static void in_child(void)
{
    clv_control *c = atomic_load(&ours);
    if (!c)
        return;
    for (int p = 0; p < c->n; p++)
        clv_control_disconnect(&c->peers[p]);
    after_fork();
}

static void part_at_fork(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

void clv_control_register_atfork(clv_control *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    atomic_store(&ours, c);
    pthread_once(&once, part_at_fork);
}

void clv_control_unregister_atfork(const clv_control *c)
{
    clv_control *mine = (clv_control *)c;
    (void)atomic_compare_exchange_strong(&ours, &mine, NULL);
}
