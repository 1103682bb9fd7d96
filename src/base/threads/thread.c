/* thread.c - library threads: pthread_create with all asynchronous signals blocked. */
#include "base/threads/thread.h"

#include <signal.h>

int clv_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, attr, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}
