/* test_file_kind.c - what a file is by its first bytes, and what is said of one where another was expected: weights,
 * an index, a config, a vocabulary. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleave/model.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/weights.h"
#include "io/files/file.h"
#include "io/files/file_kind.h"
#include "io/json/json.h"
#include "temp_folder.h"
#include "unit_test.h"

#define FILE_OF(kind, bytes)                                                                                           \
    {                                                                                                                  \
        kind, bytes, sizeof(bytes) - 1                                                                                 \
    }

static const struct sample {
    clv_file_kind kind;
    const char *bytes;
    size_t size;
} samples[] = {
    FILE_OF(CLV_FILE_EMPTY, ""),
    FILE_OF(CLV_FILE_LFS_POINTER, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
    FILE_OF(CLV_FILE_HTML, "<!DOCTYPE html>\n<html class=\"\">"),
    FILE_OF(CLV_FILE_HTML, "\n\n <!doctype HTML>"),
    FILE_OF(CLV_FILE_HTML, "\xef\xbb\xbf<HTML lang=en>"),
    FILE_OF(CLV_FILE_SERVER_ERROR, "Entry not found"),
    FILE_OF(CLV_FILE_SERVER_ERROR, "Invalid username or password."),
    FILE_OF(CLV_FILE_PICKLE, "\x80\x02\x8a\nl\xfc\x9c"),
    FILE_OF(CLV_FILE_PICKLE, "\x80\x04\x95\x20\0\0\0\0\0\0\0"),
    FILE_OF(CLV_FILE_ZIP, "PK\x03\x04\0\0\x08\x08\0\0\0\0archive/data.pkl"),
    FILE_OF(CLV_FILE_GGUF, "GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0"),
    FILE_OF(CLV_FILE_HDF5, "\x89HDF\r\n\x1a\n\0\0"),
    FILE_OF(CLV_FILE_NUMPY, "\x93NUMPY\x01\0v\0{'descr'"),
    FILE_OF(CLV_FILE_PARQUET, "PAR1\x15\x04"),
    FILE_OF(CLV_FILE_GZIP, "\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x02"),
    FILE_OF(CLV_FILE_ZSTD, "\x28\xb5\x2f\xfd\x24\x10"),
    FILE_OF(CLV_FILE_XZ, "\xfd\x37zXZ\0\0\x04"),
    FILE_OF(CLV_FILE_BZIP2, "BZh91AY&SY"),
    FILE_OF(CLV_FILE_PDF, "%PDF-1.7\n"),
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

static void put(const char *name, const void *bytes, size_t size)
{
    assert_int_equal(clv_file_write(in_folder("%s", name), bytes, size, NULL), CLV_OK);
}

static void test_kinds(void **state)
{
    static const char *const others[] = {"a text", "{\"a\":1}", "version 2", ">P1\nMKV\n", "<s>token", "P", "\x80"};
    static const char empty_header[] = "\x02\0\0\0\0\0\0\0{}";
    char tar[CLV_FILE_KIND_BYTES] = "model/config.json";

    for (int i = 0; i < SAMPLES; i++)
        if (clv_file_kind_of(samples[i].bytes, samples[i].size) != samples[i].kind)
            fail_msg("sample %d is taken for %d", i, clv_file_kind_of(samples[i].bytes, samples[i].size));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(clv_file_kind_of(others[i], strlen(others[i])), CLV_FILE_OTHER);
    assert_int_equal(clv_file_kind_of(empty_header, sizeof empty_header - 1), CLV_FILE_SAFETENSORS);
    assert_int_equal(clv_file_kind_of("\x1f\x8b\x08\0\0\0\0\0{\"a\":", 13), CLV_FILE_SAFETENSORS); /* 559903 bytes */
    assert_int_equal(clv_file_kind_of(tar, sizeof tar), CLV_FILE_OTHER);
    memcpy(tar + 257, "ustar", 5);
    assert_int_equal(clv_file_kind_of(tar, sizeof tar), CLV_FILE_TAR);
}

