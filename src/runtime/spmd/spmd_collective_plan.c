/* spmd_collective_plan.c - plans a manual SPMD collective: result layout, group, transfers; cached. */
#include <stdio.h>

#include "base/hash.h"
#include "runtime/spmd/spmd_internal.h"
#include "tensor/parse_print.h"
#include "tensor/box_copy.h"

enum { WHAT_BYTES = 120 };

/* ---- axes and layouts ---- */

clv_status clv_spmd_parse_axes(clv_spmd_group_set *out, const clv_mesh *mesh, const char *axes, clv_error *err)
{
    char text[CLV_LAYOUT_TEXT];
    clv_layout layout = clv_layout_replicated(0);
    const clv_subaxis *subs;
    if (!axes)
        return clv_fail(err, CLV_EINVAL, "a collective needs the axes that it goes over; \"\" is none");
    if (snprintf(text, sizeof text, "+ sum{%s}", axes) >= (int)sizeof text)
        return clv_fail(err, CLV_ELIMIT, "the axes '%.40s...' are too many", axes);
    if (strpbrk(axes, "{}"))
        return clv_fail(err, CLV_ESYNTAX, "axes '%.100s': expected names of axes, with commas between them", axes);
    clv_error why = {0};
    if (axes[strspn(axes, " \t")] != '\0' && clv_layout_parse(&layout, text, mesh, 0, &why) != CLV_OK) {
        const char *said = strstr(why.message, "): "); /* without the column in a text that the caller did not write */
        said = said ? said + 3 : why.message;
        const char *end = strstr(said, " (first in column");
        return clv_fail(err, why.code, "axes '%.100s': %.*s", axes, end ? (int)(end - said) : (int)strlen(said), said);
    }
    *out = (clv_spmd_group_set){.n = clv_layout_axes(&subs, &layout, 0)};
    memcpy(out->axes, subs, (size_t)out->n * sizeof *subs);
    return CLV_OK;
}

void clv_spmd_partial_axes(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh)
{
    const clv_subaxis *subs;
    int n = clv_layout_axes(&subs, layout, layout->rank);
    out[0] = '\0';
    for (int a = 0, used = 0; a < n; a++) {
        out[used] = ',';
        used += a > 0;
        used += clv_subaxis_print(out + used, size - (size_t)used, subs[a], mesh);
    }
}

clv_spmd_group_set *clv_spmd_find_group_set(const clv_spmd_context *context, const clv_subaxis *axes, int n)
{
    for (int g = 0; g < context->n_groups; g++)
        if (context->groups[g].n == n && memcmp(context->groups[g].axes, axes, (size_t)n * sizeof *axes) == 0)
            return &context->groups[g];
    return NULL;
}

clv_status clv_spmd_parse_group_set(const clv_spmd_group_set **out, const clv_spmd *spmd, const char *axes,
                                    clv_error *err)
{
    const clv_spmd_context *context = spmd->context;
    clv_spmd_group_set asked;
    CLV_TRY(clv_spmd_parse_axes(&asked, &context->session->mesh, axes, err));
    *out = clv_spmd_find_group_set(context, asked.axes, asked.n);
    if (*out)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "no group over '%.60s' is ready: a part of an axis, or axes beyond the first 6, are to be named in "
                    "clv_spmd_options.groups",
                    axes);
}

/* Removes the group's axes from a list of sub-axes; of a larger sub-axis the rest stays. Multiplies *taken by the sizes
 * removed, and by 0 if a sub-axis overlaps one only in part. */
static int remove_axes(clv_subaxis *subs, int n, const clv_spmd_group_set *group, int64_t *taken)
{
    clv_subaxis left[3 * CLV_MAX_SUBAXES];
    memcpy(left, subs, (size_t)n * sizeof *subs);
    for (int g = 0; g < group->n; g++) {
        clv_subaxis cut = group->axes[g], next[3 * CLV_MAX_SUBAXES];
        int kept = 0;
        for (int i = 0; i < n; i++) {
            clv_subaxis s = left[i];
            if (clv_subaxis_contains(cut, s))
                *taken *= s.size;
            else if (!clv_subaxis_contains(s, cut)) {
                *taken *= !clv_subaxis_overlap(s, cut);
                next[kept++] = s;
            } else {
                *taken *= cut.size;
                next[kept++] = (clv_subaxis){.axis = s.axis, .pre = s.pre, .size = cut.pre / s.pre};
                next[kept++] = (clv_subaxis){
                    .axis = s.axis, .pre = cut.pre * cut.size, .size = s.pre * s.size / (cut.pre * cut.size)};
            }
        }
        n = kept < CLV_MAX_SUBAXES ? kept : CLV_MAX_SUBAXES; /* no layout has more */
        memcpy(left, next, (size_t)n * sizeof *next);
    }
    memcpy(subs, left, (size_t)n * sizeof *subs);
    return n;
}

