/* weights.c - model weights of a folder: model.safetensors, an indexed set of files, or a sharded checkpoint; lookup
 * by name.
 */
#include "io/checkpoint/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/files/atomic_folder.h"
#include "io/files/file_kind.h"
#include "io/json/json.h"

const char clv_weights_single_name[] = "model.safetensors";
const char clv_weights_index_name[] = "model.safetensors.index.json";
enum { MAX_FILES = 4096, INDEX_LIMIT = 100000000 };

struct clv_weights {
    char *folder;
    int n_files;
    clv_safetensors **files;
    char **names;                   /* of the files, within the folder */
    json_t *index;                  /* NULL for a single file */
    clv_sharded_checkpoint *shards; /* owns the files; NULL: not sharded */
    const clv_safetensor **by_name; /* sorted, each name once */
    int64_t n_names;
    size_t prefix;    /* characters of a wrapper's prefix, which all names have */
    int64_t n_absent; /* names of the index that no file has */
    const char *first_absent;
};

/* A plain file name of the folder. Links are followed, as a hub's cache has them: snapshots/REV/... to blobs/... */
static clv_status check_listed(const clv_weights *w, const char *name, const char *path, clv_error *err)
{
    if (!clv_is_plain_file_name(name))
        return clv_fail(err, CLV_EFORMAT, "%s/%s: \"%.128s\" is not the name of a file in the folder", w->folder,
                        clv_weights_index_name, name);
    if (clv_is_dangling_link(path))
        return clv_fail_dangling_link(path, err);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return clv_fail(err, CLV_ENOTFOUND, "%s/%s: lists %.128s, which is not in the folder; get that file, too",
                        w->folder, clv_weights_index_name, name);
    return CLV_OK;
}

static clv_status open_file(clv_weights *w, const char *name, bool untrusted, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    clv_safetensors **files = realloc(w->files, (size_t)(w->n_files + 1) * sizeof *files);
    if (files != NULL)
        w->files = files;
    char **names = realloc(w->names, (size_t)(w->n_files + 1) * sizeof *names);
    if (names != NULL)
        w->names = names;
    if (files == NULL || names == NULL)
        return clv_fail_memory(err, name, strlen(name));
    CLV_TRY(clv_path_join(path, w->folder, name, err));
    if (untrusted)
        CLV_TRY(check_listed(w, name, path, err));
    w->names[w->n_files] = strdup(name);
    if (w->names[w->n_files] == NULL)
        return clv_fail_memory(err, name, strlen(name));
    clv_status status = clv_safetensors_open(&w->files[w->n_files], path, err);
    if (status == CLV_OK)
        w->n_files++;
    else
        free(w->names[w->n_files]);
    return status;
}

static clv_safetensors *file_named(const clv_weights *w, const char *name)
{
    for (int i = 0; i < w->n_files; i++)
        if (strcmp(w->names[i], name) == 0)
            return w->files[i];
    return NULL;
}

/* Opens the files that the index names. The files decide which tensors there are: indexes are copied between models. */
static clv_status open_listed(clv_weights *w, const char *path, clv_error *err)
{
    const char *tensor;
    json_t *map, *file;

    CLV_TRY(clv_json_check_object(w->index, path, err));
    map = json_object_get(w->index, "weight_map");
    if (!json_is_object(map))
        return clv_fail(err, CLV_EFORMAT, "%s: \"weight_map\" must be an object", path);
    json_object_foreach(map, tensor, file)
    {
        if (!json_is_string(file))
            return clv_fail(err, CLV_EFORMAT, "%s: \"weight_map\": \"%.128s\" must be a file name", path, tensor);
        if (file_named(w, json_string_value(file)) != NULL)
            continue;
        if (w->shards != NULL)
            return clv_fail(err, CLV_EFORMAT, "%s: \"%.128s\" is in %.128s, which is not listed", path, tensor,
                            json_string_value(file));
        if (w->n_files == MAX_FILES)
            return clv_fail(err, CLV_ELIMIT, "%s: more than %d files", path, MAX_FILES);
        CLV_TRY(open_file(w, json_string_value(file), true, err));
    }
    return CLV_OK;
}