/* Each is refused as weights, as JSON and as an index, in words that name the file, its kind and what to do. */
static void test_said_where_met(void **state)
{
    assert_int_equal(mkdir(in_folder("indexed"), 0700), 0);
    for (int i = 0; i < SAMPLES; i++) {
        const struct sample *s = &samples[i];
        const char *name = clv_file_kind_name(s->kind), *advice = clv_file_kind_advice(s->kind);
        clv_safetensors *f;
        clv_weights *w;
        json_t *document;
        clv_error err = {0};

        put("t", s->bytes, s->size);
        assert_int_equal(clv_safetensors_open(&f, in_folder("t"), &err), CLV_EFORMAT);
        if (!strstr(err.message, "/t: is ") || !strstr(err.message, name) || !strstr(err.message, advice))
            fail_msg("weights: %s", err.message);
        err = (clv_error){0};
        assert_int_equal(clv_json_load(&document, in_folder("t"), 1000, &err), CLV_EFORMAT);
        if (!strstr(err.message, "not JSON; ") || !strstr(err.message, name) || !strstr(err.message, advice))
            fail_msg("JSON: %s", err.message);
        err = (clv_error){0};
        put("indexed/model.safetensors.index.json", s->bytes, s->size);
        assert_int_equal(clv_weights_open(&w, in_folder("indexed"), &err), CLV_EFORMAT);
        if (!strstr(err.message, "model.safetensors.index.json: is ") || !strstr(err.message, name))
            fail_msg("index: %s", err.message);
    }
}

/* A file that is too large to be read whole is of its kind first. */
static void test_large(void **state)
{
    char *text;
    size_t size;
    clv_error err = {0};

    put("large", "GGUF\x03\0\0\0", 8);
    assert_int_equal(truncate(in_folder("large"), 2000), 0);
    assert_int_equal(clv_file_read(&text, &size, in_folder("large"), 1000, &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, "is a GGUF file, not a file of at most 1000 bytes; "));
    put("large", "text", 4);
    assert_int_equal(clv_file_read(&text, &size, in_folder("large"), 3, NULL), CLV_ELIMIT);
}

/* A folder with weights in another format, or under another name. */
static void test_other_forms(void **state)
{
    static const char *const said[][2] = {
        {"pytorch_model.bin", "pytorch_model.bin is a Python pickle, as PyTorch's .bin and .pt files are; convert"},
        {"pytorch_model-00001-of-00002.bin", "00002.bin is a Python pickle"},
        {"consolidated.00.pth", "consolidated.00.pth is a Python pickle"},
        {"tiny-q4_0.gguf", "has no model.safetensors; tiny-q4_0.gguf is a GGUF file; get the model's safetensors"},
        {"adapter_model.safetensors", "has adapters (adapter_model.safetensors), but no model; valid: the folder of"},
        {"tf_model.h5", "tf_model.h5 is an HDF5 file"},
        {"model-00001-of-00002.safetensors", "has model-00001-of-00002.safetensors, but no model.safetensors, nor"},
    };

    assert_int_equal(mkdir(in_folder("other"), 0700), 0);
    put("other/config.json", "{}", 2);
    put("other/training_args.bin", "{}", 2);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        const char *path = in_folder("other/%s", said[i][0]);
        clv_weights *w;
        clv_error err = {0};
        assert_int_equal(clv_file_write(path, "x", 1, NULL), CLV_OK);
        assert_int_equal(clv_weights_open(&w, in_folder("other"), &err), CLV_ENOTFOUND);
        if (!strstr(err.message, said[i][1]))
            fail_msg("%s", err.message);
        assert_int_equal(unlink(path), 0);
    }
    clv_weights *w;
    clv_error err = {0};
    assert_int_equal(symlink("../blobs/b1", in_folder("other/model.safetensors")), 0);
    assert_int_equal(clv_weights_open(&w, in_folder("other"), &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "model.safetensors: a link to a file that is not there; copy files as what"));
}

/* Such folders have no config.json. */
static void test_folder_of_gguf(void **state)
{
    clv_model *m;
    clv_error err = {0};

    assert_int_equal(mkdir(in_folder("gguf"), 0700), 0);
    put("gguf/tiny.gguf", "GGUF", 4);
    for (int config_only = 0; config_only < 2; config_only++) {
        err = (clv_error){0};
        assert_int_equal(clv_model_open(&m, in_folder("gguf"), &(clv_model_options){.config_only = config_only}, &err),
                         CLV_ENOTFOUND);
        assert_non_null(strstr(err.message, "gguf: has no model.safetensors; tiny.gguf is a GGUF file; get the"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),       cmocka_unit_test(test_said_where_met), cmocka_unit_test(test_large),
        cmocka_unit_test(test_other_forms), cmocka_unit_test(test_folder_of_gguf),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
