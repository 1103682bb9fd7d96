/* replay.c - every file of the folders given, through a fuzz target; and each cut short and with each byte changed, so
 * that even the small corpus visits the refusals. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { LARGEST = 1 << 16 };

/* Copies the input to memory of exactly this size, so that a sanitizer detects reads past its end. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (!copy)
        return;
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void variants(uint8_t *data, size_t size)
{
    feed(data, size);
    for (size_t i = 0; i < size && i < 512; i++) {
        uint8_t kept = data[i];
        feed(data, i);
        for (int b = 0; b < 4; b++) {
            data[i] = (uint8_t)(kept ^ (uint8_t) "\x01\x20\x80\xff"[b]);
            feed(data, size);
        }
        data[i] = kept;
    }
}

static int replay(const char *folder)
{
    static uint8_t data[LARGEST];
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        variants(data, fread(data, 1, sizeof data, file));
        fclose(file);
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (replay(argv[i]) == 0) {
            fprintf(stderr, "%s holds no input\n", argv[i]);
            return 1;
        }
    return argc > 1 ? 0 : 1;
}