static clv_status open_indexed(clv_weights *w, const char *path, clv_error *err)
{
    CLV_TRY(clv_json_load(&w->index, path, INDEX_LIMIT, err));
    return open_listed(w, path, err);
}

/* The original files of a sharded checkpoint, which owns them. */
static clv_status open_shards(clv_weights *w, clv_error *err)
{
    CLV_TRY(clv_sharded_checkpoint_open(&w->shards, w->folder, err));
    const clv_manifest *m = clv_sharded_checkpoint_manifest(w->shards);
    w->files = calloc((size_t)m->n_files + 1, sizeof *w->files);
    w->names = calloc((size_t)m->n_files + 1, sizeof *w->names);
    if (w->files == NULL || w->names == NULL)
        return clv_fail_memory(err, w->folder, (size_t)m->n_files * sizeof *w->names);
    for (; w->n_files < m->n_files; w->n_files++) {
        w->files[w->n_files] = clv_sharded_checkpoint_file(w->shards, w->n_files);
        w->names[w->n_files] = strdup(m->files[w->n_files].name);
        if (w->names[w->n_files] == NULL)
            return clv_fail_memory(err, w->folder, strlen(m->files[w->n_files].name));
    }
    if (m->index == NULL && m->n_files != 1)
        return clv_fail(err, CLV_EFORMAT, "%s/%s: %d files without an index; valid: one", w->folder, clv_manifest_name,
                        m->n_files);
    if (m->index == NULL)
        return CLV_OK;
    CLV_TRY(clv_json_parse(&w->index, m->index, strlen(m->index), CLV_JSON_KEYS_LAST_WINS, clv_manifest_name, err));
    return open_listed(w, clv_manifest_name, err);
}

bool clv_weights_exist(const char *folder)
{
    return clv_folder_has(folder, clv_weights_single_name) || clv_folder_has(folder, clv_weights_index_name) ||
           clv_folder_has(folder, clv_manifest_name);
}

/* Names of weights in unsupported formats. */
static const struct other_form {
    const char *pattern;
    clv_file_kind kind;
} other_forms[] = {
    {"pytorch_model*.bin", CLV_FILE_PICKLE},
    {"*.pt", CLV_FILE_PICKLE},
    {"*.pth", CLV_FILE_PICKLE},
    {"*.ckpt", CLV_FILE_PICKLE},
    {"*.gguf", CLV_FILE_GGUF},
    {"*.h5", CLV_FILE_HDF5},
    {"*.safetensors", CLV_FILE_SAFETENSORS},
};

/* CLV_ENOTFOUND for a folder with weights in an unsupported format, or under another name; else CLV_OK. */
static clv_status refuse_other_form(const char *folder, const char *name, clv_error *err)
{
    if (strcmp(name, "adapter_model.safetensors") == 0)
        return clv_fail(err, CLV_ENOTFOUND,
                        "%s: has adapters (%s), but no model; valid: the folder of a model, which 'cleave merge' "
                        "makes of adapters and their base",
                        folder, name);
    for (size_t i = 0; i < sizeof other_forms / sizeof other_forms[0]; i++) {
        clv_file_kind kind = other_forms[i].kind;
        if (fnmatch(other_forms[i].pattern, name, 0) != 0)
            continue;
        if (kind == CLV_FILE_SAFETENSORS)
            return clv_fail(err, CLV_ENOTFOUND,
                            "%s: has %.128s, but no %s, nor its .index.json; give it that name if it is the whole "
                            "model, or get the index of the files that belong together",
                            folder, name, clv_weights_single_name);
        return clv_fail(err, CLV_ENOTFOUND, "%s: has no %s; %.128s is %s; %s", folder, clv_weights_single_name, name,
                        clv_file_kind_name(kind), clv_file_kind_advice(kind));
    }
    return CLV_OK;
}

