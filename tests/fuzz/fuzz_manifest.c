/* fuzz_manifest.c - manifests of sharded checkpoints, the checksum made right beforehand. The parts of one that parses
 * are disjoint boxes that cover the view. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "io/checkpoint/manifest.h"
#include "tensor/box_runs.h"

static void check_parts(const clv_manifest *m, const clv_manifest_tensor *t)
{
    int64_t elems = 0, shape[CLV_MAX_RANK];
    for (int64_t i = 0; i < t->n_parts; i++) {
        const clv_manifest_part *part = &t->parts[i];
        int rank = clv_manifest_part_shape(shape, t, part);
        if (part->rank < 0 || part->rank >= m->n_ranks || clv_shape_elems(rank, shape) != clv_shard_elems(&part->box) ||
            !clv_box_within(&part->box, t->placement.rank, t->placement.view))
            abort();
        elems += clv_shard_elems(&part->box);
    }
    if (elems != clv_shape_elems(t->placement.rank, t->placement.view))
        abort();
}

/* The input is the text after {"checksum":"...". */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char opening[] = "{\"checksum\":\"";
    enum { SUM_AT = sizeof opening - 1, REST_AT = SUM_AT + CLV_CHECKSUM_SIZE - 1 };
    char *text = malloc(REST_AT + size + 1), sum[CLV_CHECKSUM_SIZE];
    clv_manifest manifest;
    if (!text)
        return 0;
    clv_checksum_of(sum, data, size);
    memcpy(text, opening, SUM_AT);
    memcpy(text + SUM_AT, sum, CLV_CHECKSUM_SIZE - 1);
    memcpy(text + REST_AT, data, size);
    if (clv_manifest_parse(&manifest, text, REST_AT + size, "manifest", NULL) == CLV_OK) {
        for (int64_t i = 0; i < manifest.n_tensors; i++)
            check_parts(&manifest, &manifest.tensors[i]);
        clv_manifest_free(&manifest);
    }
    free(text);
    return 0;
}
