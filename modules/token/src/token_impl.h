/* What the files of token share.
 *   merge     which pairs of tokens merge, and the merging of one piece
 *   gpt2      byte-level vocabularies and GPT-2's division of text into pieces
 *   ranks     byte-level vocabularies that are lists of ranks, and Llama 3's division
 *   llama2c   scored vocabularies of llama2.c
 *   bytes     the vocabulary of the 256 bytes
 *   token     the interface; strings of tokens; decoding to UTF-8 */
#ifndef ATOLL_TOKEN_IMPL_H
#define ATOLL_TOKEN_IMPL_H

#include "atoll/token.h"

/* Pair (left, right) -> merged token, best priority first. */
typedef struct merge_pair {
  int32_t left, right, merged; /* left -1: empty slot */
  double priority;
} merge_pair;

typedef struct merge_table {
  merge_pair *slot; /* open addressing, a power of two */
  size_t slots, used;
} merge_table;

atoll_err merge_add(merge_table *m, int32_t left, int32_t right, int32_t merged, double priority);
const merge_pair *merge_find(const merge_table *m, int32_t left, int32_t right);
void merge_free(merge_table *m);

/* Working memory of one encoding; zero-initialised, grows to the longest piece. */
typedef struct merge_symbol {
  int32_t id, previous, next; /* places; -1 at the ends; id -1: merged away */
} merge_symbol;
typedef struct merge_candidate {
  double priority;
  int32_t at, left, right;
} merge_candidate;
typedef struct merge_work {
  merge_symbol *symbol;
  size_t n, symbols;
  merge_candidate *heap;
  size_t candidates, heap_size;
  int32_t *ids;
  size_t id_room;
} merge_work;

/* A piece is built by merge_push() and merged by merge_run(), which gives work->ids[*n] and empties the piece. */
atoll_err merge_push(merge_work *w, int32_t id);
atoll_err merge_run(const merge_table *m, merge_work *w, size_t *n);
void merge_work_free(merge_work *w);

/* Strings to ids: open addressing over the tokens' own bytes. */
typedef struct token_index {
  int32_t *slot; /* -1: empty */
  size_t slots;
} token_index;

typedef struct token_string {
  const unsigned char *bytes;
  size_t n;
} token_string;

typedef struct token_kind {
  const char *name;
  atoll_err (*encode)(const atoll_tokenizer *t, const char *name, const unsigned char *text, size_t bytes,
                      atoll_token_sink sink, void *arg);
  void (*free_kind)(atoll_tokenizer *t);
} token_kind;

struct atoll_tokenizer {
  const token_kind *kind;
  int32_t vocab, begin, end;
  token_string *string; /* [vocab], into pool */
  unsigned char *pool;
  token_index index;
  merge_table merges;
  int32_t byte_id[256];    /* token of each single byte */
  int whole_pieces;        /* llama3: a piece that is a token is not made by merging */
  int inner_spaces;        /* llama2c: a piece has a space behind another character */
  void *pattern, *context; /* gpt2, llama3: compiled division into pieces, and its match limits */
};

/* calloc'ed, with `vocab` empty strings and a pool of `bytes`. */
atoll_err token_create(const token_kind *kind, int32_t vocab, size_t bytes, atoll_tokenizer **out);
/* After all strings are set: the index of tokens `first` and up. The lowest id wins among equal strings. */
atoll_err token_index_strings(atoll_tokenizer *t, int32_t first);
/* The same of all tokens, and of each single byte its token; one that the file `name` lacks is an error. */
atoll_err token_index_bytes(atoll_tokenizer *t, const char *name);
atoll_err token_open_bytes(atoll_tokenizer **out);
/* What byte-level vocabularies share (gpt2.c): the division of text into pieces by a pattern, and their encoding. */
atoll_err divided_open(atoll_tokenizer *t, const char *pattern);
atoll_err divided_encode(const atoll_tokenizer *t, const char *name, const unsigned char *text, size_t bytes,
                         atoll_token_sink sink, void *arg);
void divided_free(atoll_tokenizer *t);
/* White space of Unicode, inside of a class of a pattern. */
#define TOKEN_SPACE                                                                                                    \
  "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* -1 when there is none. */
int32_t token_find(const atoll_tokenizer *t, const unsigned char *bytes, size_t n);
/* Number of bytes of the UTF-8 character at p: 1..4; 0 when invalid; -1 when it is only cut short. */
int token_utf8(const unsigned char *p, size_t n);

#endif
