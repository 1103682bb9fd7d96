/* session_state.c - named session state (parameters, optimizer moments): initializes, reshards, reads and writes it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "base/hash.h"
#include "runtime/session/run_bindings.h"
#include "runtime/session/session_internal.h"
#include "runtime/multi_process/local_ranks.h"

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err)
{
    for (int i = 0; i < session->n_states; i++)
        if (strcmp(session->states[i].name, name) == 0) {
            *out = &session->states[i];
            return CLV_OK;
        }
    clv_error why = {.rank = -1};
    if (clv_session_failed(session) &&
        clv_rank_threads_run(session->team, NULL, NULL, &why) != CLV_OK) /* which may be why */
        return clv_fail_at(err, why.code, why.rank, why.op, "there is no state named '%.100s', after a failure: %.300s",
                           name, why.message);
    return clv_fail(err, CLV_ENOTFOUND, "there is no state named '%s'", name);
}

clv_status clv_session_state(const clv_session *session, int i, clv_state_info *out, clv_error *err)
{
    static const char call[] = "clv_session_state";
    CLV_TRY(clv_require(session && out, call, "a session and out", err));
    CLV_TRY(clv_require_count(i, 0, call, "as the number of a state", err));
    clv_state_info info = {0};
    if (i < session->n_states) {
        const clv_named_state *state = &session->states[i];
        info = (clv_state_info){.name = state->name, .type = state->type, .layout = state->layout};
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, call, err);
}

bool clv_rank_is_first_replica(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank)
{
    clv_shard mine = clv_layout_shard(layout, mesh, shape, rank);
    for (int r = 0; r < rank; r++) {
        clv_shard other = clv_layout_shard(layout, mesh, shape, r);
        size_t bytes = (size_t)mine.rank * sizeof *mine.lo;
        if (memcmp(mine.lo, other.lo, bytes) == 0 && memcmp(mine.hi, other.hi, bytes) == 0)
            return false;
    }
    return true;
}

void clv_session_free_states(clv_session *session)
{
    for (int i = 0; i < session->n_states; i++) {
        free(session->states[i].name);
        clv_session_free_state(session, &session->states[i]);
    }
    free(session->states);
}

/* ---- first values ---- */

typedef struct init_job {
    const clv_session *session;
    const clv_named_state *state;
    const char *name; /* that first values go by */
    clv_init init;
} init_job;

/* Fills runs that are contiguous in the whole tensor; values depend on key and global index alone. */
static void fill_shard(const init_job *job, const clv_shard *shard, void *data)
{
    enum { CHUNK = 1024 };
    clv_key key = clv_key_fold_in(clv_key_seed(job->session->seed), clv_hash_text(job->name));
    const clv_type *type = &job->state->type;
    float values[CHUNK];
    int64_t index[CLV_MAX_RANK] = {0}, elems = clv_shard_elems(shard), done = 0;
    int last = type->rank - 1;
    int64_t run = last >= 0 ? shard->hi[last] - shard->lo[last] : 1;
    while (done < elems) {
        uint64_t first = 0;
        for (int d = 0; d < type->rank; d++)
            first = first * (uint64_t)type->shape[d] + (uint64_t)(shard->lo[d] + (d == last ? 0 : index[d]));
        for (int64_t at = 0; at < run; at += CHUNK) {
            int64_t n = run - at < CHUNK ? run - at : CHUNK;
            clv_init_fill(values, job->init, key, first + (uint64_t)at, n);
            clv_dtype_convert(type->dtype, (char *)data + (done + at) * (int64_t)clv_dtype_size(type->dtype), CLV_F32,
                              values, n);
        }
        done += run;
        for (int d = last - 1; d >= 0 && ++index[d] == shard->hi[d] - shard->lo[d]; d--)
            index[d] = 0;
    }
}

static clv_status make_first_values(const init_job *job, int rank, void *data, clv_error *err)
{
    const clv_session *session = job->session;
    clv_shard shard = clv_layout_shard(&job->state->layout, &session->mesh, job->state->type.shape, rank);
    int known = 0;
    if (clv_cancel_requested(session->cancel))
        return clv_fail(err, CLV_ECANCELLED, "loading was cancelled before %s", job->name);
    if (session->source) {
        clv_error why = {.rank = -1};
        clv_status status =
            session->source(session->source_arg, job->name, &job->state->type, &shard, data, &known, &why);
        status = clv_check_callback_status(&why, status, "the source of first values");
        if (status != CLV_OK && err && why.code != CLV_OK)
            *err = why;
        if (status != CLV_OK)
            return status;
    }
    if (!known)
        fill_shard(job, &shard, data);
    return CLV_OK;
}

