#include "session_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

static void *read_state(const clv_session *session, int i, clv_state_info *state)
{
    clv_error err = {0};
    *state = (clv_state_info){.size = sizeof *state};
    must(clv_session_state(session, i, state, &err), &err);
    if (!state->name)
        return NULL;
    void *data = malloc((size_t)clv_type_elems(&state->type) * clv_dtype_size(state->type.dtype) + 1);
    must(clv_session_read(session, state->name, NULL, data, &err), &err);
    return data;
}

static double at(const clv_state_info *state, const void *data, int64_t i)
{
    return state->type.dtype == CLV_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

int expect_session_state(const clv_session *want, const clv_session *got, double most, const char *where)
{
    clv_state_info state, same;
    int n = 0;
    for (void *a; (a = read_state(want, n, &state)); n++) {
        void *b = read_state(got, n, &same);
        assert_non_null(b);
        assert_string_equal(state.name, same.name);
        const int64_t elems = clv_type_elems(&state.type);
        double largest = 1e-3, off = 0;
        for (int64_t i = 0; i < elems && most > 0; i++) {
            const double x = at(&state, a, i), y = at(&state, b, i);
            largest = fmax(largest, fabs(x));
            off = !(fabs(x - y) <= off) ? fabs(x - y) : off;
        }
        if (most > 0 ? !(off <= most * largest) : memcmp(a, b, (size_t)elems * clv_dtype_size(state.type.dtype)) != 0)
            fail_msg("%s: %s is %.3g of %.3g off", where, state.name, off, largest);
        free(a);
        free(b);
    }
    return n;
}
