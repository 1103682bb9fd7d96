/* command_info.c - the `cleave info` command: a model's configuration, parameter counts, checkpoint tensors and valid
 * TP degrees.
 */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/options/model_options.h"

typedef struct info_args {
    const char *model;
    int64_t degrees;
    bool tensors;
} info_args;

enum { MAX_DTYPES = 32, TEXT = 512 };

static bool parse(info_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model, "PATH", "model folder, with or without weights, or a config.json"),
        CLV_OPT_FLAG("--tensors", &a->tensors, "list the tensors instead of -tp degrees"),
        CLV_OPT_INT("--degrees", &a->degrees, 1, 256, "N", "list -tp 1 to N (16)", .conflicts_with = "--tensors"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* ---- the model ---- */

static void add_sizes(clv_table *t, const clv_model_info *m)
{
    clv_table_begin_top_level(t);
    clv_table_text(t, "model_type", m->family);
    clv_table_int(t, "hidden", m->hidden);
    clv_table_int(t, "layers", m->layers);
    clv_table_int(t, "heads", m->heads);
    clv_table_int(t, "kv_heads", m->kv_heads);
    clv_table_int(t, "head_dim", m->head_dim);
    clv_table_int(t, "ffn", m->ffn);
    if (m->experts > 0) {
        clv_table_int(t, "experts", m->experts);
        clv_table_int(t, "experts_per_token", m->top_k);
        clv_table_int(t, "expert_ffn", m->expert_ffn);
        clv_table_int(t, "shared_expert_ffn", m->shared_ffn);
    }
    clv_table_int(t, "vocab", m->vocab);
    clv_table_int(t, "context", m->max_positions);
    clv_table_text(t, "positions", m->rotary ? "rotary" : "learned");
    clv_table_bool(t, "bidirectional", m->bidirectional != 0);
    clv_table_bool(t, "tied_embeddings", m->tied_embeddings != 0);
}

static clv_status add_parameters(clv_table *t, const clv_model *model, clv_error *err)
{
    clv_model_part_sizes parts = {.size = sizeof parts};
    CLV_TRY(clv_model_get_part_sizes(model, &parts, err));
    clv_table_begin_object(t, "parameters");
    clv_table_int(t, "embedding", parts.embedding);
    clv_table_int(t, "layers", parts.layers);
    clv_table_int(t, "head", parts.head);
    clv_table_int(t, "total", parts.embedding + parts.layers + parts.head);
    return CLV_OK;
}

/* ---- degrees ---- */

/* The parameters of the fullest of n ranks. */
static clv_status fullest_rank(int64_t *out, const clv_model *model, int64_t n, clv_error *err)
{
    char text[32];
    clv_mesh mesh;

    snprintf(text, sizeof text, "model=%lld", (long long)n);
    CLV_TRY(clv_mesh_parse(&mesh, text, err));
    return clv_model_max_rank_elems(out, model, &mesh, err);
}

/* A row for -tp n: what n divides, and the parameters of the fullest rank compared with 1/n of all. */
static clv_status add_degree(clv_table *t, const clv_model *model, const clv_model_info *m, int64_t n, clv_error *err)
{
    int64_t most;

    CLV_TRY(fullest_rank(&most, model, n, err));
    clv_table_begin_row(t);
    clv_table_int(t, "tp", n);
    clv_table_bool(t, "heads", m->heads % n == 0);
    clv_table_bool(t, "kv_heads", m->kv_heads % n == 0);
    clv_table_bool(t, "ffn", m->ffn % n == 0);
    clv_table_bool(t, "vocab", m->vocab % n == 0);
    clv_table_int(t, "fullest_rank", most);
    clv_table_real(t, "of_an_equal_share", (double)most * (double)n / (double)m->parameters);
    return CLV_OK;
}

/* ---- the checkpoint ---- */

static void shape_text(char out[TEXT], int rank, const int64_t *shape)
{
    size_t used = 0;

    out[0] = '\0';
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(out + used, TEXT - used, "%s%lld", d > 0 ? "x" : "", (long long)shape[d]);
}

static void add_tensor(clv_table *t, const char *name, const char *dtype, int rank, const int64_t *shape)
{
    char text[TEXT];

    shape_text(text, rank, shape);
    clv_table_begin_row(t);
    clv_table_text(t, "tensor", name);
    clv_table_text(t, "dtype", dtype);
    clv_table_text(t, "shape", text);
}

/* Tensors and bytes of each dtype. */
typedef struct dtype_sums {
    int n;
    const char *name[MAX_DTYPES];
    int64_t bytes[MAX_DTYPES];
} dtype_sums;

static void count_dtype(dtype_sums *sums, const clv_tensor_info *tensor)
{
    int i = 0;

    while (i < sums->n && strcmp(sums->name[i], tensor->dtype_name) != 0)
        i++;
    if (i == MAX_DTYPES)
        return;
    if (i == sums->n)
        sums->name[sums->n++] = tensor->dtype_name;
    sums->bytes[i] += tensor->bytes;
}

/* Every tensor of every file: sums, and rows where asked for. */
static clv_status add_found_tensors(clv_table *t, dtype_sums *sums, const clv_checkpoint *c, bool rows, clv_error *err)
{
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(c); i++) {
        clv_tensor_info tensor = {.size = sizeof tensor};
        CLV_TRY(clv_checkpoint_tensor(c, i, &tensor, err));
        count_dtype(sums, &tensor);
        if (rows)
            add_tensor(t, tensor.name, tensor.dtype_name, tensor.rank, tensor.shape);
    }
    return CLV_OK;
}

