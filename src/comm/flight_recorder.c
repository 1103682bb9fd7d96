/* flight_recorder.c - flight recorder: records collectives and waits; copies names whose owners go away. */
#include "comm/flight_recorder.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether the record has no collective yet and is of this kind. */
static bool lacks_collective(const clv_recorder *r, uint64_t begun, const clv_record *at, const char *what)
{
    return begun > 0 && atomic_load_explicit(&r->idle, memory_order_relaxed) != begun &&
           atomic_load_explicit(&at->phase, memory_order_relaxed) == CLV_RECORD_NO_COLLECTIVE &&
           atomic_load_explicit(&at->kind, memory_order_relaxed) == what;
}

uint64_t clv_recorder_begin_collective(clv_recorder *r, const char *name, const char *what, int group_set, uint64_t seq,
                                       uint64_t tag)
{
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_relaxed), at = (begun - 1) % CLV_RECORDER_CAPACITY;
    if (!lacks_collective(r, begun, &r->records[at], what)) {
        clv_recorder_begin(r, name ? name : what, what, -1);
        at = begun++ % CLV_RECORDER_CAPACITY;
    }
    clv_collective_record *s = &r->collectives[at];
    atomic_store_explicit(&s->what, what, memory_order_release);
    CLV_RECORD_STORE(s->seq, seq);
    CLV_RECORD_STORE(s->tag, tag);
    CLV_RECORD_STORE(s->waiting_ns, 0);
    CLV_RECORD_STORE(s->expected, 0);
    CLV_RECORD_STORE(s->received, 0);
    CLV_RECORD_STORE(s->awaited, 0);
    CLV_RECORD_STORE(s->group_set, group_set);
    CLV_RECORD_STORE(r->records[at].phase, CLV_RECORD_BEGUN);
    return begun - 1;
}

void clv_recorder_begin_wait(clv_recorder *r, clv_record_phase phase, int64_t now)
{
    uint64_t at = clv_recorder_last_slot(r);
    CLV_RECORD_STORE(r->collectives[at].waiting_ns, now);
    CLV_RECORD_STORE(r->records[at].phase, phase);
}

struct clv_copied_name {
    clv_copied_name *next;
    char text[];
};

static const char *copy_name(clv_copied_name **copies, const char *text)
{
    size_t size = strlen(text) + 1;
    for (clv_copied_name *k = *copies; k; k = k->next)
        if (k->text == text || strcmp(k->text, text) == 0)
            return k->text;
    clv_copied_name *k = malloc(sizeof *k + size);
    if (!k)
        return "";
    memcpy(k->text, text, size);
    k->next = *copies;
    *copies = k;
    return k->text;
}

void clv_recorder_copy_names(clv_recorder *r, clv_copied_name **copies)
{
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_relaxed);
    for (uint64_t i = 0; i < CLV_RECORDER_CAPACITY && i < begun; i++) {
        const char *name = atomic_load_explicit(&r->records[i].name, memory_order_relaxed);
        atomic_store_explicit(&r->records[i].name, copy_name(copies, name), memory_order_release);
    }
}

void clv_copied_names_free(clv_copied_name *copies)
{
    for (clv_copied_name *next; copies; copies = next) {
        next = copies->next;
        free(copies);
    }
}
