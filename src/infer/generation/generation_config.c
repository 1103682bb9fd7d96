/* generation_config.c - reads generation_config.json: sampling defaults, EOS ids, stop strings, length limits. */
#include "cleave/generate.h"

#include <math.h>

#include "base/memory/arena.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "models/model.h"

enum { FILE_LIMIT = 1 << 20 };
static const char own_file[] = CLV_GENERATION_FILE, model_file[] = "config.json";

/* What a config is loaded_config of; it comes first, so that a pointer to it is one to all. */
typedef struct loaded_config {
    clv_generation_config config;
    clv_arena *arena;
    clv_sampling sampling;
    const char **value, **unsupported; /* [VALUES], [UNSUPPORTED] */
} loaded_config;

typedef struct reader {
    loaded_config *to;
    const json_t *object;
    const char *where; /* the file's path */
    clv_error *err;
} reader;

static const json_t *find(const reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

static clv_status fail_memory(const reader *r)
{
    return clv_fail_memory(r->err, r->where, FILE_LIMIT);
}

/* ---- settings as text ---- */

/* "temperature 0.6" */
static const char *setting_text(const reader *r, const char *key, const json_t *value)
{
    enum { MOST = 60 };
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    if (!text)
        return NULL;
    const char *setting =
        clv_arena_format(r->to->arena, "%s %.*s%s", key, MOST, text, strlen(text) > MOST ? " ..." : "");
    free(text);
    return setting;
}

static clv_status add_text(const reader *r, const char *text)
{
    if (!text)
        return fail_memory(r);
    r->to->value[r->to->config.n_values++] = text;
    return CLV_OK;
}

static clv_status add_value(const reader *r, const char *key)
{
    const json_t *value = find(r, key);
    return value ? add_text(r, setting_text(r, key, value)) : CLV_OK;
}

/* ---- sampling ---- */

typedef struct bounds {
    const char *key;
    double lo, hi;
    bool above; /* excludes lo */
    const char *valid;
} bounds;

static const bounds of_temperature = {"temperature", 0, INFINITY, false, "0 (greedy) and above"},
                    of_top_p = {"top_p", 0, 1, false, "0 (the likeliest alone) to 1 (all)"},
                    of_min_p = {"min_p", 0, 1, false, "0 (all) to 1"},
                    of_penalty = {"repetition_penalty", 0, INFINITY, true, "above 0; 1 is none"};

static clv_status read_number(double *out, const reader *r, const bounds *b)
{
    const json_t *value = find(r, b->key);
    double v = json_number_value(value);
    if (!value)
        return CLV_OK;
    if (!json_is_number(value))
        return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" must be a number; valid: %s", r->where, b->key, b->valid);
    if (!(v >= b->lo && v <= b->hi) || isinf(v) || (b->above && v == b->lo))
        return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" is %g; valid: %s", r->where, b->key, v, b->valid);
    *out = v;
    return CLV_OK;
}

static clv_status read_sampling_numbers(clv_sampling *s, const reader *r)
{
    CLV_TRY(read_number(&s->temperature, r, &of_temperature));
    CLV_TRY(clv_json_get_int(&s->top_k, r->object, "top_k", CLV_JSON_OPTIONAL, 0, INT64_MAX, r->where, r->err));
    CLV_TRY(read_number(&s->top_p, r, &of_top_p));
    CLV_TRY(read_number(&s->min_p, r, &of_min_p));
    if (s->top_p == 0)
        s->top_p = 1e-300; /* 0 would keep all */
    return CLV_OK;
}

static bool has_any(const reader *r, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (find(r, keys[i]))
            return true;
    return false;
}

/* If one of these keys is set, the others have transformers' defaults. Greedy decoding uses only the penalty: the other
 * keys then apply when the caller sets a temperature, so invalid values are replaced by the defaults. */
