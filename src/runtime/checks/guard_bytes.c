/* guard_bytes.c - guard bytes and poison patterns: fill, detect overwritten or unwritten elements, checksum. */
#include "runtime/checks/guard_bytes.h"

#include <string.h>

/* By parity of the address, so that elements of every dtype have the same 16 bits. */
static const unsigned char pattern[2] = {0xfd, 0x7f};
static const uint64_t words = UINT64_C(0x7ffd7ffd7ffd7ffd);

static unsigned char byte_at(const unsigned char *p)
{
    return pattern[(uintptr_t)p & 1u];
}

void clv_guard_bytes_fill(void *at, int64_t bytes)
{
    unsigned char *p = at, *end = p + bytes;
    while (p < end && ((uintptr_t)p & 7u) != 0)
        *p = byte_at(p), p++;
    for (; end - p >= 8; p += 8)
        memcpy(p, &words, 8);
    for (; p < end; p++)
        *p = byte_at(p);
}

int64_t clv_guard_bytes_first_overwritten(const void *at, int64_t bytes)
{
    const unsigned char *first = at, *p = first, *end = first + bytes;
    for (; p < end && ((uintptr_t)p & 7u) != 0; p++)
        if (*p != byte_at(p))
            return p - first;
    /* periodic: the rest is intact if it begins with the pattern and equals itself shifted by 8 bytes */
    if (end - p >= 8 && memcmp(p, &words, 8) == 0 && memcmp(p, p + 8, (size_t)(end - p) - 8) == 0)
        return -1;
    for (; p < end; p++)
        if (*p != byte_at(p))
            return p - first;
    return -1;
}

/* The first of `least` consecutive bytes with the pattern; -1: none. */
static int64_t first_stretch(const void *at, int64_t bytes, int64_t least)
{
    const unsigned char *p = at;
    for (int64_t i = 0, n = 0; i < bytes; i++) {
        n = p[i] == byte_at(p + i) ? n + 1 : 0;
        if (n == least)
            return i + 1 - least;
    }
    return -1;
}

int64_t clv_guard_bytes_first_unwritten(clv_dtype dtype, const void *at, int64_t elems)
{
    enum { FEW = 16 /* bytes in a row that no u8 tensor holds by chance */ };
    size_t size = clv_dtype_size(dtype);
    const char *p = at;
    if (size == 1)
        return first_stretch(at, elems, dtype == CLV_BOOL ? 1 : FEW);
    for (int64_t i = 0; i < elems; i++, p += size)
        if (memcmp(p, &words, size) == 0)
            return i;
    return -1;
}

uint64_t clv_guard_bytes_checksum(const void *at, int64_t bytes)
{
    /* xor and multiplication by an odd number are invertible, so one changed word changes its lane */
    enum { LANES = 4 };
    static const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    const char *p = at;
    uint64_t lane[LANES] = {1, 2, 3, 4}, sum = (uint64_t)bytes;
    for (; bytes >= 8 * LANES; bytes -= 8 * LANES, p += 8 * LANES)
        for (int l = 0; l < LANES; l++) {
            uint64_t w;
            memcpy(&w, p + 8 * l, 8);
            lane[l] = (lane[l] ^ w) * odd;
        }
    for (int l = 0; l < LANES; l++)
        sum = (sum ^ lane[l]) * odd;
    for (; bytes > 0; bytes--, p++)
        sum = (sum ^ (unsigned char)*p) * odd;
    return sum ^ sum >> 32;
}
