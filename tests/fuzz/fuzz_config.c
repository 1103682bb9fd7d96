/* fuzz_config.c - config.json of any family. What is read passes its own check and has a graph or an error. */
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_file.h"
#include "models/config/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    clv_model_config model;
    if (!fuzz_file(path, data, size))
        return 0;
    if (clv_model_config_read(&model, path, NULL) == CLV_OK && clv_model_config_check(&model, "config", NULL) != CLV_OK)
        abort();
    return 0;
}
