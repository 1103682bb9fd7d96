/* op_words.h - what people call ops: clv_op_def.words. */
#ifndef CLEAVE_CLI_OP_WORDS_H
#define CLEAVE_CLI_OP_WORDS_H

/* A sentence with kinds of ops ("normalize_dx") as people call them ("the gradient of the norm"); names of ops, which
 * say where they are ("mlp.normalize.grad.normalize_dx"), stay. The caller frees it; NULL: no memory. */
char *clv_with_op_words(const char *sentence);

#endif
