/* session_state.c - named session state (parameters, optimizer moments): initializes, reshards, reads and writes it. */
#include "base/hash.h"
#include "base/memory/grow.h"
#include "runtime/checks/guard_bytes.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/run_bindings.h"
#include "runtime/session/session_internal.h"
#include "tensor/box_runs.h"

/* NULL: none. */
static clv_named_state *lookup(const clv_session *session, const char *name)
{
    for (int i = 0; i < session->n_states; i++)
        if (strcmp(session->states[i].name, name) == 0)
            return &session->states[i];
    return NULL;
}

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err)
{
    *out = lookup(session, name);
    if (*out)
        return CLV_OK;
    clv_error why = {.rank = -1};
    if (clv_session_has_failed(session) &&
        clv_rank_threads_run(session->team, NULL, NULL, &why) != CLV_OK) /* which may be why it is missing */
        return clv_fail_at(err, why.code, why.rank, why.op, "there is no state named '%.100s', after a failure: %.300s",
                           name, why.message);
    return clv_fail(err, CLV_ENOTFOUND, "there is no state named '%s'", name);
}

clv_status clv_session_state(const clv_session *session, int i, clv_state_info *out, clv_error *err)
{
    CLV_TRY(clv_require(session && out, __func__, "a session and out", err));
    CLV_TRY(clv_require_count(i, 0, __func__, "as the number of a state", err));
    clv_state_info info = {0};
    if (i < session->n_states) {
        const clv_named_state *state = &session->states[i];
        info = (clv_state_info){.name = state->name, .type = state->type, .layout = state->layout};
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

/* ---- memory ---- */

clv_status clv_session_register_memory(clv_window **out, const clv_session *session, void *const *memory,
                                       clv_error *err)
{
    *out = NULL;
    if (!session->transport->add_window)
        return CLV_OK;
    return session->transport->add_window(out, clv_rank_threads_world(session->team), memory, err);
}

/* Guard bytes before and after the state of a session with memory checks. */
static int64_t guard_bytes_of(const clv_session *session)
{
    return session->options.check ? CLV_GUARD_BYTES : 0;
}

static void free_state(const clv_session *session, clv_named_state *state)
{
    if (state->window)
        session->transport->free_window(state->window);
    for (int r = 0; state->data && r < session->n_local_ranks; r++)
        if (state->data[r])
            session->backend->free(session->devices[r], (char *)state->data[r] - guard_bytes_of(session));
    free(state->data);
    free(state->name);
}

clv_status clv_session_allocate_state(clv_named_state *out, const clv_session *session, const char *name,
                                      const clv_type *type, const clv_layout *layout, bool first_replicas,
                                      clv_error *err)
{
    int64_t planned = clv_largest_shard_bytes(type, layout), guard = guard_bytes_of(session);
    size_t bytes = planned > 0 || guard > 0 ? (size_t)(planned + 2 * guard) : CLV_BUFFER_ALIGN;
    *out = (clv_named_state){.name = strdup(name), .type = *type, .layout = *layout};
    out->data = calloc((size_t)session->n_local_ranks, sizeof *out->data);
    clv_status status = out->name && out->data ? CLV_OK : clv_fail_memory(err, "a state's record", sizeof *out);
    for (int r = 0; status == CLV_OK && r < session->n_local_ranks; r++) {
        const int rank = session->first_local_rank + r;
        if (!clv_layout_has_rank(layout, &session->mesh, rank) ||
            (first_replicas && !clv_rank_is_first_replica(layout, &session->mesh, type->shape, rank)))
            continue;
        char *base = session->backend->alloc(session->devices[r], CLV_BUFFER_ALIGN, bytes);
        if (!base)
            status = clv_fail_memory(err, "state", bytes);
        else if (session->options.check)
            clv_guard_bytes_fill(base, (int64_t)bytes);
        out->data[r] = base ? base + guard : NULL;
    }
    if (status == CLV_OK && session->transport)
        status = clv_session_register_memory(&out->window, session, out->data, err);
    if (status != CLV_OK)
        free_state(session, out);
    return status;
}

void clv_session_free_states(clv_session *session)
{
    for (int i = 0; i < session->n_states; i++)
        free_state(session, &session->states[i]);
    if (session->abandoned)
        free_state(session, &session->abandoned->state);
    free(session->states);
}

/* ---- initial values ---- */

/* Fills a shard run by run: values depend only on the key and the global index. */
static void initialize_shard(const clv_state_values *from, uint64_t seed, const clv_type *type, const clv_shard *shard,
                             char *data)
{
    enum { CHUNK = 1024 };
    clv_key key = clv_key_fold_in(clv_key_seed(seed), clv_hash_text(from->name));
    int64_t size = (int64_t)clv_dtype_size(type->dtype);
    float values[CHUNK];
    for (clv_box_runs runs = clv_box_runs_begin(type->shape, shard); !runs.done; clv_box_runs_next(&runs))
        for (int64_t at = 0; at < runs.run_elems; at += CHUNK) {
            int64_t n = runs.run_elems - at < CHUNK ? runs.run_elems - at : CHUNK;
            clv_init_fill(values, *from->init, key, (uint64_t)(runs.first + at), n);
            clv_dtype_convert(type->dtype, data, CLV_F32, values, n);
            data += n * size;
        }
}

/* Fills host memory. */
static clv_status fill_shard(const clv_session *session, const clv_named_state *state, const clv_state_values *from,
                             int rank, void *data, clv_error *err)
{
    clv_shard shard = clv_layout_shard(&state->layout, &session->mesh, state->type.shape, rank);
    clv_error why = {.rank = -1};
    clv_status status = CLV_OK;
    int known = 0;
    if (clv_cancel_requested(session->options.cancel))
        return clv_fail(err, CLV_ECANCELLED, "loading was cancelled before %s", from->name);
    if (from->source) {
        status = from->source(from->source_arg, from->name, &state->type, &shard, data, &known, &why);
        status = clv_check_callback_status(&why, status, "the source of first values");
    }
    if (status != CLV_OK && err && why.code != CLV_OK)
        *err = why;
    if (status == CLV_OK && !known && !from->init)
        return clv_fail(err, CLV_ENOTFOUND, "state '%.100s' is not there", from->name);
    if (status == CLV_OK && !known)
        initialize_shard(from, session->options.seed, &state->type, &shard, data);
    return status;
}

clv_status clv_session_fill_state(const clv_session *session, const clv_named_state *state,
                                  const clv_state_values *from, int rank, clv_error *err)
{
    const clv_device *device = session->devices[rank - session->first_local_rank];
    void *data = state->data[rank - session->first_local_rank];
    if (!data) /* it is on other pipeline stages */
        return CLV_OK;
    int64_t bytes = clv_largest_shard_bytes(&state->type, &state->layout);
    if (device->backend->is_host)
        return fill_shard(session, state, from, rank, data, err);
    CLV_FREED void *host = clv_staging_alloc(bytes > 0 ? bytes : 1);
    if (!host)
        return clv_fail_memory(err, "the values of a state", (size_t)bytes);
    CLV_TRY(fill_shard(session, state, from, rank, host, err));
    return clv_device_copy_bytes(device, CLV_COPY_FROM_HOST, data, host, bytes, err);
}

typedef struct init_job {
    const clv_session *session;
    const clv_named_state *state;
    clv_state_values from;
} init_job;

static clv_status init_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const init_job *job = arg;
    return clv_session_fill_state(job->session, job->state, &job->from, rank, err);
}

/* Frees a state that could not be filled; after a failure a late rank may still use it, so it is abandoned. */
static void drop_state(const clv_session *session, clv_named_state *state)
{
    if (clv_session_has_failed(session))
        session->abandoned->state = *state;
    else
        free_state(session, state);
}

static clv_status make_state(clv_session *session, const clv_buffer *buffer, clv_error *err)
{
    clv_named_state *state;
    CLV_TRY(
        clv_grow(&session->states, &session->states_capacity, session->n_states + 1, sizeof *state, "a state", err));
    state = &session->states[session->n_states];
    CLV_TRY(clv_session_allocate_state(state, session, buffer->name, &buffer->type, &buffer->layout, false, err));
    init_job job = {.session = session,
                    .state = state,
                    .from = {.source = session->options.source,
                             .source_arg = session->options.source_arg,
                             .name = buffer->init_name ? buffer->init_name : buffer->name,
                             .init = &buffer->init}};
    clv_status status = clv_rank_threads_run(session->team, init_rank, &job, err);
    if (status != CLV_OK) {
        drop_state(session, state);
        return status;
    }
    session->n_states++;
    return CLV_OK;
}

/* ---- resharding ---- */

static clv_status copy_state(const clv_session *session, const clv_named_state *from, const clv_named_state *to,
                             clv_error *err)
{
    int n = session->n_ranks;
    CLV_FREED clv_shard *shards = malloc(2 * (size_t)n * sizeof *shards);
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
    return clv_session_exchange(session, &x, err);
}

static clv_status move_state(clv_session *session, clv_named_state *state, const clv_layout *to, clv_error *err)
{
    clv_named_state moved;
    CLV_TRY(clv_session_allocate_state(&moved, session, state->name, &state->type, to, false, err));
    clv_status status = copy_state(session, state, &moved, err);
    if (status != CLV_OK) {
        drop_state(session, &moved);
        return status;
    }
    char *name = state->name; /* callers may have it: clv_state_info */
    state->name = moved.name;
    moved.name = name;
    free_state(session, state);
    *state = moved;
    return CLV_OK;
}

static clv_status fail_type(const clv_named_state *state, const clv_type *type, clv_error *err)
{
    char is[CLV_TYPE_TEXT], other[CLV_TYPE_TEXT];
    clv_type_print(is, sizeof is, &state->type);
    clv_type_print(other, sizeof other, type);
    return clv_fail(err, CLV_ESHAPE,
                    "the session has state '%.200s' as %s, the program has it as %s; valid: another session, or "
                    "another name",
                    state->name, is, other);
}

static clv_status prepare_state(clv_session *session, const clv_buffer *buffer, clv_error *err)
{
    clv_named_state *state = lookup(session, buffer->name);
    if (!state)
        return make_state(session, buffer, err);
    if (!clv_type_equal(&state->type, &buffer->type))
        return fail_type(state, &buffer->type, err);
    if (clv_layout_equal(&state->layout, &buffer->layout))
        return CLV_OK;
    for (int i = 0; i < session->n_loaded; i++)
        clv_loaded_program_release_collectives(session->loaded[i]);
    return move_state(session, state, &buffer->layout, err);
}

clv_status clv_session_prepare_states(clv_session *session, const clv_program *program, clv_error *err)
{
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_STATE)
            CLV_TRY(prepare_state(session, &program->buffers[b], err));
    return CLV_OK;
}