clv_status clv_weights_check_format(const char *folder, clv_error *err)
{
    DIR *dir = clv_weights_exist(folder) ? NULL : opendir(folder);
    clv_status status = CLV_OK;

    for (struct dirent *entry; status == CLV_OK && dir != NULL && (entry = readdir(dir)) != NULL;)
        status = refuse_other_form(folder, entry->d_name, err);
    if (dir != NULL)
        closedir(dir);
    return status;
}

static clv_status open_folder(clv_weights *w, clv_error *err)
{
    char single[CLV_PATH_SIZE], index[CLV_PATH_SIZE];
    bool is_single, is_indexed, is_sharded = clv_folder_has(w->folder, clv_manifest_name);

    CLV_TRY(clv_path_join(single, w->folder, clv_weights_single_name, err));
    CLV_TRY(clv_path_join(index, w->folder, clv_weights_index_name, err));
    is_single = access(single, F_OK) == 0;
    is_indexed = access(index, F_OK) == 0;
    if (is_sharded && (is_single || is_indexed))
        return clv_fail(err, CLV_EFORMAT, "%s: has both %s and %s (or its index); valid: either", w->folder,
                        clv_manifest_name, clv_weights_single_name);
    if (is_sharded)
        return open_shards(w, err);
    if (is_single)
        return open_file(w, clv_weights_single_name, false, err);
    if (is_indexed)
        return open_indexed(w, index, err);
    if (clv_is_dangling_link(single) || clv_is_dangling_link(index))
        return clv_fail_dangling_link(clv_is_dangling_link(single) ? single : index, err);
    CLV_TRY(clv_weights_check_format(w->folder, err));
    return clv_fail(err, CLV_ENOTFOUND, "%s: a folder with %s (or its .index.json, or %s) is needed", w->folder,
                    clv_weights_single_name, clv_manifest_name);
}

/* ---- names ---- */

static const char *file_name_of(const clv_weights *w, const clv_safetensor *t)
{
    int i = 0;

    while (w->files[i] != t->file)
        i++;
    return w->names[i];
}

/* Whether the index says that the tensor is in its file. */
static bool is_listed(const clv_weights *w, const clv_safetensor *t)
{
    const char *file = json_string_value(json_object_get(json_object_get(w->index, "weight_map"), t->name));

    return file != NULL && strcmp(file, file_name_of(w, t)) == 0;
}

/* Picks one of two tensors of one name: by the index, else the last file, as transformers does. */
static const clv_safetensor *either(const clv_weights *w, const clv_safetensor *a, const clv_safetensor *b)
{
    if (is_listed(w, a) != is_listed(w, b))
        return is_listed(w, a) ? a : b;
    return strcmp(file_name_of(w, a), file_name_of(w, b)) > 0 ? a : b;
}

static clv_status sort_names(clv_weights *w, clv_error *err)
{
    int64_t n = clv_weights_count(w);

    w->by_name = malloc((size_t)(n + 1) * sizeof(const clv_safetensor *));
    if (w->by_name == NULL)
        return clv_fail_memory(err, "names of tensors", (size_t)n * sizeof(const clv_safetensor *));
    for (int64_t i = 0; i < n; i++)
        w->by_name[i] = clv_weights_at(w, i);
    qsort(w->by_name, (size_t)n, sizeof(const clv_safetensor *), clv_safetensors_compare_names);
    for (int64_t i = 0; i < n; i++) {
        const clv_safetensor *t = w->by_name[i], **last = &w->by_name[w->n_names - 1];
        if (w->n_names > 0 && strcmp((*last)->name, t->name) == 0)
            *last = either(w, *last, t);
        else
            w->by_name[w->n_names++] = t;
    }
    return CLV_OK;
}

/* Prefixes that torch.compile and DistributedDataParallel add to all names. */
static const char *const wrappers[] = {"_orig_mod.", "module."};

static bool all_begin(const clv_weights *w, size_t at, const char *wrapper)
{
    for (int64_t i = 0; i < w->n_names; i++)
        if (strncmp(w->by_name[i]->name + at, wrapper, strlen(wrapper)) != 0)
            return false;
    return w->n_names > 0;
}

static void find_prefix(clv_weights *w)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0];)
        if (all_begin(w, w->prefix, wrappers[i])) {
            w->prefix += strlen(wrappers[i]);
            i = 0;
        } else {
            i++;
        }
}

