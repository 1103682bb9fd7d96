/* term.h - parts of an op as a term: "mul(x, sigmoid(x))" is what silu is made of.
 *
 * A term is matched from the root: name(term, ...), a letter, or a number.
 *   x, y, d, ...   a tensor of the root's shape; the same letter, the same value
 *   r, s, t, v     one value a row: the last dimension is 1, or repeated
 *   G, B           one value a column, [M]: repeated over the rows
 *   #a             any number; 0.5: this number, to f32's precision
 * Names are those of functions of one or two operands, and
 *   scale(x, n)    a product with a number, or a quotient by 1/n
 *   sum(x), most(x), mean(x)   over the last dimension
 * The operands of sums and products may stand in either order.
 */
#pragma once

#include "interop/patterns/rewriter.h"

typedef struct term_match {
    int letter[128]; /* the value of a letter; 0: none yet */
    double number[128];
    int parts[REWRITER_PARTS]; /* values inside; the root is not among them */
    int n_parts;
} term_match;

/* Whether the value is made as the term says. Letters that are given must be what they are. */
bool term_matches(term_match *m, const rewriter *rw, int root, const char *term);
/* The same of one value a row of a tensor like `full`. */
bool term_matches_row(term_match *m, const rewriter *rw, int full, int root, const char *term);
/* Notes the parts that a match has found. */
void term_add_parts(rewrite *to, const term_match *m);
/* The column value of a letter, as a tensor [M]; may build a reshape. */
clv_value term_column(rewriter *rw, const term_match *m, char letter);