static int64_t size_of(const clv_spmd_group_set *group)
{
    int64_t size = 1;
    for (int g = 0; g < group->n; g++)
        size *= group->axes[g].size;
    return size;
}

static clv_status fail_axes(const clv_spmd_request *q, const clv_mesh *mesh, const char *how, clv_error *err)
{
    char layout[CLV_LAYOUT_TEXT];
    clv_layout_print(layout, sizeof layout, &q->in->layout, mesh);
    return clv_fail(err, CLV_EINVAL, "%s over '%.60s' of a tensor laid out '%.120s': %s", q->name, q->axes, layout,
                    how);
}

/* The layout no longer partial over the axes. */
static clv_status without_partial(clv_layout *out, const clv_spmd_request *q, const clv_mesh *mesh,
                                  const clv_spmd_group_set *group, clv_error *err)
{
    const clv_subaxis *subs;
    clv_subaxis left[3 * CLV_MAX_SUBAXES];
    int64_t taken = 1;
    int n = clv_layout_axes(&subs, &q->in->layout, q->in->layout.rank);
    memcpy(left, subs, (size_t)n * sizeof *subs);
    *out = clv_layout_without_partial(&q->in->layout);
    n = remove_axes(left, n, group, &taken);
    if (q->in->layout.reduction != CLV_REDUCTION_NONE && q->in->layout.reduction != q->reduction)
        return fail_axes(q, mesh, "it is partial by another reduction, which must be done first", err);
    if (taken == 0)
        return fail_axes(q, mesh, "it is partial over parts of axes that cross these", err);
    for (int i = 0; i < n; i++)
        if (left[i].size > 1)
            CLV_TRY(clv_layout_add_partial(out, mesh, q->in->layout.reduction, left[i], err));
    return CLV_OK;
}

/* The layout no longer sharded over the axes, all of which must shard some dimension. */
static clv_status without_sharding(clv_layout *out, const clv_spmd_request *q, const clv_mesh *mesh,
                                   const clv_spmd_group_set *group, clv_error *err)
{
    int64_t taken = 1;
    *out = q->in->layout;
    for (int d = 0; d < out->rank; d++) {
        const clv_subaxis *subs;
        clv_subaxis left[3 * CLV_MAX_SUBAXES];
        int n = clv_layout_axes(&subs, &q->in->layout, d), before = n;
        memcpy(left, subs, (size_t)n * sizeof *subs);
        int64_t size = taken;
        n = remove_axes(left, n, group, &taken);
        if (taken != size || n != before)
            CLV_TRY(clv_layout_set_dim(out, mesh, d, left, n, q->in->layout.alignment[d], err));
    }
    return taken == size_of(group) ? CLV_OK : fail_axes(q, mesh, "it is not sharded over all of these axes", err);
}

static clv_status find_layout(clv_layout *out, const clv_spmd_request *q, const clv_mesh *mesh,
                              const clv_spmd_group_set *group, clv_error *err)
{
    *out = q->in->layout;
    if (clv_step_reduces(q->kind))
        CLV_TRY(without_partial(out, q, mesh, group, err));
    else if (q->kind != CLV_STEP_PERMUTE)
        CLV_TRY(without_sharding(out, q, mesh, group, err));
    for (int g = 0; q->dim >= 0 && g < group->n; g++)
        CLV_TRY(clv_layout_shard_dim(out, mesh, q->dim, group->axes[g], err));
    return CLV_OK;
}

/* ---- shards of members ---- */

static clv_shard shard_at(const clv_mesh *mesh, const clv_type *type, const clv_layout *layout, const int *from,
                          int rank)
{
    return clv_layout_shard(layout, mesh, type->shape, from ? from[rank] : rank);
}

/* The member that sends to `me`; -1: none. */
static int source_of(const clv_spmd_request *q, int me)
{
    for (int i = 0; i < q->n_pairs; i++)
        if (q->pairs[i].to == me)
            return q->pairs[i].from;
    return -1;
}

