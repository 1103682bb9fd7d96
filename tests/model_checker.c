/* model_checker.c - see model_checker.h. */
#include "model_checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    LOCATIONS = 40,
    MESSAGES = 64,      /* stores a location, of one execution */
    STEPS = 4096,       /* of one execution */
    STACK_BYTES = 65536 /* of a thread */
};

/* What a thread knows: of each location the oldest store that it may read, of each thread the events before now. */
typedef struct view {
    uint8_t oldest[LOCATIONS];
    uint16_t clock[SCHEDULE_THREADS];
} view;

typedef struct message {
    uint32_t value;
    int thread, event; /* of the store; thread -1: the first value */
    view released;     /* what an acquire load takes over */
} message;

typedef struct location {
    const volatile void *at;
    const char *name;
    bool plain;
    int n;
    message m[MESSAGES];
    int last_ordered; /* the last sequentially consistent store */
    /* plain data: the last write, and each thread's last read */
    int writer;
    uint16_t written, read[SCHEDULE_THREADS];
} location;

typedef enum op_kind { OP_NONE, OP_LOAD, OP_CHANGE, OP_LOCK, OP_UNLOCK, OP_PAUSE, OP_SLEEP, OP_WAKE } op_kind;

/* A thread, and the access that it is about to make. */
typedef struct thread {
    ucontext_t context;
    char *stack;
    bool done;
    view view;
    uint16_t event;
    uint64_t history; /* of all that it read */
    op_kind op;
    location *of;
    memory_order order;
    uint32_t result;
    enum { CHANGE_STORE, CHANGE_EXCHANGE, CHANGE_ADD, CHANGE_COMPARE } how;
    uint32_t value, expected;
    bool changed;
    bool asleep, woken;
} thread;

typedef struct choice {
    int at, of;
} choice;

/* The exploration in hand: one at a time in a process. */
static struct {
    const schedule_case *c;
    schedule_result *result;
    ucontext_t scheduler;
    int current;
    thread threads[SCHEDULE_THREADS];
    int n_locations;
    location locations[LOCATIONS];
    int lock_owner; /* of the one lock; -1: none */
    view lock_view;
    int n_choices, depth;
    choice choices[STEPS];
    uint64_t *seen; /* a hash table of states, 0 where empty */
    size_t n_seen, room;
    char trace[SCHEDULE_THREADS * STEPS];
    size_t trace_length;
} now;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static void fault(const char *format, ...)
{
    if (now.result->fault[0])
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(now.result->fault, sizeof now.result->fault, format, args);
    va_end(args);
    size_t used = (size_t)n < sizeof now.result->fault ? (size_t)n : sizeof now.result->fault - 1;
    size_t room = sizeof now.result->fault - used, from = now.trace_length > room ? now.trace_length - room : 0;
    snprintf(now.result->fault + used, room, "; after:%s", now.trace + from);
}

static void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(now.trace + now.trace_length, sizeof now.trace - now.trace_length, format, args);
    va_end(args);
    if (n > 0 && now.trace_length + (size_t)n < sizeof now.trace)
        now.trace_length += (size_t)n;
}

/* ---- locations ---- */

static location *find(const volatile void *at)
{
    for (int i = 0; i < now.n_locations; i++)
        if (now.locations[i].at == at)
            return &now.locations[i];
    return NULL;
}

static location *add(const volatile void *at, const char *name)
{
    if (now.n_locations == LOCATIONS)
        abort();
    location *l = &now.locations[now.n_locations++];
    memset(l, 0, sizeof *l);
    l->at = at;
    l->name = name;
    l->writer = -1;
    return l;
}

void schedule_watch(const volatile void *word, const char *name)
{
    location *l = add(word, name);
    l->n = 1;
    l->m[0] = (message){.value = *(const volatile uint32_t *)word, .thread = -1};
}

void schedule_watch_data(const void *data, const char *name)
{
    add(data, name)->plain = true;
}

bool schedule_watches(const volatile void *word)
{
    return find(word) != NULL;
}

static void join(view *into, const view *from)
{
    for (int i = 0; i < now.n_locations; i++)
        if (from->oldest[i] > into->oldest[i])
            into->oldest[i] = from->oldest[i];
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        if (from->clock[i] > into->clock[i])
            into->clock[i] = from->clock[i];
}

