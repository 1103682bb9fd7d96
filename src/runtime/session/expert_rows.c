/* expert_rows.c - dispatch_rows and combine_rows on a rank: which rows go where, by the choices of experts. */
#include "runtime/session/expert_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/box_copy.h"

/* A member of the group. */
typedef struct member {
    int64_t rows;      /* of its own */
    int64_t to, from;  /* rows of mine that it needs, and rows of its that I need */
    int64_t needs;     /* rows of all that it needs */
    int64_t mine, its; /* where these are: in messages, rows of its among packed rows if they are neighbours there */
    int64_t at;        /* how many of them were moved */
    int64_t seen;      /* the last row, from 1, that was counted for it */
    int next_sharing;  /* the next member with the same experts; -1: none */
} member;

struct clv_expert_rows_step {
    bool combines;
    bool scattered; /* rows of a member are not neighbours among those of the group */
    const clv_loaded_program *loaded;
    const clv_instruction *instruction;
    const clv_device *device;
    int rank, n, me;
    clv_prepared_collective *prepared;
    const clv_view *in, *out, *ids;
    int64_t top_k, room, width, experts;
    size_t row_bytes;
    int64_t rows;         /* of the group, in the order of the choices */
    int *owner;           /* [rows] whose own it is */
    int64_t *own;         /* [members[me].rows] the rank's own rows among them */
    int64_t *own_place;   /* alike: where it is among packed ones, if this rank needs it */
    int *member_of;       /* [experts] the first member that has it; -1: none */
    int *chosen;          /* [n] members that a row goes to */
    const void **addends; /* [n] */
    member *members;      /* [n] */
    clv_span *spans;      /* [2 n] what is sent, and received */
    char *apart, *packed; /* the rank's own rows, the packed ones, */
    char *messages;       /* and messages: the buffers, or copies on the host */
    int32_t *choices;
    void *host; /* copies of what is on a device; NULL: it is on the host */
};

void clv_expert_rows_free(clv_expert_rows_step *s)
{
    if (!s)
        return;
    free(s->owner);
    free(s->own);
    free(s->own_place);
    free(s->member_of);
    free(s->chosen);
    free(s->addends);
    free(s->members);
    free(s->spans);
    free(s->host);
    free(s);
}

/* ---- preparing ---- */

/* How many rows a shard [..., M] has. */
static int64_t rows_in(const clv_shard *shard)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < shard->rank; d++)
        rows *= shard->hi[d] - shard->lo[d];
    return rows;
}

/* Row k of a shard, among those of another that holds it. */
static int64_t row_within(const clv_shard *of, const clv_shard *shard, int64_t k)
{
    int64_t row = 0, stride = 1;
    for (int d = shard->rank - 2; d >= 0; d--) {
        const int64_t extent = shard->hi[d] - shard->lo[d];
        row += (shard->lo[d] + k % extent - of->lo[d]) * stride;
        stride *= of->hi[d] - of->lo[d];
        k /= extent;
    }
    return row;
}

/* Whose the rows of the choices are. apart: the buffer of which each member has its own rows. */
static clv_status find_owners(clv_expert_rows_step *s, const clv_group *group, int apart, clv_error *err)
{
    const clv_program *program = s->loaded->program;
    const clv_shard all = clv_program_shard(program, s->instruction->in[1], s->rank);
    int64_t runs = 0, holders = 0; /* members that have rows: with as many runs, each has one */
    s->rows = rows_in(&all);
    s->owner = malloc((size_t)(s->rows + 1) * sizeof *s->owner);
    if (!s->owner)
        return clv_fail_memory(err, "rows of experts", (size_t)s->rows * sizeof *s->owner);
    for (int m = 0; m < s->n; m++) {
        const clv_shard shard = clv_program_shard(program, apart, group->ranks[m]);
        s->members[m].rows = rows_in(&shard);
        holders += s->members[m].rows > 0;
        for (int64_t k = 0; k < s->members[m].rows; k++)
            s->owner[row_within(&all, &shard, k)] = m;
    }
    const size_t mine = (size_t)s->members[s->me].rows + 1;
    s->own = malloc(mine * sizeof *s->own);
    s->own_place = malloc(mine * sizeof *s->own_place);
    if (!s->own || !s->own_place)
        return clv_fail_memory(err, "rows of experts", mine * sizeof *s->own);
    for (int64_t row = 0, k = 0; row < s->rows; row++) {
        runs += row == 0 || s->owner[row] != s->owner[row - 1];
        if (s->owner[row] == s->me)
            s->own[k++] = row;
    }
    s->scattered = runs > holders;
    return CLV_OK;
}

