/* parallel.c - runs parts of a plan search on its threads. */
#include <stdatomic.h>

#include "base/threads/thread.h"
#include "models/plan/search/search.h"

enum { MOST_THREADS = 64 };

typedef struct job {
    clv_plan_search *search;
    void (*run)(clv_plan_search *search, void *arg, int i);
    void *arg;
    int n;
    atomic_int next;
} job;

static void *work(void *arg)
{
    job *j = arg;
    for (int i = atomic_fetch_add(&j->next, 1); i < j->n; i = atomic_fetch_add(&j->next, 1))
        j->run(j->search, j->arg, i);
    return NULL;
}

void clv_search_run_all(clv_plan_search *search, void (*run)(clv_plan_search *, void *, int), void *arg, int n)
{
    pthread_t threads[MOST_THREADS];
    job j = {.search = search, .run = run, .arg = arg, .n = n};
    int started = 0;
    while (started < search->threads - 1 && started < n - 1 && clv_thread_start(&threads[started], NULL, work, &j) == 0)
        started++;
    work(&j);
    for (int t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
}
