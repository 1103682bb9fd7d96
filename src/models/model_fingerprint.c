/* model_fingerprint.c - fingerprints of config, tokenizer and weights; verifies that all processes opened the same
 * model.
 */
#include <stdio.h>

#include "io/files/checksum.h"
#include "io/files/file.h"
#include "models/adapters/peft_folder.h"
#include "models/families/model_family.h"
#include "models/model.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum {
    SAMPLE = 64,        /* bytes of a tensor */
    MAX_SAMPLES = 4096, /* tensors */
    MAX_FILE = 1 << 28, /* bytes of tokenizer and generation_config.json */
    TEXT = CLV_CHECKSUM_SIZE + 64
};

/* Size and checksum of a file. Frees path; NULL: no file. */
static clv_status fingerprint_file(char out[TEXT], const char *path, clv_error *err)
{
    CLV_FREED char *content = NULL;
    char sum[CLV_CHECKSUM_SIZE];
    size_t size;
    CLV_TRY(clv_file_read(&content, &size, path, MAX_FILE, err));
    clv_checksum_of(sum, content, size);
    snprintf(out, TEXT, "%zu bytes, %.12s", size, sum);
    return CLV_OK;
}

static clv_status fingerprint_tokenizer(char out[TEXT], const clv_model *m, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    snprintf(out, TEXT, "none");
    return clv_tokenizer_find_file(path, m->path) ? fingerprint_file(out, path, err) : CLV_OK;
}

static clv_status fingerprint_generation_config(char out[TEXT], const clv_model *m, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    snprintf(out, TEXT, "none");
    return clv_path_find(path, m->path, CLV_GENERATION_FILE) ? fingerprint_file(out, path, err) : CLV_OK;
}

/* ---- weights ---- */

/* Names, dtypes, shapes and offsets of all tensors. */
static clv_status add_headers(clv_checksum *sum, const clv_weights *weights, clv_error *err)
{
    for (int i = 0; i < clv_weights_file_count(weights); i++) {
        char *text;
        size_t size;
        CLV_TRY(clv_safetensors_header(&text, &size, clv_weights_file(weights, i), err));
        clv_checksum_add(sum, text, size);
        free(text);
    }
    return CLV_OK;
}

/* Some bytes from the middle of each tensor: training changes every element, and reading all bytes would take as long
 * as loading on every host. */
static clv_status add_samples(clv_checksum *sum, const clv_weights *weights, clv_error *err)
{
    int64_t n = clv_weights_count(weights), step = 1 + n / MAX_SAMPLES;
    for (int64_t i = 0; i < n; i += step) {
        const clv_safetensor *tensor = clv_weights_at(weights, i);
        unsigned char bytes[SAMPLE];
        uint64_t all = tensor->end - tensor->begin, middle = all / 2 / SAMPLE * SAMPLE;
        size_t size = all - middle < SAMPLE ? (size_t)(all - middle) : SAMPLE;
        CLV_TRY(clv_safetensors_read_bytes(tensor, middle, size, bytes, err));
        clv_checksum_add(sum, bytes, size);
    }
    return CLV_OK;
}

static clv_status fingerprint_weights(char out[TEXT], const clv_model_weights *of, clv_error *err)
{
    char text[CLV_CHECKSUM_SIZE];
    uint64_t bytes = 0;
    const clv_weights *weights = of ? of->files : NULL;
    clv_checksum *sum = clv_checksum_new();
    if (!sum)
        return clv_fail_memory(err, "a checksum", 1);
    clv_status status = weights ? add_headers(sum, weights, err) : CLV_OK;
    if (status == CLV_OK && weights)
        status = add_samples(sum, weights, err);
    for (int i = 0; weights && i < clv_weights_file_count(weights); i++)
        bytes += clv_safetensors_data_bytes(clv_weights_file(weights, i));
    clv_checksum_text(text, sum);
    clv_checksum_free(sum);
    snprintf(out, TEXT, "%llu bytes, %.12s", (unsigned long long)bytes, text);
    return status;
}

/* Of the parsed config: the layout of the file does not count. */
static clv_status fingerprint_config(char out[TEXT], const clv_model *m, clv_error *err)
{
    CLV_FREED char *text = clv_model_config_to_json(&m->config, CLV_F32);
    char sum[CLV_CHECKSUM_SIZE];
    if (!text)
        return clv_fail_memory(err, "a config.json", TEXT);
    clv_checksum_of(sum, text, strlen(text));
    snprintf(out, TEXT, "%s of %lld layers, %.12s", m->config.family->model_type, (long long)m->config.layers, sum);
    return CLV_OK;
}

clv_status clv_model_fingerprint(char out[CLV_MODEL_FINGERPRINT_SIZE], const clv_model *m, clv_error *err)
{
    char config[TEXT], weights[TEXT];
    CLV_TRY(fingerprint_config(config, m, err));
    CLV_TRY(fingerprint_weights(weights, m->weights, err));
    snprintf(out, CLV_MODEL_FINGERPRINT_SIZE, "%.90s; %.90s", config, weights);
    return CLV_OK;
}

clv_status clv_model_verify_across_processes(const clv_model *m, clv_error *err)
{
    char text[5][TEXT] = {""};
    CLV_TRY(clv_require(m != NULL, __func__, "a model", err));
    if (!m->job)
        return CLV_OK;
    clv_status status = fingerprint_config(text[0], m, err);
    if (status == CLV_OK)
        status = fingerprint_tokenizer(text[1], m, err);
    if (status == CLV_OK)
        status = fingerprint_generation_config(text[2], m, err);
    if (status == CLV_OK)
        status = fingerprint_weights(text[3], m->weights, err);
    if (status == CLV_OK)
        status = fingerprint_weights(text[4], m->adapter_weights, err);
    CLV_TRY(clv_job_agree(m->job, status, err)); /* else a process that fails would leave the others waiting */
    const clv_job_value mine[] = {{"the model's config", text[0]},
                                  {"the tokenizer's file", text[1]},
                                  {"generation_config.json", text[2]},
                                  {"the weights", text[3]},
                                  {"the adapters", text[4]}};
    return clv_job_compare(m->job, mine, sizeof mine / sizeof *mine, err);
}