/* ---- plain data: two accesses that nothing orders are found whichever comes first ---- */

static thread *running(void)
{
    return &now.threads[now.current];
}

void schedule_read(const void *data)
{
    location *l = find(data);
    thread *t = running();
    if (l->writer >= 0 && l->writer != now.current && t->view.clock[l->writer] < l->written)
        fault("thread %d reads %s while thread %d writes it", now.current, l->name, l->writer);
    l->read[now.current] = t->event;
}

void schedule_write(const void *data)
{
    location *l = find(data);
    thread *t = running();
    for (int i = 0; i < now.c->threads; i++)
        if (i != now.current && (t->view.clock[i] < l->read[i] || (l->writer == i && t->view.clock[i] < l->written)))
            fault("thread %d writes %s while thread %d uses it", now.current, l->name, i);
    l->writer = now.current;
    l->written = t->event;
}

void schedule_expect(bool holds, const char *what)
{
    if (!holds)
        fault("thread %d: %s", now.current, what);
}

/* ---- accesses: a thread says what it is about to do, and the scheduler does it ---- */

static void ask(op_kind op, location *of)
{
    thread *t = running();
    t->op = op;
    t->of = of;
    swapcontext(&t->context, &now.scheduler);
}

uint32_t schedule_load(const volatile void *word, memory_order order)
{
    running()->order = order;
    ask(OP_LOAD, find(word));
    return running()->result;
}

static uint32_t change(volatile void *word, int how, uint32_t value, memory_order order)
{
    thread *t = running();
    t->how = how;
    t->value = value;
    t->order = order;
    ask(OP_CHANGE, find(word));
    return t->result;
}

void schedule_store(volatile void *word, uint32_t value, memory_order order)
{
    change(word, CHANGE_STORE, value, order);
}

uint32_t schedule_exchange(volatile void *word, uint32_t value, memory_order order)
{
    return change(word, CHANGE_EXCHANGE, value, order);
}

uint32_t schedule_add(volatile void *word, uint32_t value, memory_order order)
{
    return change(word, CHANGE_ADD, value, order);
}

bool schedule_compare_exchange(volatile void *word, uint32_t *expected, uint32_t value, memory_order order)
{
    running()->expected = *expected;
    *expected = change(word, CHANGE_COMPARE, value, order);
    return running()->changed;
}

void schedule_lock(const void *lock)
{
    ask(OP_LOCK, NULL);
}

void schedule_unlock(const void *lock)
{
    ask(OP_UNLOCK, NULL);
}

void schedule_pause(void)
{
    ask(OP_PAUSE, NULL);
}

long schedule_clock(void)
{
    return now.c->clock ? now.c->clock(now.current) : 0;
}

void schedule_futex_wait(const volatile void *word, uint32_t value)
{
    running()->value = value;
    ask(OP_SLEEP, find(word));
}

void schedule_futex_wake(const volatile void *word)
{
    ask(OP_WAKE, find(word));
}

/* ---- what an access does ---- */