/* ---- reading and writing ---- */

static clv_status check_box(clv_shard *out, const clv_named_state *state, const clv_shard *box, clv_error *err)
{
    char text[CLV_BOX_TEXT], type[CLV_TYPE_TEXT];
    *out = box ? *box : clv_box_of_type(&state->type);
    if (clv_box_within(out, state->type.rank, state->type.shape))
        return CLV_OK;
    clv_box_print(text, sizeof text, out);
    clv_type_print(type, sizeof type, &state->type);
    return clv_fail(err, CLV_ESHAPE, "the box %s is not inside the state '%.100s', %s", text, state->name, type);
}

static clv_status read_state(const clv_session *session, const char *name, const clv_shard *box, void *out,
                             clv_error *err)
{
    clv_named_state *state;
    clv_shard asked;
    CLV_TRY(clv_session_find_state(&state, session, name, err));
    CLV_TRY(check_box(&asked, state, box, err));
    /* after a failure only what this process holds can be read */
    if (!clv_session_shares_memory(session) && !clv_session_has_failed(session))
        return clv_session_fetch(session, clv_hash_text(name), state, session->devices, &asked, out, err);
    clv_error first = {0}, why = {0};
    clv_status status = clv_session_copy_local(session, state, session->devices, &asked, out, &why);
    if (status == CLV_EPEER && clv_world_has_failed(clv_rank_threads_world(session->team), &first))
        return clv_fail_at(err, status, first.rank, first.op, "%.200s, which cannot be read after a failure: %.280s",
                           why.message, first.message);
    if (err && status != CLV_OK)
        *err = why;
    return status;
}