static void find_experts(clv_expert_rows_step *s, const clv_group *group)
{
    for (int64_t e = 0; e < s->experts; e++)
        s->member_of[e] = -1;
    for (int m = s->n - 1; m >= 0; m--) {
        const clv_shard its = clv_program_shard(s->loaded->program, s->instruction->experts - 1, group->ranks[m]);
        s->members[m].next_sharing = its.lo[0] < its.hi[0] ? s->member_of[its.lo[0]] : -1;
        for (int64_t e = its.lo[0]; e < its.hi[0]; e++)
            s->member_of[e] = m;
    }
}

/* Points to the buffers, or to copies of them. */
static clv_status find_memory(clv_expert_rows_step *s, const clv_view *messages, clv_error *err)
{
    const size_t in = clv_view_byte_size(s->in), out = clv_view_byte_size(s->out), ids = clv_view_byte_size(s->ids),
                 all = in + out + ids + clv_view_byte_size(messages);
    char *memory[] = {s->in->data, s->out->data, messages->data};
    s->choices = s->ids->data;
    if (!s->device->backend->is_host) {
        char *host = s->host = malloc(all + 1);
        if (!host)
            return clv_fail_memory(err, "rows of experts on the host", all);
        s->choices = (int32_t *)(void *)host;
        memory[0] = host + ids;
        memory[1] = memory[0] + in;
        memory[2] = memory[1] + out;
    }
    s->apart = memory[s->combines];
    s->packed = memory[!s->combines];
    s->messages = memory[2];
    return CLV_OK;
}

/* The most that may go each way: of my rows all to every member, of its rows all to me. */
static void set_most(clv_expert_rows_step *s)
{
    const int64_t mine = s->members[s->me].rows;
    for (int m = 0; m < s->n; m++) {
        const int64_t its = s->members[m].rows;
        const int64_t most[] = {m == s->me ? 0 : mine, m == s->me ? 0 : its};
        for (int k = 0; k < 2; k++)
            s->spans[k * s->n + m] = (clv_span){s->messages, most[s->combines ? !k : k] * (int64_t)s->row_bytes};
    }
}

static clv_status prepare(clv_expert_rows_step *s, const clv_loaded_program *loaded, clv_comm *comm, int i,
                          int64_t *staging, clv_error *err)
{
    const clv_program *program = loaded->program;
    const clv_instruction *instruction = &program->instructions[i];
    const clv_group *group = clv_comm_group(comm, loaded->group_set[instruction->group]);
    const clv_view *messages = clv_loaded_program_view(loaded, s->rank, instruction->out[1]);
    const size_t n = (size_t)group->n;
    s->combines = instruction->step->kind == CLV_STEP_COMBINE;
    s->loaded = loaded;
    s->instruction = instruction;
    s->device = clv_loaded_program_on_rank(loaded, s->rank)->context.device;
    s->n = group->n;
    s->me = group->me;
    s->in = clv_loaded_program_view(loaded, s->rank, instruction->in[0]);
    s->ids = clv_loaded_program_view(loaded, s->rank, instruction->in[1]);
    s->out = clv_loaded_program_view(loaded, s->rank, instruction->out[0]);
    const clv_view *packed = s->combines ? s->in : s->out;
    s->top_k = s->ids->shape[s->ids->rank - 1];
    s->room = packed->shape[1];
    s->width = packed->shape[2];
    s->row_bytes = (size_t)s->width * clv_dtype_size(packed->dtype);
    s->experts = program->buffers[instruction->experts - 1].type.shape[0];
    s->member_of = calloc((size_t)s->experts + 1, sizeof *s->member_of);
    s->chosen = calloc(n, sizeof *s->chosen);
    s->addends = calloc(n, sizeof *s->addends);
    s->members = calloc(n, sizeof *s->members);
    s->spans = calloc(2 * n, sizeof *s->spans);
    if (!s->member_of || !s->chosen || !s->addends || !s->members || !s->spans)
        return clv_fail_memory(err, "rows of experts", n * sizeof *s->members);
    CLV_TRY(find_owners(s, group, s->combines ? instruction->out[0] : instruction->in[0], err));
    find_experts(s, group);
    CLV_TRY(find_memory(s, messages, err));
    set_most(s);
    const clv_transfer transfer = {.what = clv_step_name(instruction->step->kind),
                                   .tag = loaded->digest << 32 | (uint64_t)i << 8 | (uint64_t)instruction->step->kind,
                                   .group = group,
                                   .dtype = CLV_U8,
                                   .parts = {.n = group->n},
                                   .sends = s->spans,
                                   .receives = s->spans + group->n};
    return loaded->transport->prepare(&s->prepared, comm, &transfer, staging, err);
}