static void find_missing(clv_weights *w)
{
    const char *name;
    json_t *file;

    json_object_foreach(json_object_get(w->index, "weight_map"), name, file) if (!clv_weights_has(w, name))
    {
        if (w->n_absent++ == 0)
            w->first_absent = name;
    }
}

/* Indexes the tensors of open files by name. */
static clv_status index_names(clv_weights *w, clv_error *err)
{
    CLV_TRY(sort_names(w, err));
    find_prefix(w);
    find_missing(w);
    return CLV_OK;
}

/* ---- opening ---- */

static clv_status open_with(clv_weights **out, const char *path, clv_status (*open)(clv_weights *, clv_error *),
                            clv_error *err)
{
    clv_weights *w = calloc(1, sizeof *w);
    clv_status status;

    if (w == NULL)
        return clv_fail_memory(err, path, sizeof *w);
    w->folder = strdup(path);
    status = w->folder != NULL ? open(w, err) : clv_fail_memory(err, path, strlen(path));
    if (status == CLV_OK)
        status = index_names(w, err);
    if (status != CLV_OK)
        clv_weights_close(w);
    else
        *out = w;
    return status;
}

clv_status clv_weights_open(clv_weights **out, const char *folder, clv_error *err)
{
    return open_with(out, folder, open_folder, err);
}

/* Weights with room for one file of this name. */
static clv_status alloc_single_file(clv_weights *w, const char *name, clv_error *err)
{
    w->files = calloc(1, sizeof *w->files);
    w->names = calloc(1, sizeof *w->names);
    char *copy = strdup(name);
    if (w->files == NULL || w->names == NULL || copy == NULL) {
        free(copy);
        return clv_fail_memory(err, name, strlen(name));
    }
    w->names[0] = copy;
    w->n_files = 1;
    return CLV_OK;
}

/* w->folder is the file's path. */
static clv_status open_single_file(clv_weights *w, clv_error *err)
{
    const char *slash = strrchr(w->folder, '/');

    CLV_TRY(alloc_single_file(w, slash != NULL ? slash + 1 : w->folder, err));
    return clv_safetensors_open(&w->files[0], w->folder, err);
}

clv_status clv_weights_from_file(clv_weights **out, clv_safetensors *file, const char *name, clv_error *err)
{
    clv_weights *w = calloc(1, sizeof *w);
    if (w == NULL)
        return clv_fail_memory(err, name, sizeof *w);
    w->folder = strdup(name);
    clv_status status = w->folder != NULL ? alloc_single_file(w, name, err) : clv_fail_memory(err, name, strlen(name));
    if (status == CLV_OK) {
        w->files[0] = file;
        status = index_names(w, err);
    }
    if (status == CLV_OK) {
        *out = w;
        return CLV_OK;
    }
    w->n_files = 0; /* the caller keeps the file */
    clv_weights_close(w);
    return status;
}

clv_status clv_weights_open_path(clv_weights **out, const char *path, clv_error *err)
{
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);

    return open_with(out, path, is_folder ? open_folder : open_single_file, err);
}

void clv_weights_close(clv_weights *w)
{
    if (w == NULL)
        return;
    for (int i = 0; i < w->n_files; i++) {
        if (w->shards == NULL)
            clv_safetensors_close(w->files[i]);
        free(w->names[i]);
    }
    clv_sharded_checkpoint_close(w->shards);
    json_decref(w->index);
    free(w->by_name);
    free(w->files);
    free(w->names);
    free(w->folder);
    free(w);
}

clv_status clv_weights_map(clv_weights *w, clv_error *err)
{
    if (w->shards != NULL)
        return clv_sharded_checkpoint_map(w->shards, err);
    for (int i = 0; i < w->n_files; i++)
        CLV_TRY(clv_safetensors_map(w->files[i], err));
    return CLV_OK;
}

