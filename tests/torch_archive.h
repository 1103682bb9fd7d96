/* torch_archive.h - a .pt2 archive around the text of a program, as torch.export.save writes it: stored, without
 * weights.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t put_number(char *out, size_t at, uint64_t n, int size)
{
    for (int i = 0; i < size; i++)
        out[at + (size_t)i] = (char)(i < 8 ? n >> 8 * i : 0);
    return at + (size_t)size;
}

static uint32_t crc_32(const char *bytes, size_t size)
{
    uint32_t sum = ~0u;
    for (size_t i = 0; i < size; i++) {
        sum ^= (uint8_t)bytes[i];
        for (int b = 0; b < 8; b++)
            sum = sum >> 1 ^ (0xedb88320u & -(sum & 1));
    }
    return ~sum;
}

/* The fields that a local header and one of the directory share, from the version on. */
static size_t put_entry(char *out, size_t at, const char *name, const char *bytes, size_t size)
{
    at = put_number(out, at, 0, 8);
    at = put_number(out, at, 0, 2);
    at = put_number(out, at, crc_32(bytes, size), 4);
    at = put_number(out, at, size, 4);
    at = put_number(out, at, size, 4);
    at = put_number(out, at, strlen(name), 2);
    return put_number(out, at, 0, 2);
}

/* An archive of archive_format and models/model.json, in memory that the caller frees. */
static char *torch_archive(size_t *size, const char *json, size_t length)
{
    const struct {
        const char *name, *bytes;
        size_t size;
    } entries[] = {{"a/archive_format", "pt2", 3}, {"a/models/model.json", json, length}};
    uint64_t begin[2];
    size_t at = 0;
    char *out = calloc(length + 512, 1);
    for (int i = 0; out && i < 2; i++) {
        begin[i] = at;
        at = put_number(out, at, 0x04034b50, 4);
        at = put_entry(out, at, entries[i].name, entries[i].bytes, entries[i].size);
        memcpy(out + at, entries[i].name, strlen(entries[i].name));
        at += strlen(entries[i].name);
        if (entries[i].size > 0)
            memcpy(out + at, entries[i].bytes, entries[i].size);
        at += entries[i].size;
    }
    size_t directory = at;
    for (int i = 0; out && i < 2; i++) {
        at = put_number(out, at, 0x02014b50, 4);
        at = put_number(out, at, 0, 2);
        at = put_entry(out, at, entries[i].name, entries[i].bytes, entries[i].size);
        at = put_number(out, at, 0, 10);
        at = put_number(out, at, begin[i], 4);
        memcpy(out + at, entries[i].name, strlen(entries[i].name));
        at += strlen(entries[i].name);
    }
    if (out) {
        size_t end = at;
        at = put_number(out, at, 0x06054b50, 4);
        at = put_number(out, at, 0, 4);
        at = put_number(out, at, 2, 2);
        at = put_number(out, at, 2, 2);
        at = put_number(out, at, end - directory, 4);
        at = put_number(out, at, directory, 4);
        at = put_number(out, at, 0, 2);
    }
    *size = at;
    return out;
}
