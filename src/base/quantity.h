/* quantity.h - amounts as people read them, beside or instead of exact numbers. */
#ifndef CLEAVE_BASE_QUANTITY_H
#define CLEAVE_BASE_QUANTITY_H

#include <stddef.h>

enum { CLV_QUANTITY_TEXT = 64 };

/* Each writes as snprintf does. */

/* "512 B", "16.3 MiB": powers of 1024, one decimal. */
int clv_print_bytes(char *out, size_t size, double bytes);
/* "16.3 MiB (17039616)"; below 1 KiB, where both are the same, "512 B". */
int clv_print_bytes_exactly(char *out, size_t size, double bytes);
/* "8.07 us", "103 us", "3.87 s": three digits. */
int clv_print_seconds(char *out, size_t size, double seconds);
/* "633 M", "2.3 G": powers of 1000, three digits. */
int clv_print_count(char *out, size_t size, double count);

#endif