/* First values are made in host memory: the rank's own, or some that is copied from. */
static clv_status init_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    (void)comm;
    const init_job *job = arg;
    const clv_device *device = job->session->devices[rank - job->session->first_local_rank];
    void *data = job->state->data[rank - job->session->first_local_rank];
    int64_t bytes = clv_shard_bytes(&job->state->type, &job->state->layout);
    if (device->backend->is_host)
        return make_first_values(job, rank, data, err);
    void *host = clv_staging_alloc(bytes > 0 ? bytes : 1);
    if (!host)
        return clv_fail_memory(err, "the first values of a state", (size_t)bytes);
    clv_status status = make_first_values(job, rank, host, err);
    if (status == CLV_OK)
        status = clv_device_copy_bytes(device, CLV_COPY_FROM_HOST, data, host, bytes, err);
    free(host);
    return status;
}

/* State whose values were not brought is freed, or left while a rank may yet be in it: its memory holds anything. */
static void drop_state(const clv_session *session, clv_named_state *state)
{
    if (clv_session_failed(session))
        session->abandoned->state = *state;
    else
        clv_session_free_state(session, state);
}

static clv_status make_state(clv_session *session, const clv_buffer *buffer, clv_error *err)
{
    clv_named_state *grown = realloc(session->states, ((size_t)session->n_states + 1) * sizeof *grown);
    if (!grown)
        return clv_fail_memory(err, "a state's record", sizeof *grown);
    session->states = grown;
    clv_named_state *state = &session->states[session->n_states];
    *state = (clv_named_state){.type = buffer->type, .layout = buffer->layout};
    CLV_TRY(clv_session_allocate_state(state, session, err));
    state->name = malloc(strlen(buffer->name) + 1);
    if (!state->name) {
        clv_session_free_state(session, state);
        return clv_fail_memory(err, "a state's name", strlen(buffer->name));
    }
    memcpy(state->name, buffer->name, strlen(buffer->name) + 1);
    init_job job = {.session = session,
                    .state = state,
                    .name = buffer->init_name ? buffer->init_name : buffer->name,
                    .init = buffer->init};
    clv_status status = clv_rank_threads_run(session->team, init_rank, &job, err);
    if (status != CLV_OK) {
        free(state->name);
        drop_state(session, state);
        return status;
    }
    session->n_states++;
    session->rank_bytes += clv_shard_bytes(&state->type, &state->layout);
    return CLV_OK;
}

/* ---- between layouts ---- */

static clv_status copy_state(const clv_session *session, const clv_named_state *from, const clv_named_state *to,
                             clv_error *err)
{
    int n = session->n_ranks;
    clv_shard *shards = malloc(2 * (size_t)n * sizeof *shards);
    if (!shards)
        return clv_fail_memory(err, "the shards of a state", 2 * (size_t)n * sizeof *shards);
    for (int r = 0; r < n; r++) {
        shards[r] = clv_layout_shard(&from->layout, &session->mesh, from->type.shape, r);
        shards[n + r] = clv_layout_shard(&to->layout, &session->mesh, to->type.shape, r);
    }
    clv_rank_exchange x = {.what = "a change of state's layout",
                           .tag = clv_hash_text(from->name),
                           .dtype = from->type.dtype,
                           .in = shards,
                           .out = shards + n,
                           .in_data = from->data,
                           .out_data = to->data,
                           .in_devices = session->devices,
                           .out_devices = session->devices,
                           .in_window = from->window,
                           .out_window = to->window};
    clv_status status = clv_session_exchange(session, &x, err);
    free(shards);
    return status;
}

static clv_status move_state(clv_session *session, clv_named_state *state, const clv_layout *to, clv_error *err)
{
    clv_named_state moved = {.name = state->name, .type = state->type, .layout = *to};
    CLV_TRY(clv_session_allocate_state(&moved, session, err));
    clv_status status = copy_state(session, state, &moved, err);
    if (status != CLV_OK) {
        drop_state(session, &moved);
        return status;
    }
    clv_session_free_state(session, state);
    session->rank_bytes += clv_shard_bytes(&state->type, to) - clv_shard_bytes(&state->type, &state->layout);
    *state = moved;
    return CLV_OK;
}

static clv_status fail_type(const clv_named_state *state, const clv_type *wanted, clv_error *err)
{
    char is[CLV_TYPE_TEXT], other[CLV_TYPE_TEXT];
    clv_type_print(is, sizeof is, &state->type);
    clv_type_print(other, sizeof other, wanted);
    return clv_fail(err, CLV_ESHAPE,
                    "the session has state '%.200s' as %s, the program wants it as %s; valid: a session of its own, or "
                    "another name",
                    state->name, is, other);
}

static clv_status bring_state(clv_session *session, const clv_buffer *buffer, clv_error *err)
{
    clv_named_state *state = NULL;
    for (int i = 0; i < session->n_states; i++)
        if (strcmp(session->states[i].name, buffer->name) == 0)
            state = &session->states[i];
    if (!state)
        return make_state(session, buffer, err);
    if (!clv_type_equal(&state->type, &buffer->type))
        return fail_type(state, &buffer->type, err);
    if (clv_layout_equal(&state->layout, &buffer->layout))
        return CLV_OK;
    for (int i = 0; i < session->n_loaded; i++)
        clv_loaded_program_unmap(session->loaded[i]);
    return move_state(session, state, &buffer->layout, err);
}

