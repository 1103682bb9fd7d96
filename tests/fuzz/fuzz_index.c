/* fuzz_index.c - model.safetensors.index.json beside two files that it may name, one of them out of its folder's reach
 * by a link. Every tensor of an index that opens is in the folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "io/checkpoint/weights.h"

static char folder[] = "/tmp/cleave_fuzz_XXXXXX";

static void put(const char *name, const void *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb"); /* without flushing to the disk: thousands a second */
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0)
        abort();
}

/* A file with the tensors a and b, one byte each. */
static void put_tensors(const char *name)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    char file[8 + sizeof header + 1] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    put(name, file, 8 + sizeof header - 1 + 2);
}

static void remove_folder(void)
{
    static const char *const names[] = {"one", "two", "out", "model.safetensors.index.json"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    char path[128];
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
    put_tensors("one");
    put_tensors("two");
    snprintf(path, sizeof path, "%s/out", folder);
    if (symlink("/dev/null", path) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    clv_weights *w;
    if (!made)
        make_folder();
    made = 1;
    put("model.safetensors.index.json", data, size);
    if (clv_weights_open(&w, folder, NULL) != CLV_OK)
        return 0;
    for (int64_t i = 0; i < clv_weights_count(w); i++) {
        uint8_t value;
        if (clv_safetensors_read(clv_weights_at(w, i), NULL, CLV_U8, &value, NULL) != CLV_OK)
            abort();
    }
    clv_weights_close(w);
    return 0;
}
