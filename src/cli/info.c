/* info.c - cleave info: what a model is, what its checkpoint holds, and which degrees split it evenly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"
#include "io/file.h"
#include "io/json.h"
#include "models/census.h"
#include "models/placement.h"

typedef struct info_args {
    const char *model;
    int64_t degrees;
    bool tensors, json;
} info_args;

enum { MAX_DTYPES = 32, TOKENIZER_LIMIT = 1 << 28, TEXT = 512 };

static int parse(info_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model,
         .value = "PATH",
         .required = true,
         .help = "a folder with config.json, with or without weights; or a config.json"},
        {.names = "--tensors",
         .kind = CLV_OPTION_FLAG,
         .out = &a->tensors,
         .help = "list tensors and their shapes instead of degrees"},
        {.names = "--degrees",
         .kind = CLV_OPTION_INT,
         .out = &a->degrees,
         .min = 1,
         .max = 256,
         .value = "N",
         .not_beside = "--tensors",
         .help = "list -tp 1 to N (16)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- the model ---- */

static void add_sizes(clv_table *t, const clv_model_config *m)
{
    clv_table_top(t);
    clv_table_text(t, "model_type", clv_model_config_type(m));
    clv_table_int(t, "hidden", m->hidden);
    clv_table_int(t, "layers", m->layers);
    clv_table_int(t, "heads", m->heads);
    clv_table_int(t, "kv_heads", m->kv_heads);
    clv_table_int(t, "head_dim", m->head_dim);
    clv_table_int(t, "ffn", m->ffn);
    clv_table_int(t, "vocab", m->vocab);
    clv_table_int(t, "context", m->max_positions);
    clv_table_text(t, "positions", m->rope.theta > 0 ? "rotary" : "learned");
    clv_table_bool(t, "bidirectional", m->bidirectional);
    clv_table_bool(t, "tied_embeddings", m->tie_word_embeddings);
}

typedef enum part { EMBEDDING, LAYERS, HEAD, N_PARTS } part;

static part part_of(const clv_parameter *p)
{
    if (p->layer >= 0)
        return LAYERS;
    return strncmp(p->name, "embed", 5) == 0 || strncmp(p->name, "positions", 9) == 0 ? EMBEDDING : HEAD;
}

static int64_t add_parameters(clv_table *t, const clv_model_config *m)
{
    int64_t elems[N_PARTS] = {0};

    for (int64_t i = 0; i < clv_model_parameter_count(m); i++) {
        clv_parameter p = clv_model_parameter_at(m, i);
        elems[part_of(&p)] += clv_parameter_elems(&p);
    }
    int64_t total = elems[EMBEDDING] + elems[LAYERS] + elems[HEAD];
    clv_table_object(t, "parameters");
    clv_table_int(t, "embedding", elems[EMBEDDING]);
    clv_table_int(t, "layers", elems[LAYERS]);
    clv_table_int(t, "head", elems[HEAD]);
    clv_table_int(t, "total", total);
    return total;
}

/* ---- degrees ---- */