static bool acquires(memory_order order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

static bool releases(memory_order order)
{
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

/* The oldest store that the load in hand may return. */
static int oldest(const thread *t)
{
    int from = t->view.oldest[t->of - now.locations];
    return t->order == memory_order_seq_cst && t->of->last_ordered > from ? t->of->last_ordered : from;
}

static void read_message(thread *t, int i)
{
    const message *m = &t->of->m[i];
    t->view.oldest[t->of - now.locations] = (uint8_t)i;
    if (acquires(t->order))
        join(&t->view, &m->released);
    t->result = m->value;
    t->history =
        mix(mix(t->history, (uint64_t)(t->of - now.locations) << 32 | (uint64_t)(m->thread + 1) << 24), m->value);
    t->history = mix(t->history, (uint64_t)m->event);
}

/* A store, or a read-modify-write: that reads the last store, and carries on what its release has published. */
static void do_change(thread *t)
{
    location *l = t->of;
    int last = l->n - 1;
    bool modifies = t->how != CHANGE_STORE;
    if (modifies)
        read_message(t, last);
    t->changed = t->how != CHANGE_COMPARE || l->m[last].value == t->expected;
    if (!t->changed)
        return;
    if (l->n == MESSAGES)
        abort();
    message *m = &l->m[l->n];
    *m = (message){.value = t->how == CHANGE_ADD ? l->m[last].value + t->value : t->value,
                   .thread = (int)(t - now.threads),
                   .event = t->event};
    t->view.oldest[l - now.locations] = (uint8_t)l->n;
    if (releases(t->order))
        m->released = t->view;
    if (modifies)
        join(&m->released, &l->m[last].released);
    m->released.oldest[l - now.locations] = (uint8_t)l->n;
    if (t->order == memory_order_seq_cst)
        l->last_ordered = l->n;
    l->n++;
}

static void wake_all(const location *l)
{
    for (int i = 0; i < now.c->threads; i++)
        if (now.threads[i].asleep && now.threads[i].of == l) {
            now.threads[i].asleep = false;
            now.threads[i].woken = true;
        }
}

/* Whether there is a store that the thread may pass by still. */
static bool has_news(const thread *t)
{
    for (int i = 0; i < now.n_locations; i++)
        if (!now.locations[i].plain && t->view.oldest[i] < now.locations[i].n - 1)
            return true;
    return false;
}

/* How many ways the access of a thread may go; 0: it has to wait. */
static int ways(const thread *t)
{
    if (t->done)
        return 0;
    switch (t->op) {
    case OP_LOAD:
        return t->of->n - oldest(t);
    case OP_LOCK:
        return now.lock_owner < 0;
    case OP_PAUSE:
        return has_news(t);
    case OP_SLEEP:
        return !t->asleep;
    default:
        return 1;
    }
}

/* While a thread pauses, all stores become visible to it (which orders nothing). */
static void do_pause(thread *t)
{
    for (int i = 0; i < now.n_locations; i++)
        if (!now.locations[i].plain) {
            t->view.oldest[i] = (uint8_t)(now.locations[i].n - 1);
            t->history = mix(t->history, (uint64_t)now.locations[i].n);
        }
}

/* Falls asleep if the word still has the value, looking and falling asleep in one, as the kernel does. It saw the last
 * store in any case. */
static void do_sleep(thread *t)
{
    t->asleep = !t->woken && t->of->m[t->of->n - 1].value == t->value;
    t->view.oldest[t->of - now.locations] = (uint8_t)(t->of->n - 1);
    t->history = mix(t->history, (uint64_t)t->of->n << 1 | t->woken);
}

static void perform(thread *t, int way)
{
    int me = (int)(t - now.threads);
    t->event++;
    t->view.clock[me] = t->event;
    switch (t->op) {
    case OP_LOAD:
        read_message(t, oldest(t) + way);
        note(" %d:%s=%u", me, t->of->name, t->result);
        break;
    case OP_CHANGE:
        do_change(t);
        note(" %d:%s<-%u", me, t->of->name, t->of->m[t->of->n - 1].value);
        break;
    case OP_LOCK:
        now.lock_owner = me;
        join(&t->view, &now.lock_view);
        break;
    case OP_UNLOCK:
        now.lock_owner = -1;
        join(&now.lock_view, &t->view);
        break;
    case OP_PAUSE:
        do_pause(t);
        break;
    case OP_SLEEP:
        do_sleep(t);
        note(" %d:%s %s", me, t->asleep ? "sleeps on" : "goes on from", t->of->name);
        break;
    case OP_WAKE:
        wake_all(t->of);
        note(" %d:wakes %s", me, t->of->name);
        break;
    default:
        break;
    }
    t->history = mix(t->history, (uint64_t)t->op);
}

static void resume(int i)
{
    thread *t = &now.threads[i];
    now.current = i;
    t->woken = false;
    swapcontext(&now.scheduler, &t->context);
}

/* ---- executions ---- */

static void enter(void)
{
    int me = now.current;
    now.c->thread(me);
    now.threads[me].done = true;
    swapcontext(&now.threads[me].context, &now.scheduler);
}

static void start(void)
{
    now.n_locations = 0;
    now.lock_owner = -1;
    now.trace_length = 0;
    now.trace[0] = '\0';
    memset(&now.lock_view, 0, sizeof now.lock_view);
    now.c->set_up();
    for (int i = 0; i < now.c->threads; i++) {
        thread *t = &now.threads[i];
        char *stack = t->stack;
        memset(t, 0, sizeof *t);
        t->stack = stack;
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = t->stack;
        t->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&t->context, enter, 0);
        t->event = 1;
        t->view.clock[i] = 1;
        resume(i);
    }
}

static uint64_t state(void)
{
    uint64_t hash = 1;
    for (int i = 0; i < now.c->threads; i++) {
        const thread *t = &now.threads[i];
        hash = mix(mix(hash, t->history), (uint64_t)t->event << 8 | (uint64_t)t->op << 3 | (uint64_t)t->done << 2 |
                                              (uint64_t)t->asleep << 1 | (ways(t) > 0));
    }
    for (int i = 0; i < now.n_locations; i++) {
        const location *l = &now.locations[i];
        for (int k = 1; k < l->n; k++)
            hash = mix(hash, (uint64_t)l->m[k].thread << 32 | (uint64_t)l->m[k].event);
        hash = mix(hash, (uint64_t)l->last_ordered);
    }
    hash = mix(hash, (uint64_t)(now.lock_owner + 1));
    return hash ? hash : 1;
}

/* Whether the state is new; it is remembered. */
static bool is_new(uint64_t hash)
{
    if (2 * (now.n_seen + 1) > now.room) {
        size_t old_room = now.room;
        uint64_t *old = now.seen;
        now.room = old_room ? 2 * old_room : 1 << 16;
        now.seen = calloc(now.room, sizeof *now.seen);
        now.n_seen = 0;
        if (!now.seen)
            abort();
        for (size_t i = 0; i < old_room; i++)
            if (old[i])
                is_new(old[i]);
        free(old);
    }
    size_t at = hash & (now.room - 1);
    while (now.seen[at] && now.seen[at] != hash)
        at = (at + 1) & (now.room - 1);
    if (now.seen[at])
        return false;
    now.seen[at] = hash;
    now.n_seen++;
    return true;
}

/* When nobody can go on, slices of sleep end. Returns whether one did that has something new to see. */
static bool end_slices(void)
{
    bool any = false;
    for (int i = 0; now.c->slices && i < now.c->threads; i++) {
        thread *t = &now.threads[i];
        if (!t->asleep || !has_news(t))
            continue;
        t->asleep = false;
        t->woken = any = true;
        do_pause(t);
    }
    return any;
}

/* The choices of all threads, one after the other. */
static int count_ways(void)
{
    int n = 0;
    for (int i = 0; i < now.c->threads; i++)
        n += ways(&now.threads[i]);
    return n;
}

static void take(int way)
{
    for (int i = 0; i < now.c->threads; i++) {
        int n = ways(&now.threads[i]);
        if (way < n) {
            perform(&now.threads[i], way);
            if (!now.threads[i].asleep)
                resume(i);
            return;
        }
        way -= n;
    }
}

static void check_end(void)
{
    for (int i = 0; i < now.c->threads; i++)
        if (!now.threads[i].done)
            fault("thread %d waits for ever%s%s", i, now.threads[i].of ? " on " : "",
                  now.threads[i].of ? now.threads[i].of->name : "");
}

/* One execution: the choices so far, then the first new one each time, until the end or a state that was seen. */
static void execute(void)
{
    start();
    for (now.depth = 0; !now.result->fault[0]; now.depth++) {
        int n = count_ways();
        if (n == 0 && end_slices())
            n = count_ways();
        if (n == 0) {
            check_end();
            return;
        }
        if (now.depth == now.n_choices) {
            if (!is_new(state()))
                return;
            if (now.n_choices == STEPS)
                abort();
            now.choices[now.n_choices++] = (choice){0, n};
        }
        take(now.choices[now.depth].at);
    }
}

void schedule_explore(schedule_result *out, const schedule_case *c)
{
    memset(out, 0, sizeof *out);
    memset(&now, 0, sizeof now);
    now.c = c;
    now.result = out;
    for (int i = 0; i < c->threads; i++)
        now.threads[i].stack = malloc(STACK_BYTES);
    do {
        execute();
        now.n_locations = 0; /* what tearing down does is no part of the model */
        c->tear_down();
        out->executions++;
        while (now.n_choices > 0 && now.choices[now.n_choices - 1].at + 1 == now.choices[now.n_choices - 1].of)
            now.n_choices--;
        if (now.n_choices > 0)
            now.choices[now.n_choices - 1].at++;
    } while (now.n_choices > 0 && !out->fault[0]);
    out->states = (int64_t)now.n_seen;
    free(now.seen);
    for (int i = 0; i < c->threads; i++)
        free(now.threads[i].stack);
}
