/* op_words.h - the field's words for ops that have names of this library's own. */
#ifndef CLEAVE_CLI_OP_WORDS_H
#define CLEAVE_CLI_OP_WORDS_H

/* A sentence with kinds of ops ("normalize_dx") as people call them ("the gradient of the norm"); names of ops, which
 * say where they are ("mlp.normalize.grad.normalize_dx"), stay. The caller frees it; NULL: no memory. */
char *clv_op_words(const char *sentence);

#endif