/* Names of tensors, kept. */
typedef struct names {
    int n;
    char **item;
    bool lost; /* one, for want of memory */
} names;

static void add_name(names *to, const char *name)
{
    char **grown = realloc(to->item, (size_t)(to->n + 1) * sizeof *grown);
    if (grown)
        to->item = grown;
    char *copy = grown ? strdup(name) : NULL;
    if (copy)
        to->item[to->n++] = copy;
    else
        to->lost = true;
}

static void free_names(names *of)
{
    for (int i = 0; i < of->n; i++)
        free(of->item[i]);
    free(of->item);
}

/* Tensors that a checkpoint is missing, and tensors that the model does not use. */
typedef struct differences {
    names missing, extra;
} differences;

static void take_difference(void *arg, const char *name, int missing)
{
    differences *d = arg;
    add_name(missing ? &d->missing : &d->extra, name);
}

/* Lists of names, as fields. */
static clv_status add_differences(clv_table *t, const clv_checkpoint *c, const clv_model *model, clv_error *err)
{
    differences d = {0};

    clv_status status = clv_checkpoint_compare(c, model, take_difference, &d, err);
    if (status == CLV_OK && (d.missing.lost || d.extra.lost))
        status = clv_fail_memory(err, "names of tensors", (size_t)(d.missing.n + d.extra.n));
    if (status == CLV_OK) {
        clv_table_text_list(t, "missing", (const char *const *)d.missing.item, d.missing.n);
        clv_table_text_list(t, "extra", (const char *const *)d.extra.item, d.extra.n);
    }
    free_names(&d.missing);
    free_names(&d.extra);
    return status;
}

static void add_bytes(clv_table *t, const clv_checkpoint *c, const dtype_sums *sums)
{
    int64_t bytes = 0;

    clv_table_begin_object(t, "bytes");
    for (int i = 0; i < sums->n; i++) {
        clv_table_bytes(t, sums->name[i], (double)sums->bytes[i]);
        bytes += sums->bytes[i];
    }
    clv_table_bytes(t, "total", (double)bytes);
    clv_table_begin_top_level(t);
    clv_table_int(t, "files", clv_checkpoint_file_count(c));
    clv_table_int(t, "tensor_count", clv_checkpoint_tensor_count(c));
}

/* The mesh that a sharded checkpoint was written for. */
static void add_mesh(clv_table *t, const clv_checkpoint *c)
{
    char mesh[CLV_MESH_TEXT];

    if (clv_checkpoint_mesh(c) == NULL)
        return;
    clv_mesh_print(mesh, sizeof mesh, clv_checkpoint_mesh(c));
    clv_table_begin_top_level(t);
    clv_table_text(t, "sharded_for", mesh);
}