static clv_status check_pairs(const clv_spmd_request *q, int n, clv_error *err)
{
    for (int i = 0; i < q->n_pairs; i++) {
        if (q->pairs[i].from < 0 || q->pairs[i].from >= n || q->pairs[i].to < 0 || q->pairs[i].to >= n)
            return clv_fail(err, CLV_EINVAL, "%s over '%.60s': pair %d is {%d, %d}; the group's members are 0 to %d",
                            q->name, q->axes, i, q->pairs[i].from, q->pairs[i].to, n - 1);
        for (int j = 0; j < i; j++)
            if (q->pairs[j].to == q->pairs[i].to)
                return clv_fail(err, CLV_EINVAL, "%s over '%.60s': member %d is sent to twice", q->name, q->axes,
                                q->pairs[i].to);
    }
    return CLV_OK;
}

/* Finds whose shard each rank holds after a permute. Every rank computes this for all ranks. */
static clv_status find_source_ranks(clv_spmd_cached_collective *call, const clv_spmd_request *q, const clv_spmd *spmd,
                                    const clv_spmd_group_set *group, clv_error *err)
{
    const clv_session *session = spmd->context->session;
    size_t n = (size_t)session->n_ranks;
    bool moved = false;
    call->owned_source_ranks = malloc(n * sizeof *call->owned_source_ranks);
    int64_t *members = malloc(n * sizeof *members);
    if (!call->owned_source_ranks || !members) {
        free(members);
        return clv_fail_memory(err, "a permutation of ranks", n * sizeof *members);
    }
    for (int r = 0; r < session->n_ranks; r++) {
        int size = (int)clv_mesh_group(members, &session->mesh, group->axes, group->n, r), me = 0;
        while (members[me] != r)
            me++;
        int source = source_of(q, me);
        int64_t rank = source >= 0 && source < size ? members[source] : r;
        call->owned_source_ranks[r] = q->in->source_ranks ? q->in->source_ranks[rank] : (int)rank;
        moved = moved || call->owned_source_ranks[r] != r;
    }
    free(members);
    call->source_ranks = moved ? call->owned_source_ranks : NULL;
    return CLV_OK;
}

/* A permute moves whole shards. They become disjoint 1-d ranges, so that equal shards are distinct. */
static void find_runs(clv_group_shards *parts, clv_shard *in, clv_shard *out, const clv_spmd_request *q,
                      const clv_group *group)
{
    int64_t at = 0;
    for (int m = 0; m < group->n; m++) {
        int64_t count = clv_shard_elems(&in[m]);
        in[m] = (clv_shard){.rank = 1, .lo = {at}, .hi = {at + count}};
        at += count;
    }
    for (int m = 0; m < group->n; m++) {
        int source = source_of(q, m);
        out[m] = source >= 0 ? in[source] : (clv_shard){.rank = 1};
    }
    *parts = (clv_group_shards){.n = group->n, .in = in, .out = out};
}

/* Checks that the rank receives each element of its result once, or when reducing from each member. */
static clv_status check_cover(const clv_spmd_request *q, const clv_group_shards *parts, const clv_mesh *mesh, int me,
                              clv_error *err)
{
    int64_t needed = clv_shard_elems(&parts->out[me]), taken = 0;
    for (int m = 0; m < parts->n; m++) {
        clv_shard box;
        if (parts->reduces && !clv_shard_equal(&parts->in[m], &parts->in[me]))
            return fail_axes(q, mesh,
                             "the members hold different elements; only partial sums of the same elements are reduced",
                             err);
        if (clv_find_transfer_box(&box, parts, me, m))
            taken += clv_shard_elems(&box);
    }
    if (taken != (parts->reduces ? needed * parts->n : needed))
        return fail_axes(
            q, mesh, "the group does not hold all of the result: gather over the more minor axes of a dimension first",
            err);
    return CLV_OK;
}

/* ---- bytes, as reshard plans count them ---- */

/* Elements that the busiest rank receives in a collective that does not reduce. */
static int64_t most_received(const clv_spmd_cached_collective *call, const clv_spmd_request *q, const clv_spmd *spmd)
{
    const clv_session *session = spmd->context->session;
    int64_t most = 0;
    for (int r = 0; r < session->n_ranks; r++) {
        clv_shard has = shard_at(&session->mesh, &q->in->type, &q->in->layout, q->in->source_ranks, r);
        clv_shard gets = shard_at(&session->mesh, &q->in->type, &call->layout, call->source_ranks, r);
        clv_shard both = clv_shard_intersect(&gets, &has);
        int64_t lacks = clv_shard_elems(&gets) - clv_shard_elems(&both);
        most = lacks > most ? lacks : most;
    }
    return most;
}