static clv_status read_sampling(const reader *r)
{
    static const char *const keys[] = {"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
    enum { KEYS = sizeof keys / sizeof *keys };
    const clv_sampling defaults = {.size = sizeof defaults, .temperature = 1, .top_k = 50, .top_p = 1};
    clv_sampling *s = &r->to->sampling;
    bool draws = false;
    if (!has_any(r, keys, KEYS))
        return CLV_OK;
    *s = defaults;
    CLV_TRY(clv_json_get_bool(&draws, r->object, keys[0], CLV_JSON_OPTIONAL, r->where, r->err));
    const reader lenient = {r->to, r->object, r->where, NULL};
    clv_status status = read_sampling_numbers(s, draws ? r : &lenient);
    if (draws)
        CLV_TRY(status);
    else if (status != CLV_OK)
        *s = defaults;
    CLV_TRY(read_number(&s->repetition_penalty, r, &of_penalty));
    if (!find(r, keys[0]))
        CLV_TRY(add_text(r, "do_sample false by default"));
    for (int i = 0; i < KEYS; i++)
        CLV_TRY(add_value(r, keys[i]));
    if (draws && !find(r, "top_k"))
        CLV_TRY(add_text(r, "top_k 50 by default"));
    s->temperature = draws ? s->temperature : 0;
    r->to->config.sampling = s;
    return CLV_OK;
}

/* ---- end of text ---- */

static clv_status read_token(int64_t *out, const reader *r, const json_t *value)
{
    double v = json_number_value(value);
    if (!json_is_number(value) || v != floor(v))
        return clv_fail(r->err, CLV_EFORMAT, "%s: \"eos_token_id\" must be a token's id, or a list of ids", r->where);
    *out = fabs(v) < INT32_MAX ? (int64_t)v : -1;
    return CLV_OK;
}

/* Ids outside the vocabulary are dropped. has_end: config.json has an eos_token_id, which does not count. */
static clv_status read_ends(const reader *r, int64_t vocab, bool has_end)
{
    const json_t *value = find(r, "eos_token_id");
    size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    int64_t *ids = clv_arena_alloc(r->to->arena, n + 1, sizeof *ids), id, kept = 0;
    if (!ids)
        return fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        CLV_TRY(read_token(&id, r, json_is_array(value) ? json_array_get(value, i) : value));
        if (id >= 0 && id < vocab)
            ids[kept++] = id;
    }
    r->to->config.eos = ids;
    r->to->config.n_eos = kept;
    return value ? add_value(r, "eos_token_id") : has_end ? add_text(r, "eos_token_id none") : CLV_OK;
}

static clv_status read_stops(const reader *r)
{
    static const char key[] = "stop_strings";
    const json_t *value = find(r, key);
    size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    const char **texts = clv_arena_alloc(r->to->arena, n + 1, sizeof *texts);
    if (!texts)
        return fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!text || text[0] == '\0')
            return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" must be a text of at least one byte, or a list of such",
                            r->where, key);
        texts[i] = clv_arena_string(r->to->arena, text);
        if (!texts[i])
            return fail_memory(r);
    }
    r->to->config.stops = texts;
    r->to->config.n_stops = (int64_t)n;
    return add_value(r, key);
}

static clv_status read_length(int64_t *out, const reader *r, const char *key)
{
    CLV_TRY(clv_json_get_int(out, r->object, key, CLV_JSON_OPTIONAL, 1, INT64_MAX, r->where, r->err));
    return add_value(r, key);
}

/* ---- unsupported keys ---- */

/* Keys that change a text unless they have their neutral value. */
static const struct unsupported {
    const char *key;
    enum { EQUAL, AT_MOST, AT_LEAST, OUTSIDE_0_1 } neutral;
    double value; /* NAN: no value is neutral */
} unsupported[] = {
    {"guidance_scale", EQUAL, 1},
    {"sequence_bias", EQUAL, NAN},
    {"encoder_repetition_penalty", EQUAL, 1},
    {"no_repeat_ngram_size", AT_MOST, 0},
    {"encoder_no_repeat_ngram_size", AT_MOST, 0},
    {"bad_words_ids", EQUAL, NAN},
    {"min_length", AT_MOST, 0},
    {"min_new_tokens", AT_MOST, 0},
    {"forced_bos_token_id", EQUAL, NAN},
    {"forced_eos_token_id", EQUAL, NAN},
    {"exponential_decay_length_penalty", EQUAL, NAN},
    {"suppress_tokens", EQUAL, NAN},
    {"begin_suppress_tokens", EQUAL, NAN},
    {"top_h", EQUAL, NAN},
    {"typical_p", AT_LEAST, 1},
    {"epsilon_cutoff", OUTSIDE_0_1, 0},
    {"eta_cutoff", OUTSIDE_0_1, 0},
    {"watermarking_config", EQUAL, NAN},
    {"num_beams", AT_MOST, 1},
    {"num_beam_groups", AT_MOST, 1},
    {"constraints", EQUAL, NAN},
    {"force_words_ids", EQUAL, NAN},
    {"penalty_alpha", AT_MOST, 0},
    {"dola_layers", EQUAL, NAN},
    {"num_return_sequences", AT_MOST, 1},
    {"token_healing", EQUAL, NAN},
    {"max_time", EQUAL, NAN},
};
enum {
    UNSUPPORTED = sizeof unsupported / sizeof *unsupported,
    VALUES = 16 /* at least the number of supported keys */
};