/* What weights are held in blocks of. */
static clv_status add_quant(clv_table *t, const clv_model *model, clv_error *err)
{
    clv_quant stored;
    CLV_TRY(clv_model_checkpoint_quant(&stored, model, err));
    if (stored != CLV_QUANT_NONE)
        clv_table_text(t, "quant", clv_quant_name(stored));
    return CLV_OK;
}

static clv_status read_checkpoint(clv_table *t, const info_args *a, const clv_checkpoint *c, const clv_model *model,
                                  clv_error *err)
{
    dtype_sums sums = {0};

    CLV_TRY(add_found_tensors(t, &sums, c, a->tensors, err));
    add_bytes(t, c, &sums);
    CLV_TRY(add_differences(t, c, model, err));
    add_mesh(t, c);
    return add_quant(t, model, err);
}

/* Without weights: the tensors that a checkpoint would have. */
static void add_expected(void *table, const char *name, int rank, const int64_t *shape)
{
    add_tensor(table, name, "-", rank, shape);
}

static clv_status add_weights(clv_table *t, const info_args *a, const clv_model *model, clv_error *err)
{
    clv_checkpoint *c;

    if (!clv_checkpoint_exists(a->model))
        return a->tensors ? clv_model_for_each_tensor(model, add_expected, t, err) : CLV_OK;
    CLV_TRY(clv_checkpoint_open(&c, a->model, NULL, err));
    clv_status status = read_checkpoint(t, a, c, model, err);
    clv_checkpoint_close(c);
    return status;
}

/* ---- all of it ---- */

static clv_status describe_model(clv_table *t, const info_args *a, const clv_model *model, clv_error *err)
{
    char kind[TEXT];
    clv_model_info info = {.size = sizeof info};

    CLV_TRY(clv_model_get_info(model, &info, err));
    add_sizes(t, &info);
    CLV_TRY(add_parameters(t, model, err));
    for (int64_t n = 1; !a->tensors && n <= a->degrees; n++)
        CLV_TRY(add_degree(t, model, &info, n, err));
    CLV_TRY(clv_tokenizer_kind(kind, sizeof kind, a->model, err));
    clv_table_begin_top_level(t);
    clv_table_text(t, "tokenizer", kind);
    return add_weights(t, a, model, err);
}

/* `why` a folder that has weights did not open with them. */
static clv_status add_notes(const clv_model *model, const char *command, const clv_error *why, clv_error *err)
{
    char keys[TEXT];
    CLV_TRY(clv_model_unknown_keys(keys, sizeof keys, model, err));
    if (keys[0])
        clv_log("%s: note: its config.json has keys that are not known here, and are ignored: %s", command, keys);
    for (int i = 0; clv_model_warning(model, i); i++)
        clv_log("%s: note: %s", command, clv_model_warning(model, i));
    if (why->code != CLV_OK)
        clv_log("%s: note: commands that read its weights will refuse it: %s", command, why->message);
    return CLV_OK;
}

/* With its weights, where they are there and whole: they settle what config.json leaves open. */
static clv_status open_model(clv_model **out, clv_error *why, const char *path, clv_error *err)
{
    clv_model_options options = {.size = sizeof options};

    if (clv_checkpoint_exists(path) && clv_model_open(out, path, &options, why) == CLV_OK)
        return CLV_OK;
    options.config_only = 1;
    return clv_model_open(out, path, &options, err);
}

static clv_status describe(clv_table *t, const info_args *a, const char *command, clv_error *err)
{
    clv_model *model;
    clv_error why = {0};

    CLV_TRY(open_model(&model, &why, a->model, err));
    clv_status status = describe_model(t, a, model, err);
    if (status == CLV_OK)
        status = add_notes(model, command, &why, err);
    clv_model_close(model);
    return status;
}

clv_status command_info(clv_invocation *run, clv_error *err)
{
    info_args a = {.degrees = 16};
    if (!parse(&a, run))
        return CLV_OK;
    run->table = clv_table_new(a.tensors ? "tensors" : "degrees");
    return describe(run->table, &a, run->name, err);
}