/* A row for -tp n: what n divides, and the parameters of the fullest rank, beside an n-th of them all. */
static clv_status add_degree(clv_table *t, const clv_model_config *m, int64_t n, int64_t total, clv_error *err)
{
    char text[32];
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_placement *placement;
    int64_t most = 0;

    snprintf(text, sizeof text, "model=%lld", (long long)n);
    CLV_TRY(clv_mesh_parse(&mesh, text, err));
    CLV_TRY(clv_axis_rules_preset(&rules, NULL, &mesh, err));
    CLV_TRY(clv_placement_new(&placement, m, &mesh, &rules, err));
    clv_status status = clv_placement_most_elems(&most, placement, err);
    clv_placement_free(placement);
    CLV_TRY(status);
    clv_table_row(t);
    clv_table_int(t, "tp", n);
    clv_table_bool(t, "heads", m->heads % n == 0);
    clv_table_bool(t, "kv_heads", m->kv_heads % n == 0);
    clv_table_bool(t, "ffn", m->ffn % n == 0);
    clv_table_bool(t, "vocab", m->vocab % n == 0);
    clv_table_int(t, "fullest_rank", most);
    clv_table_real(t, "of_an_equal_share", (double)most * (double)n / (double)total);
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
    clv_table_row(t);
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

static void count_dtype(dtype_sums *sums, const clv_safetensor *tensor)
{
    int i = 0;

    while (i < sums->n && strcmp(sums->name[i], tensor->dtype_name) != 0)
        i++;
    if (i == MAX_DTYPES)
        return;
    if (i == sums->n)
        sums->name[sums->n++] = tensor->dtype_name;
    sums->bytes[i] += (int64_t)(tensor->end - tensor->begin);
}

/* Every tensor of every file: sums, and rows where asked for. */
static void add_found_tensors(clv_table *t, dtype_sums *sums, const clv_weights *w, bool rows)
{
    for (int64_t i = 0; i < clv_weights_count(w); i++) {
        const clv_safetensor *tensor = clv_weights_at(w, i);
        count_dtype(sums, tensor);
        if (rows)
            add_tensor(t, tensor->name, tensor->dtype_name, tensor->rank, tensor->shape);
    }
}

/* Lists of names beside the rows. */
static clv_status add_differences(clv_table *t, const clv_census *census, clv_error *err)
{
    size_t room = (size_t)(census->n_missing > census->n_extra ? census->n_missing : census->n_extra) + 1;
    const char **names = calloc(room, sizeof(const char *));

    if (!names)
        return clv_fail_memory(err, "names of tensors", room * sizeof(const char *));
    for (int64_t i = 0; i < census->n_missing; i++)
        names[i] = census->missing[i];
    clv_table_texts(t, "missing", names, (int)census->n_missing);
    for (int64_t i = 0; i < census->n_extra; i++)
        names[i] = census->extra[i]->name;
    clv_table_texts(t, "extra", names, (int)census->n_extra);
    free(names);
    return CLV_OK;
}

static clv_status add_checkpoint(clv_table *t, const clv_weights *w, const clv_census *census, const dtype_sums *sums,
                                 clv_error *err)
{
    int64_t bytes = 0;

    clv_table_object(t, "bytes");
    for (int i = 0; i < sums->n; i++) {
        clv_table_bytes(t, sums->name[i], (double)sums->bytes[i]);
        bytes += sums->bytes[i];
    }
    clv_table_bytes(t, "total", (double)bytes);
    clv_table_top(t);
    clv_table_int(t, "files", clv_weights_files(w));
    clv_table_int(t, "tensor_count", clv_weights_count(w));
    return add_differences(t, census, err);
}

static clv_status read_checkpoint(clv_table *t, const info_args *a, const clv_weights *w, const clv_model_config *m,
                                  clv_error *err)
{
    clv_census census;
    dtype_sums sums = {0};
    CLV_TRY(clv_census_take(&census, w, m, err));
    add_found_tensors(t, &sums, w, a->tensors);
    clv_status status = add_checkpoint(t, w, &census, &sums, err);
    clv_census_free(&census);
    return status;
}

/* The mesh that a sharded checkpoint was written for. */
static void add_mesh(clv_table *t, const clv_weights *w)
{
    char mesh[CLV_MESH_TEXT];

    if (clv_weights_manifest(w) == NULL)
        return;
    clv_mesh_print(mesh, sizeof mesh, &clv_weights_manifest(w)->mesh);
    clv_table_top(t);
    clv_table_text(t, "sharded_for", mesh);
}

/* Without weights: the tensors that a checkpoint would have. */
static void add_expected_tensors(clv_table *t, const clv_model_config *m)
{
    for (int64_t i = 0; i < clv_model_parameter_count(m); i++) {
        clv_parameter p = clv_model_parameter_at(m, i);
        for (int k = 0; k < clv_parameter_tensors(&p); k++) {
            clv_model_tensor tensor = clv_parameter_tensor(m, &p, k);
            add_tensor(t, tensor.name, "-", tensor.rank, tensor.shape);
        }
    }
}

static clv_status add_weights(clv_table *t, const info_args *a, const clv_model_config *m, clv_error *err)
{
    clv_weights *w;

    if (!clv_weights_exist(a->model)) {
        if (a->tensors)
            add_expected_tensors(t, m);
        return CLV_OK;
    }
    CLV_TRY(clv_weights_open(&w, a->model, err));
    clv_status status = read_checkpoint(t, a, w, m, err);
    if (status == CLV_OK)
        add_mesh(t, w);
    clv_weights_close(w);
    return status;
}

/* ---- the tokenizer ---- */

static bool has_file(const char *folder, const char *name)
{
    char *path = clv_path_join(folder, name);
    bool has = path && access(path, F_OK) == 0;

    free(path);
    return has;
}

/* tokenizer.json's own word for its kind ("BPE", "WordPiece", "Unigram"). */
static clv_status read_kind(char kind[TEXT], const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, "tokenizer.json");
    json_t *document = NULL;
    const char *type = NULL;

    if (!path)
        return clv_fail_memory(err, "a path", strlen(folder));
    clv_status status = clv_json_load(&document, path, TOKENIZER_LIMIT, err);
    if (status == CLV_OK)
        status = clv_json_string(&type, json_object_get(document, "model"), "type", CLV_JSON_OPTIONAL, path, err);
    if (status == CLV_OK)
        snprintf(kind, TEXT, "%s (tokenizer.json)", type ? type : "of no stated kind");
    json_decref(document);
    free(path);
    return status;
}

static clv_status add_tokenizer(clv_table *t, const char *folder, clv_error *err)
{
    static const char *const others[] = {"vocab.txt", "tokenizer.model", "vocab.json"};
    char kind[TEXT] = "none";

    for (size_t i = sizeof others / sizeof others[0]; i-- > 0;)
        if (has_file(folder, others[i]))
            snprintf(kind, sizeof kind, "%s", others[i]);
    if (has_file(folder, "tokenizer.json"))
        CLV_TRY(read_kind(kind, folder, err));
    clv_table_top(t);
    clv_table_text(t, "tokenizer", kind);
    return CLV_OK;
}

static clv_status describe(clv_table *t, const info_args *a, clv_error *err)
{
    clv_model_config model;

    CLV_TRY(clv_model_config_read(&model, a->model, err));
    add_sizes(t, &model);
    int64_t total = add_parameters(t, &model);
    for (int64_t n = 1; !a->tensors && n <= a->degrees; n++)
        CLV_TRY(add_degree(t, &model, n, total, err));
    CLV_TRY(add_tokenizer(t, a->model, err));
    return add_weights(t, a, &model, err);
}

int command_info(int argc, char **argv)
{
    info_args a = {.degrees = 16};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_table *t = clv_table_new(a.tensors ? "tensors" : "degrees");
    clv_status status = describe(t, &a, &err);
    if (status == CLV_OK)
        return clv_table_finish(t, a.json);
    clv_table_free(t);
    return clv_command_report(argv[0], &err);
}