clv_status clv_expert_rows_prepare(clv_expert_rows_step **out, clv_prepared_collective **prepared,
                                   const clv_loaded_program *loaded, clv_comm *comm, int rank, int i, int64_t *staging,
                                   clv_error *err)
{
    clv_expert_rows_step *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, "rows of experts", sizeof *s);
    s->rank = rank;
    clv_status status = prepare(s, loaded, comm, i, staging, err);
    if (status != CLV_OK) {
        clv_expert_rows_free(s);
        return status;
    }
    *out = s;
    *prepared = s->prepared;
    return CLV_OK;
}

/* ---- choices ---- */

/* Adds a member, and those with the same experts, to the n that a row goes to; returns their number then. */
static int add_members(clv_expert_rows_step *s, int n, int64_t row, int m)
{
    for (; m >= 0 && s->members[m].seen != row + 1; m = s->members[m].next_sharing) {
        int at = n++;
        s->members[m].seen = row + 1;
        for (; at > 0 && s->chosen[at - 1] > m; at--)
            s->chosen[at] = s->chosen[at - 1];
        s->chosen[at] = m;
    }
    return n;
}

/* Finds the members with experts of a row, in their order; returns their number. */
static int choose(clv_expert_rows_step *s, int64_t row)
{
    int n = 0;
    for (int64_t k = 0; k < s->top_k; k++) {
        const int32_t id = s->choices[row * s->top_k + k];
        if (id >= 0 && id < s->experts)
            n = add_members(s, n, row, s->member_of[id]);
    }
    return n;
}

/* Begins to go through rows. */
static void rewind_rows(clv_expert_rows_step *s)
{
    for (int m = 0; m < s->n; m++)
        s->members[m].seen = s->members[m].at = 0;
}

/* Counts what each member needs of each, as far as this rank is concerned. */
static void count(clv_expert_rows_step *s)
{
    int64_t mine = 0, packed = 0;
    for (int m = 0; m < s->n; m++)
        s->members[m].to = s->members[m].from = s->members[m].needs = 0;
    rewind_rows(s);
    for (int64_t row = 0; row < s->rows; row++) {
        member *owner = &s->members[s->owner[row]];
        const bool is_mine = s->owner[row] == s->me;
        for (int c = 0, n = choose(s, row); c < n; c++) {
            member *needs = &s->members[s->chosen[c]];
            needs->needs++;
            needs->to += is_mine;
            if (s->chosen[c] != s->me)
                continue;
            owner->its = owner->from++ == 0 ? packed : owner->its;
            if (is_mine)
                s->own_place[mine] = packed;
            packed++;
        }
        mine += is_mine;
    }
}

/* Where messages are: rows of mine, and rows of its unless they are neighbours among packed ones. */
static void place_messages(clv_expert_rows_step *s)
{
    int64_t at = 0;
    for (int m = 0; m < s->n; m++) {
        s->members[m].mine = at;
        at += m == s->me ? 0 : s->members[m].to;
    }
    for (int m = 0; m < s->n && s->scattered; m++) {
        s->members[m].its = at;
        at += m == s->me ? 0 : s->members[m].from;
    }
}

static clv_status check_room(const clv_expert_rows_step *s, clv_error *err)
{
    int64_t own = 0;
    int most = 0;
    for (int m = 0; m < s->n; m++) {
        own = s->members[m].rows > own ? s->members[m].rows : own;
        most = s->members[m].needs > s->members[most].needs ? m : most;
    }
    if (s->members[most].needs <= s->room)
        return CLV_OK;
    const clv_subaxis *axes;
    const clv_layout *experts = &s->loaded->program->buffers[s->instruction->experts - 1].layout;
    int64_t sharing = s->n; /* ranks with the same experts */
    for (int a = 0, n = clv_layout_axes(&axes, experts, 0); a < n; a++)
        sharing /= axes[a].size;
    const int rank = s->prepared->group->ranks[most];
    const double factor = (double)s->members[most].needs / ((double)(s->top_k * sharing) * (double)own);
    return clv_fail_at(err, CLV_ELIMIT, rank, s->instruction->name,
                       "%lld rows are for the experts of rank %d, which has room for %lld; an "
                       "expert_rank_capacity_factor of %.2f would do, and 0 always does",
                       (long long)s->members[most].needs, rank, (long long)s->room, ceil(factor * 100) / 100);
}

/* ---- moving ---- */

static char *at_row(const clv_expert_rows_step *s, char *base, int64_t row)
{
    return base + (size_t)row * s->row_bytes;
}