/* Finds a name by its part from `at` on; all names are equal before that. */
static const clv_safetensor *find_from(const clv_weights *w, size_t at, const char *name)
{
    int64_t lo = 0, hi = w->n_names;

    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        int order = strcmp(w->by_name[middle]->name + at, name);
        if (order == 0)
            return w->by_name[middle];
        if (order < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return NULL;
}

clv_status clv_weights_find(const clv_safetensor **out, const clv_weights *w, const char *name, clv_error *err)
{
    const clv_safetensor *found = find_from(w, w->prefix, name);

    if (found == NULL && w->prefix > 0)
        found = find_from(w, 0, name);
    if (found == NULL)
        return clv_fail(err, CLV_ENOTFOUND, "%s: no tensor named \"%.128s\"", w->folder, name);
    *out = found;
    return CLV_OK;
}

bool clv_weights_has(const clv_weights *w, const char *name)
{
    const clv_safetensor *tensor;

    return clv_weights_find(&tensor, w, name, NULL) == CLV_OK;
}

const char *clv_weights_bare_name(const clv_weights *w, const clv_safetensor *tensor)
{
    return tensor->name + w->prefix;
}

size_t clv_weights_prefix_length(const clv_weights *w)
{
    return w->prefix;
}

int64_t clv_weights_missing_count(const clv_weights *w, const char **first)
{
    *first = w->first_absent;
    return w->n_absent;
}

int clv_weights_file_count(const clv_weights *w)
{
    return w->n_files;
}

const clv_safetensors *clv_weights_file(const clv_weights *w, int i)
{
    return w->files[i];
}

const char *clv_weights_file_name(const clv_weights *w, int i)
{
    return w->names[i];
}

const clv_manifest *clv_weights_sharded_manifest(const clv_weights *w)
{
    return w->shards != NULL ? clv_sharded_checkpoint_manifest(w->shards) : NULL;
}

bool clv_weights_owns_file(const clv_weights *w, const char *name)
{
    const clv_manifest *m = clv_weights_sharded_manifest(w);
    bool owns = strcmp(name, clv_weights_index_name) == 0 || strcmp(name, clv_manifest_name) == 0 ||
                file_named(w, name) != NULL;

    for (int64_t rank = 0; m != NULL && rank < m->n_ranks; rank++) {
        char file[CLV_RANK_FILE_SIZE];
        clv_rank_file_name(file, rank, m->n_ranks);
        owns = owns || strcmp(name, file) == 0;
    }
    return owns;
}

clv_status clv_weights_index_json(char **text, const clv_weights *w, clv_error *err)
{
    const clv_manifest *m = clv_weights_sharded_manifest(w);
    char path[CLV_PATH_SIZE];
    size_t size = 0;

    *text = NULL;
    if (w->index == NULL)
        return CLV_OK;
    if (m != NULL) {
        *text = strdup(m->index);
        return *text != NULL ? CLV_OK : clv_fail_memory(err, clv_weights_index_name, strlen(m->index));
    }
    CLV_TRY(clv_path_join(path, w->folder, clv_weights_index_name, err));
    return clv_file_read(text, &size, path, INDEX_LIMIT, err);
}

int64_t clv_weights_count(const clv_weights *w)
{
    int64_t n = 0;

    for (int i = 0; i < w->n_files; i++)
        n += clv_safetensors_count(w->files[i]);
    return n;
}

const clv_safetensor *clv_weights_at(const clv_weights *w, int64_t i)
{
    int file = 0;

    while (i >= clv_safetensors_count(w->files[file]))
        i -= clv_safetensors_count(w->files[file++]);
    return clv_safetensors_at(w->files[file], i);
}

int64_t clv_weights_index_of(const clv_weights *w, const clv_safetensor *tensor)
{
    int64_t first = 0;

    for (int i = 0; i < w->n_files; i++) {
        if (tensor->file == w->files[i])
            return first + (tensor - clv_safetensors_at(w->files[i], 0));
        first += clv_safetensors_count(w->files[i]);
    }
    return -1;
}

uint64_t clv_weights_bytes_read(const clv_weights *w)
{
    uint64_t bytes = 0;

    for (int i = 0; i < w->n_files; i++)
        bytes += clv_safetensors_bytes_read(w->files[i]);
    return bytes;
}
