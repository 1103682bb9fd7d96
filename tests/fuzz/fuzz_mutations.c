/* fuzz_mutations.c - mutations, the second line, of the protein in the first. Places that are taken lie in the protein,
 * where it has the residue that they name. */
#include <stdlib.h>
#include <string.h>

#include "infer/scoring/mutation_list.h"
#include "fuzz.h"
#include "fuzz_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *line[2];
    clv_mutations m;
    fuzz_lines(&text, line, 2, data, size);
    if (text && clv_mutations_parse(&m, line[1], line[0], NULL) == CLV_OK) {
        for (int64_t i = 0; i < m.n_substitutions; i++)
            if (m.substitution[i].at < 0 || m.substitution[i].at >= (int64_t)strlen(line[0]) ||
                line[0][m.substitution[i].at] != m.substitution[i].from || m.substitution[i].mutation < 0 ||
                m.substitution[i].mutation >= m.n)
                abort();
        clv_mutations_free(&m);
    }
    free(text);
    return 0;
}
