/* fuzz_torch_export.c - archives of torch.export; what is no archive is the text of a program in one. */
#include "../torch_archive.h"
#include "fuzz_program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t length;
    if (size >= 2 && data[0] == 'P' && data[1] == 'K') {
        fuzz_program(data, size);
        return 0;
    }
    char *archive = torch_archive(&length, (const char *)data, size);
    if (archive)
        fuzz_program(archive, length);
    free(archive);
    return 0;
}