static bool is_neutral(const struct unsupported *u, const json_t *value)
{
    double v = json_number_value(value);
    if (json_is_array(value) || json_is_object(value))
        return json_array_size(value) + json_object_size(value) == 0;
    if (!json_is_number(value))
        return json_is_false(value);
    switch (u->neutral) {
    case EQUAL:
        return v == u->value;
    case AT_MOST:
        return v <= u->value;
    case AT_LEAST:
        return v >= u->value;
    case OUTSIDE_0_1:
        return v <= 0 || v >= 1;
    }
    return false;
}

static clv_status read_unsupported(const reader *r)
{
    for (int i = 0; i < UNSUPPORTED; i++) {
        const json_t *value = find(r, unsupported[i].key);
        if (!value || is_neutral(&unsupported[i], value))
            continue;
        const char *setting = setting_text(r, unsupported[i].key, value);
        if (!setting)
            return fail_memory(r);
        r->to->unsupported[r->to->config.n_unsupported++] = setting;
    }
    return CLV_OK;
}

/* ---- files ---- */

/* The file to read; NULL: none. */
static void find_file(char path[CLV_PATH_SIZE], clv_generation_config *c, const char *folder)
{
    c->file = own_file;
    if (clv_path_find(path, folder, own_file))
        return;
    c->file = model_file;
    if (!clv_path_find(path, folder, model_file)) /* the model's path is its config.json */
        snprintf(path, CLV_PATH_SIZE, "%s", folder);
}

static clv_status read_object(loaded_config *m, const json_t *object, const char *path, const clv_model_config *model,
                              clv_error *err)
{
    const reader r = {m, object, path, err};
    CLV_TRY(clv_json_check_object(object, path, err));
    CLV_TRY(read_sampling(&r));
    CLV_TRY(read_length(&m->config.max_tokens, &r, "max_new_tokens"));
    CLV_TRY(read_length(&m->config.max_length, &r, "max_length"));
    CLV_TRY(read_stops(&r));
    CLV_TRY(read_unsupported(&r));
    return m->config.file == own_file ? read_ends(&r, model->vocab, model->n_eos > 0) : CLV_OK;
}

static clv_status read_path(loaded_config *m, const char *path, const clv_model_config *model, clv_error *err)
{
    json_auto_t *document = NULL;
    CLV_TRY(clv_json_load(&document, path, FILE_LIMIT, err));
    return read_object(m, document, path, model, err);
}

static void free_config(void *config)
{
    loaded_config *m = config;
    if (m)
        clv_arena_free(m->arena);
    free(m);
}

static clv_status make(loaded_config **out, const clv_model_config *model, clv_error *err)
{
    loaded_config *m = calloc(1, sizeof *m);
    if (m && (m->arena = clv_arena_new()) != NULL) {
        m->value = clv_arena_alloc(m->arena, VALUES, sizeof *m->value);
        m->unsupported = clv_arena_alloc(m->arena, UNSUPPORTED, sizeof *m->unsupported);
        m->config.eos = clv_arena_copy(m->arena, model->eos, sizeof model->eos);
        m->config.n_eos = model->n_eos;
    }
    if (m && m->value && m->unsupported && m->config.eos) {
        m->config.values = m->value;
        m->config.unsupported = m->unsupported;
        *out = m;
        return CLV_OK;
    }
    free_config(m);
    return clv_fail_memory(err, own_file, sizeof *m);
}

static clv_status read_config(loaded_config **out, const char *folder, const clv_model_config *model, clv_error *err)
{
    loaded_config *m;
    char path[CLV_PATH_SIZE];
    CLV_TRY(make(&m, model, err));
    clv_status status = CLV_OK;
    if (folder[0]) {
        find_file(path, &m->config, folder);
        status = read_path(m, path, model, err);
    }
    if (status == CLV_OK)
        *out = m;
    else
        free_config(m);
    return status;
}

clv_status clv_model_generation_config(const clv_model *m, clv_generation_config *out, clv_error *err)
{
    loaded_config *read = NULL;
    clv_status status = CLV_OK;
    CLV_TRY(clv_require(out && m, __func__, "out and a model", err));
    pthread_mutex_lock(&m->cache->lock);
    if (!m->cache->generation) {
        status = read_config(&read, m->path, &m->config, err);
        m->cache->generation = read;
        m->cache->free_generation = free_config;
    }
    if (status == CLV_OK) {
        read = m->cache->generation;
        status = clv_struct_copy_out(out, sizeof *out, sizeof *out, &read->config, __func__, err);
    }
    pthread_mutex_unlock(&m->cache->lock);
    return status;
}