static double bytes_of(const clv_spmd_cached_collective *call, const clv_spmd_request *q, const clv_spmd *spmd, int n)
{
    double size = (double)clv_dtype_size(q->in->type.dtype);
    if (q->kind == CLV_STEP_REDUCE_SCATTER)
        return size * (n - 1) * (double)clv_layout_max_elems(&call->layout, q->in->type.shape);
    if (q->kind == CLV_STEP_ALL_REDUCE)
        return 2 * size * (double)clv_layout_max_elems(&q->in->layout, q->in->type.shape) * (n - 1) / n;
    return size * (double)most_received(call, q, spmd);
}

/* ---- cache ---- */

/* Prints the pairs, of many the first: " from member 2", " 0>1,1>2". */
static void print_pairs(char *out, size_t size, const clv_spmd_request *q)
{
    clv_text text = {.out = out, .size = size - 3};
    if (q->is_broadcast)
        clv_text_add(&text, " from member %d", q->pairs[0].from);
    for (int i = 0; !q->is_broadcast && i < q->n_pairs && text.length < size; i++)
        clv_text_add(&text, "%s%d>%d", i > 0 ? "," : " ", q->pairs[i].from, q->pairs[i].to);
    if (q->n_pairs == 0 && q->kind == CLV_STEP_PERMUTE)
        clv_text_add(&text, " of no pairs");
    if ((size_t)clv_text_finish(&text) >= text.size)
        memcpy(out + text.size - 1, "...", 4);
}

/* The cache key: all that the plan depends on. */
static char *cache_key(const clv_spmd_request *q, const clv_mesh *mesh)
{
    enum { PAIRS_TEXT = 60 };
    char type[CLV_TYPE_TEXT], layout[CLV_LAYOUT_TEXT], reduction[32] = "", dim[32] = "", pairs_text[PAIRS_TEXT];
    static const char *const reductions[] = {"", " by sum", " by max", " by min", " by product"};
    clv_type_print(type, sizeof type, &q->in->type);
    clv_layout_print(layout, sizeof layout, &q->in->layout, mesh);
    uint64_t from =
        q->in->source_ranks
            ? clv_hash_bytes(q->in->source_ranks, (size_t)clv_mesh_rank_count(mesh) * sizeof *q->in->source_ranks)
            : 0;
    uint64_t pairs = clv_hash_bytes(q->pairs, (size_t)q->n_pairs * sizeof *q->pairs);
    snprintf(reduction, sizeof reduction, "%s", reductions[q->reduction]);
    if (q->dim >= 0)
        snprintf(dim, sizeof dim, " to dimension %d", q->dim);
    print_pairs(pairs_text, sizeof pairs_text, q);
    size_t size = strlen(q->axes) + strlen(layout) + strlen(type) + 200 + PAIRS_TEXT;
    char *text = malloc(size);
    if (text && q->is_barrier)
        snprintf(text, size, "%s over '%s'", q->name, q->axes);
    else if (text)
        snprintf(text, size, "%s%s of %s '%s'%s%s over '%s' %llx %llx", q->name, pairs_text, type, layout, reduction,
                 dim, q->axes, (unsigned long long)from, (unsigned long long)pairs);
    return text;
}

static void free_call(const clv_spmd *spmd, clv_spmd_cached_collective *call)
{
    spmd->context->session->transport->release(call->prepared);
    free(call->owned_source_ranks);
    free(call->text);
    free(call->what);
    free(call);
}

void clv_spmd_free_cached_collectives(clv_spmd *spmd)
{
    for (clv_spmd_cached_collective *call = spmd->cache, *next; call; call = next) {
        next = call->next;
        free_call(spmd, call);
    }
    free(spmd->staging);
    free(spmd->called);
}

