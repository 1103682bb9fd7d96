/* output_path.c - checks early that an output file or folder can be created. */
#include "cli/parser/output_path.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleave/checkpoint.h"

/* A file that is begun and left leaves nothing, and finds out what stands in the way of any. */
static clv_status try_file(const char *path, clv_error *err)
{
    clv_checkpoint_writer *writer;

    CLV_TRY(clv_checkpoint_create(&writer, path, err));
    clv_checkpoint_abandon(writer);
    return CLV_OK;
}

clv_status clv_output_path_check(const char *path, bool is_folder, clv_error *err)
{
    struct stat info;
    size_t length = strlen(path);

    if (!is_folder)
        return try_file(path, err);
    if (lstat(path, &info) == 0)
        return CLV_OK;
    while (length > 1 && path[length - 1] == '/')
        length--;
    char *name = strndup(path, length);
    clv_status status = name != NULL ? try_file(name, err) : clv_fail_memory(err, "a path", length);
    free(name);
    return status;
}
