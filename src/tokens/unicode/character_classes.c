/* character_classes.c - Unicode character classes and lower-casing, looked up in generated tables and utf8proc. */
#include "tokens/unicode/character_classes.h"

#include <utf8proc.h>

enum { CHARACTER_BITS = 21, FIRST_MASK = (1 << CHARACTER_BITS) - 1 };

unsigned clv_character_classes(uint32_t character)
{
    size_t low = 0, high = clv_n_character_class_runs;
    if (character < 128)
        return clv_ascii_classes[character];
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if ((clv_character_class_runs[middle] & FIRST_MASK) <= character)
            low = middle;
        else
            high = middle;
    }
    return clv_character_class_runs[low] >> CHARACTER_BITS;
}

int clv_character_to_lower(uint32_t out[2], uint32_t character)
{
    enum { DOTTED_CAPITAL_I = 0x130, DOT_ABOVE = 0x307 };
    if (character == DOTTED_CAPITAL_I) {
        out[0] = 'i';
        out[1] = DOT_ABOVE;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
    for (size_t i = 0; i < clv_n_lower_runs && character >= clv_lower_runs[0][0]; i++)
        if (clv_lower_runs[i][0] <= character && character <= clv_lower_runs[i][1])
            out[0] = clv_lower_runs[i][2] + (character - clv_lower_runs[i][0]);
    return 1;
}
