/* versioned_structs.c - versioned structs: copies public option and result structs by their leading size field, old
 * and new versions.
 */
#include <string.h>

#include "base/error.h"

/* Reads the struct's size field; 0 means the first version. */
static clv_status stated_size(size_t *out, size_t first, const void *given, const char *call, clv_error *err)
{
    memcpy(out, given, sizeof *out);
    *out = *out ? *out : first;
    if (*out >= first && *out <= CLV_STRUCT_SIZE_MAX)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: a struct whose size is %zu; valid: its sizeof (of %zu to %d bytes), or 0",
                    call, *out, first, CLV_STRUCT_SIZE_MAX);
}

clv_status clv_options_copy_in(void *out, size_t size, size_t first, const void *given, const char *call,
                               clv_error *err)
{
    size_t stated = first;
    if (given)
        CLV_TRY(stated_size(&stated, first, given, call, err));
    for (size_t i = size; given && i < stated; i++)
        if (((const unsigned char *)given)[i] != 0)
            return clv_fail(
                err, CLV_EUNSUPPORTED,
                "%s: an option that this version of the library does not have is set (byte %zu of the struct)", call,
                i);
    memset(out, 0, size);
    if (given)
        memcpy(out, given, stated < size ? stated : size);
    memcpy(out, &size, sizeof size);
    return CLV_OK;
}

clv_status clv_struct_copy_out(void *out, size_t size, size_t first, const void *from, const char *call, clv_error *err)
{
    size_t stated;
    CLV_TRY(stated_size(&stated, first, out, call, err));
    size_t known = stated < size ? stated : size;
    memset((char *)out + sizeof stated, 0, stated - sizeof stated);
    memcpy((char *)out + sizeof stated, (const char *)from + sizeof stated, known - sizeof stated);
    return CLV_OK;
}
