/* out_of_place_check.c - runs an in-place op on separate memory, to find unwritten elements. */
#include "runtime/checks/out_of_place_check.h"

#include <string.h>

#include "runtime/checks/guard_bytes.h"

/* Fills results of bytes: neither byte of the guards' pattern, which fills them in their place. */
enum { NO_BYTE = 0x82 };

static bool is_of_bytes(const clv_program *program, int b)
{
    return clv_dtype_size(program->buffers[b].type.dtype) == 1;
}

bool clv_out_of_place_needed(const clv_program *program, const clv_instruction *instruction)
{
    bool takes = false;
    for (int o = 0; instruction->op && o < instruction->n_out; o++) {
        takes = takes || is_of_bytes(program, instruction->out[o]);
        for (int i = 0; i < instruction->n_in; i++)
            takes = takes || (instruction->in[i] >= 0 && clv_program_root(program, instruction->in[i]) ==
                                                             clv_program_root(program, instruction->out[o]));
    }
    return takes;
}

static int64_t room_for(int64_t bytes)
{
    return clv_buffer_aligned_bytes(bytes) + CLV_GUARD_BYTES;
}

int64_t clv_out_of_place_bytes(const clv_program *program)
{
    int64_t most = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        int64_t bytes = CLV_GUARD_BYTES;
        if (!clv_out_of_place_needed(program, instruction))
            continue;
        for (int o = 0; o < instruction->n_out; o++)
            bytes += room_for(program->buffers[clv_program_root(program, instruction->out[o])].bytes);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void clv_out_of_place_lay_out(clv_view *out, int n_out, char *memory)
{
    char *at = memory + CLV_GUARD_BYTES;
    for (int o = 0; o < n_out; o++) {
        out[o].data = at;
        at += room_for(clv_view_byte_size(&out[o]));
    }
}

void clv_out_of_place_poison(const clv_view *out, int n_out)
{
    for (int o = 0; o < n_out; o++) {
        char *at = out[o].data;
        int64_t bytes = clv_view_byte_size(&out[o]);
        clv_guard_bytes_fill(at - CLV_GUARD_BYTES, CLV_GUARD_BYTES + room_for(bytes));
        if (clv_dtype_size(out[o].dtype) == 1)
            memset(at, NO_BYTE, (size_t)bytes);
    }
}

int64_t clv_out_of_place_first_unwritten(const clv_view *out)
{
    return clv_guard_bytes_first_unwritten(out->dtype, out->data, clv_view_elems(out));
}

int64_t clv_out_of_place_first_difference(const clv_view *out, const clv_view *apart)
{
    int64_t bytes = clv_view_byte_size(out), i = 0;
    const char *a = out->data, *b = apart->data;
    if (bytes == 0 || memcmp(a, b, (size_t)bytes) == 0)
        return -1;
    while (a[i] == b[i])
        i++;
    return i / (int64_t)clv_dtype_size(out->dtype);
}