clv_status clv_session_prepare_states(clv_session *session, const clv_program *program, clv_error *err)
{
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_STATE)
            CLV_TRY(bring_state(session, &program->buffers[b], err));
    return CLV_OK;
}

/* ---- the caller's hands ---- */

static clv_status fail_box(const clv_named_state *state, const clv_shard *box, clv_error *err)
{
    char text[CLV_BOX_TEXT], type[CLV_TYPE_TEXT];
    clv_box_print(text, sizeof text, box);
    clv_type_print(type, sizeof type, &state->type);
    return clv_fail(err, CLV_ESHAPE, "the box %s is not inside the state '%.100s', %s", text, state->name, type);
}

static clv_status check_box(clv_shard *out, const clv_named_state *state, const clv_shard *box, clv_error *err)
{
    *out = box ? *box : clv_box_of_type(&state->type);
    if (!clv_box_inside(out, &state->type))
        return fail_box(state, out, err);
    return CLV_OK;
}

static clv_status read_state(const clv_session *session, const char *name, const clv_shard *box, void *out,
                             clv_error *err)
{
    clv_named_state *state;
    clv_shard want;
    CLV_TRY(clv_session_find_state(&state, session, name, err));
    CLV_TRY(check_box(&want, state, box, err));
    /* After a failure only what this process holds can be had. */
    if (!clv_session_shares_memory(session) && !clv_session_failed(session))
        return clv_session_fetch(session, clv_hash_text(name), &state->type, &state->layout, session->devices,
                                 state->data, &want, out, err);
    clv_error first = {0}, why = {0};
    clv_status status = clv_session_copy_local(session, name, &state->type, &state->layout, session->devices,
                                               state->data, &want, out, &why);
    if (status == CLV_EPEER && clv_world_failed(clv_rank_threads_world(session->team), &first))
        return clv_fail_at(err, status, first.rank, first.op, "%.200s, which is not reached after a failure: %.280s",
                           why.message, first.message);
    if (err && status != CLV_OK)
        *err = why;
    return status;
}

clv_status clv_session_read(const clv_session *session, const char *name, const clv_shard *box, void *out,
                            clv_error *err)
{
    static const char call[] = "clv_session_read";
    CLV_TRY(clv_require(session && name && out, call, "a session, a name and out", err));
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_acquire(session, call, err));
    clv_status status = read_state(session, name, box, out, &why);
    clv_session_release(session);
    return clv_session_finish_call(session, call, status, &why, err);
}

/* Replicas in several processes stay replicas. */
static clv_status compare_writes(const clv_session *session, const clv_named_state *state, const clv_shard *box,
                                 const void *in, clv_error *err)
{
    if (!clv_session_is_multi_process(session))
        return CLV_OK;
    size_t ends = (size_t)box->rank * sizeof *box->lo,
           bytes = (size_t)clv_shard_elems(box) * clv_dtype_size(state->type.dtype);
    uint64_t cut[] = {clv_hash_bytes(box->lo, ends), clv_hash_bytes(box->hi, ends)};
    const clv_must_match mine[] = {
        {clv_hash_text(state->name), "state than the other ranks write; valid: the same name in every process"},
        {(int64_t)clv_hash_bytes(cut, sizeof cut), "box than the other ranks write; valid: the same in every process"},
        {(int64_t)clv_hash_bytes(in, bytes), "value than the other ranks write; valid: the same in every process"}};
    return clv_session_check_match(session, "clv_session_write", "a comparison of what is written", mine, 3, err);
}

static clv_status write_state(const clv_session *session, const char *name, const clv_shard *box, const void *in,
                              clv_error *err)
{
    clv_named_state *state;
    clv_shard given;
    CLV_TRY(clv_session_find_state(&state, session, name, err));
    CLV_TRY(check_box(&given, state, box, err));
    CLV_TRY(compare_writes(session, state, &given, in, err));
    for (int i = 0; i < session->n_local_ranks; i++) {
        clv_shard has =
            clv_layout_shard(&state->layout, &session->mesh, state->type.shape, session->first_local_rank + i);
        clv_shard common = clv_shard_intersect(&given, &has);
        CLV_TRY(session->backend->copy(session->devices[i], CLV_COPY_FROM_HOST, state->data[i], &has, in, &given,
                                       &common, clv_dtype_size(state->type.dtype), err));
    }
    return CLV_OK;
}

clv_status clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                             clv_error *err)
{
    static const char call[] = "clv_session_write";
    CLV_TRY(clv_require(session && name && in, call, "a session, a name and in", err));
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_acquire(session, call, err));
    clv_status status = write_state(session, name, box, in, &why);
    clv_session_release(session);
    return clv_session_finish_call(session, call, status, &why, err);
}
