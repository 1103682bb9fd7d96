/* fasta.h - FASTA parser: iterates over the protein records of a text. Lines that begin with ';' are comments. */
#ifndef CLEAVE_TOKENS_DATA_FASTA_H
#define CLEAVE_TOKENS_DATA_FASTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

/* Residue letters, as ESM-2 has them. */
extern const char clv_residues[];

/* Where the reading of a text stands, which is changed: residues move up to where theirs begin. */
typedef struct clv_fasta_reader {
    char *at, *end;
    int64_t line; /* that was read last, from 1; 0: none yet */
} clv_fasta_reader;

/* Of a text whose lines end with "\n", or the part of one that begins with a record. */
clv_fasta_reader clv_fasta_reader_new(char *text, size_t size);

typedef struct clv_fasta_record {
    const char *name; /* its first word; NULL: there is no record any more */
    size_t name_size;
    const char *residues; /* in upper case (lower case marks repeats, or of an alignment insertions), without what is
                             blank, and without a stop ("*") at their end; gaps ("-", ".") are letters of ESM-2 */
    size_t size;
} clv_fasta_record;

/* The next record. @return CLV_EINVAL for what is no FASTA, or no residue, of the line f->line */
clv_status clv_fasta_reader_next(clv_fasta_record *out, clv_fasta_reader *f, clv_error *err);

#endif