clv_status clv_session_read(const clv_session *session, const char *name, const clv_shard *box, void *out,
                            clv_error *err)
{
    CLV_TRY(clv_require(session && name && out, __func__, "a session, a name and out", err));
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = read_state(session, name, box, out, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, __func__, status, &why, err);
}

/* Processes must write the same, so that replicas stay equal. */
static clv_status compare_writes(const clv_session *session, const clv_named_state *state, const clv_shard *box,
                                 const void *in, clv_error *err)
{
    if (!clv_session_is_multi_process(session))
        return CLV_OK;
    size_t ends = (size_t)box->rank * sizeof *box->lo,
           bytes = (size_t)clv_shard_elems(box) * clv_dtype_size(state->type.dtype);
    uint64_t bounds[] = {clv_hash_bytes(box->lo, ends), clv_hash_bytes(box->hi, ends)};
    const clv_must_match mine[] = {
        {clv_hash_text(state->name), "state than the other ranks write; valid: the same name in every process"},
        {(int64_t)clv_hash_bytes(bounds, sizeof bounds),
         "box than the other ranks write; valid: the same in every process"},
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
    CLV_TRY(clv_require(session && name && in, __func__, "a session, a name and in", err));
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = write_state(session, name, box, in, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, __func__, status, &why, err);
}
