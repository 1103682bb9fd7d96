/* model_part.c - tells which part of a model an instruction belongs to: attention, feed-forward, optimizer or rest. */
#include <string.h>

#include "program/program.h"

const char *clv_model_part_name(clv_model_part part)
{
    static const char *const names[CLV_PART_COUNT] = {[CLV_PART_ATTENTION] = "attention",
                                                      [CLV_PART_FEED_FORWARD] = "feed_forward",
                                                      [CLV_PART_REST] = "rest",
                                                      [CLV_PART_OPTIMIZER] = "optimizer"};
    return (unsigned)part < CLV_PART_COUNT ? names[part] : "unknown";
}

const char *clv_name_after_segment(const char *name, const char *segment)
{
    size_t length = strlen(segment);
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (strncmp(at, segment, length) == 0 && (at[length] == '.' || at[length] == '\0'))
            return at + length;
    }
    return NULL;
}

clv_model_part clv_instruction_part(const clv_instruction *instruction)
{
    if (instruction->update)
        return CLV_PART_OPTIMIZER;
    if (clv_name_after_segment(instruction->name, "attention"))
        return CLV_PART_ATTENTION;
    return clv_name_after_segment(instruction->name, "mlp") ? CLV_PART_FEED_FORWARD : CLV_PART_REST;
}