/* Sets what is sent, and where to what is received. */
static void set_spans(clv_expert_rows_step *s)
{
    s->prepared->receive_bytes = 0;
    for (int m = 0; m < s->n; m++) {
        const member *its = &s->members[m];
        const int64_t bytes = m == s->me ? 0 : (int64_t)s->row_bytes;
        clv_span *mine = &s->spans[s->combines ? s->n + m : m], *theirs = &s->spans[s->combines ? m : s->n + m];
        *mine = (clv_span){at_row(s, s->messages, its->mine), its->to * bytes};
        *theirs = (clv_span){at_row(s, s->scattered ? s->messages : s->packed, its->its), its->from * bytes};
        s->prepared->receive_bytes += s->spans[s->n + m].bytes;
    }
}

/* The next of the rank's own rows that a member needs, k of them: in messages, or among its packed rows. */
static char *next_of_mine(clv_expert_rows_step *s, int m, int64_t k)
{
    member *its = &s->members[m];
    return m == s->me ? at_row(s, s->packed, s->own_place[k]) : at_row(s, s->messages, its->mine + its->at++);
}

static void send_rows(clv_expert_rows_step *s)
{
    rewind_rows(s);
    for (int64_t k = 0; k < s->members[s->me].rows; k++)
        for (int c = 0, n = choose(s, s->own[k]); c < n; c++)
            memcpy(next_of_mine(s, s->chosen[c], k), at_row(s, s->apart, k), s->row_bytes);
}

static void sum_rows(clv_expert_rows_step *s)
{
    rewind_rows(s);
    for (int64_t k = 0; k < s->members[s->me].rows; k++) {
        char *sum = at_row(s, s->apart, k);
        const int n = choose(s, s->own[k]);
        for (int c = 0; c < n; c++)
            s->addends[c] = next_of_mine(s, s->chosen[c], k);
        if (n > 0)
            clv_values_reduce(sum, s->addends, n, 0, s->width, s->out->dtype, CLV_REDUCTION_SUM);
        else
            memset(sum, 0, s->row_bytes);
    }
}

static bool needs_row(clv_expert_rows_step *s, int64_t row)
{
    for (int c = 0, n = choose(s, row); c < n; c++)
        if (s->chosen[c] == s->me)
            return true;
    return false;
}

/* Moves rows of others between messages and their places among packed ones, where they are not neighbours. */
static void scatter_rows(clv_expert_rows_step *s)
{
    int64_t packed = 0;
    rewind_rows(s);
    for (int64_t row = 0; row < s->rows; row++) {
        if (!needs_row(s, row))
            continue;
        member *owner = &s->members[s->owner[row]];
        char *place = at_row(s, s->packed, packed++), *message = at_row(s, s->messages, owner->its + owner->at);
        if (s->owner[row] == s->me)
            continue;
        owner->at++;
        memcpy(s->combines ? message : place, s->combines ? place : message, s->row_bytes);
    }
}

static clv_shard whole_of(const clv_view *view)
{
    clv_shard shard = {.rank = view->rank};
    memcpy(shard.hi, view->shape, (size_t)view->rank * sizeof *shard.hi);
    return shard;
}

/* Copies between a buffer on the device and the host, of packed rows those that are there; nothing if it is there. */
static clv_status copy_view(const clv_expert_rows_step *s, const clv_view *view, void *host, clv_copy_kind kind,
                            clv_error *err)
{
    const clv_shard whole = whole_of(view);
    clv_shard there = whole;
    if (!s->host)
        return CLV_OK;
    if (host == s->packed)
        there.hi[1] = s->members[s->me].needs;
    return s->device->backend->copy(s->device, kind, kind == CLV_COPY_TO_HOST ? host : view->data, &whole,
                                    kind == CLV_COPY_TO_HOST ? view->data : host, &whole, &there,
                                    clv_dtype_size(view->dtype), err);
}

clv_status clv_expert_rows_begin(clv_expert_rows_step *s, clv_error *err)
{
    CLV_TRY(copy_view(s, s->ids, s->choices, CLV_COPY_TO_HOST, err));
    count(s);
    CLV_TRY(check_room(s, err));
    CLV_TRY(copy_view(s, s->in, s->combines ? s->packed : s->apart, CLV_COPY_TO_HOST, err));
    place_messages(s);
    set_spans(s);
    if (!s->combines)
        send_rows(s);
    else if (s->scattered)
        scatter_rows(s);
    return CLV_OK;
}

clv_status clv_expert_rows_end(clv_expert_rows_step *s, clv_error *err)
{
    const int64_t needed = s->members[s->me].needs;
    if (s->combines)
        sum_rows(s);
    else if (s->scattered)
        scatter_rows(s);
    if (!s->combines)
        CLV_TRY(s->device->backend->fill(s->device, at_row(s, s->out->data, needed), (s->room - needed) * s->width,
                                         s->out->dtype, CLV_REDUCTION_SUM, err));
    return copy_view(s, s->out, s->combines ? s->apart : s->packed, CLV_COPY_FROM_HOST, err);
}