static clv_status prepare_collective(clv_spmd_cached_collective *call, clv_spmd *spmd, const clv_spmd_request *q,
                                     const clv_spmd_group_set *group_set, clv_shard *shards, clv_error *err)
{
    const clv_session *session = spmd->context->session;
    const clv_mesh *mesh = &session->mesh;
    const clv_group *group = clv_comm_group(spmd->comm, group_set->group_set);
    clv_shard *out = shards + group->n;
    int64_t staging = 0;
    for (int m = 0; m < group->n; m++) {
        shards[m] = shard_at(mesh, &q->in->type, &q->in->layout, q->in->source_ranks, group->ranks[m]);
        out[m] = shard_at(mesh, &q->in->type, &call->layout, call->source_ranks, group->ranks[m]);
    }
    if (!clv_shard_equal(&q->in->shard, &shards[group->me]))
        return clv_fail(err, CLV_EINVAL, "%s: the local's shard is not that of its layout on this rank", q->name);
    clv_group_shards parts = {.n = group->n, .reduces = clv_step_reduces(q->kind), .in = shards, .out = out};
    call->shard = out[group->me];
    if (q->kind == CLV_STEP_PERMUTE)
        find_runs(&parts, shards, out, q, group);
    CLV_TRY(check_cover(q, &parts, mesh, group->me, err));
    call->info = (clv_collective){.kind = clv_step_name(q->kind),
                                  .n_axes = group_set->n,
                                  .bytes = bytes_of(call, q, spmd, group->n),
                                  .from = q->in->layout,
                                  .to = call->layout,
                                  .type = q->in->type};
    memcpy(call->info.axes, group_set->axes, (size_t)group_set->n * sizeof *group_set->axes);
    clv_transfer transfer = {.what = call->what,
                             .tag = call->hash,
                             .group = group,
                             .dtype = q->in->type.dtype,
                             .reduction = parts.reduces ? q->reduction : CLV_REDUCTION_NONE,
                             .parts = parts};
    CLV_TRY(session->transport->prepare(&call->prepared, spmd->comm, &transfer, &staging, err));
    if (staging > spmd->staging_bytes) {
        void *more = clv_staging_alloc(staging);
        if (!more)
            return clv_fail_memory(err, "a rank's staging", (size_t)staging);
        free(spmd->staging);
        spmd->staging = more;
        spmd->staging_bytes = staging;
    }
    return CLV_OK;
}

/* Plans a call whose cache key and memory are allocated; shards: scratch for two per rank. */
static clv_status plan_collective(clv_spmd_cached_collective *call, clv_spmd *spmd, const clv_spmd_request *q,
                                  clv_shard *shards, clv_error *err)
{
    const clv_spmd_group_set *group_set;
    snprintf(call->what, WHAT_BYTES, "%.*s", (int)(strrchr(call->text, '\'') + 1 - call->text), call->text);
    CLV_TRY(clv_spmd_parse_group_set(&group_set, spmd, q->axes, err));
    if (q->kind == CLV_STEP_PERMUTE)
        CLV_TRY(check_pairs(q, (int)size_of(group_set), err));
    CLV_TRY(find_layout(&call->layout, q, &spmd->context->session->mesh, group_set, err));
    if (q->kind == CLV_STEP_PERMUTE)
        CLV_TRY(find_source_ranks(call, q, spmd, group_set, err));
    call->zeros = q->kind == CLV_STEP_PERMUTE && source_of(q, clv_comm_group(spmd->comm, group_set->group_set)->me) < 0;
    return prepare_collective(call, spmd, q, group_set, shards, err);
}

clv_status clv_spmd_find_or_plan_collective(clv_spmd_cached_collective **out, clv_spmd *spmd, const clv_spmd_request *q,
                                            clv_error *err)
{
    char *text = cache_key(q, &spmd->context->session->mesh);
    if (!text)
        return clv_fail_memory(err, "a collective", 256);
    uint64_t hash = clv_hash_bytes(text, strlen(text));
    for (clv_spmd_cached_collective *call = spmd->cache; call; call = call->next)
        if (call->hash == hash && strcmp(call->text, text) == 0) {
            free(text);
            *out = call;
            return CLV_OK;
        }
    clv_spmd_cached_collective *call = calloc(1, sizeof *call);
    if (!call) {
        free(text);
        return clv_fail_memory(err, "a collective", sizeof *call);
    }
    *call = (clv_spmd_cached_collective){
        .hash = hash, .text = text, .what = malloc(WHAT_BYTES), .source_ranks = q->in->source_ranks};
    clv_shard *shards = malloc(2 * (size_t)spmd->context->session->n_ranks * sizeof *shards);
    clv_status status = call->what && shards ? plan_collective(call, spmd, q, shards, err)
                                             : clv_fail_memory(err, "a collective", sizeof *call);
    free(shards);
    if (status != CLV_OK) {
        free_call(spmd, call);
        return status;
    }
    call->next = spmd->cache;
    *out = spmd->cache = call;
    return CLV_OK;
}
