/** Tokenizers: text to token ids and back, for the vocabularies whose published files are read as they are.
 *
 *    gpt2     byte-level byte-pair encoding (Radford et al. 2019): encoder.json and vocab.bpe as OpenAI published them,
 *             or vocab.json and merges.txt, which are the same under other names. RoBERTa uses the same merges with
 *             other ids.
 *    llama2c  SentencePiece byte-pair encoding (Kudo and Richardson 2018) in llama2.c's tokenizer file: scored pieces,
 *             a space put before the text, bytes for characters that the vocabulary lacks.
 *    llama3   byte-level byte-pair encoding from a list of ranks: the tokenizer.model of Llama 3 (2407.21783), each
 *             line a token in base64 and its rank.
 *
 *  Encoding takes time n log n in the longest piece that rules allow to merge, and linear in the rest. A tokenizer is
 * immutable once open; one thread at a time encodes with it, any number decode. */
#ifndef ATOLL_TOKEN_H
#define ATOLL_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_tokenizer atoll_tokenizer;

/** spec: "gpt2:DIR", "gpt2:ENCODER.json,VOCAB.bpe", "llama2c:FILE", "llama3:FILE", or "bytes" (ids are the bytes). *out
 * owned: atoll_tokenizer_close(). USAGE: another kind. NOINPUT: a file is missing. CORRUPT names file, line or offset,
 * what was found and what was expected. */
ATOLL_API atoll_err atoll_tokenizer_open(const char *spec, atoll_tokenizer **out);
/** The same from memory, for what is not a file of its own; `name` stands for it in messages. Text is borrowed for the
 * call. */
ATOLL_API atoll_err atoll_tokenizer_open_gpt2(const char *json_name, const char *json, size_t json_bytes,
                                              const char *merges_name, const char *merges, size_t merges_bytes,
                                              atoll_tokenizer **out);
ATOLL_API atoll_err atoll_tokenizer_open_llama2c(const char *name, const void *data, size_t bytes,
                                                 atoll_tokenizer **out);
ATOLL_API atoll_err atoll_tokenizer_open_llama3(const char *name, const char *text, size_t bytes,
                                                atoll_tokenizer **out);
ATOLL_API void atoll_tokenizer_close(atoll_tokenizer **t);

/** "gpt2", "llama2c", "llama3", "bytes". */
ATOLL_API const char *atoll_tokenizer_kind(const atoll_tokenizer *t);
/** Ids are 0 .. vocab - 1. */
ATOLL_API int64_t atoll_tokenizer_vocab(const atoll_tokenizer *t);
/** The id that stands between documents: <|endoftext|> of gpt2, the begin of llama2c and llama3; and the one after
 * which a generated text is finished. -1 when the vocabulary has none. Text never encodes to them. */
ATOLL_API int32_t atoll_tokenizer_begin(const atoll_tokenizer *t);
ATOLL_API int32_t atoll_tokenizer_end(const atoll_tokenizer *t);

/** Receives ids in order, some at a time. A failure ends the encoding and is passed on. */
typedef atoll_err (*atoll_token_sink)(void *arg, const int32_t *ids, size_t n);
/** Encode one document of any size; ids reach the sink as they are found, so memory does not grow with the text
 * (llama2c: unless its pieces contain inner spaces). No begin or end is added. `name` stands for the text in messages.
 *  CORRUPT (gpt2, llama3): a byte that is not UTF-8, with its offset. */
ATOLL_API atoll_err atoll_tokenizer_encode(const atoll_tokenizer *t, const char *name, const void *text, size_t bytes,
                                           atoll_token_sink sink, void *arg);
/** The same into memory: *ids [*n], owned: free(). Not NULL when n is 0. */
ATOLL_API atoll_err atoll_tokenizer_encode_all(const atoll_tokenizer *t, const void *text, size_t bytes, int32_t **ids,
                                               size_t *n);

/** Bytes of one token, borrowed. previous is the token before it, -1 for none: llama2c drops the space that follows its
 * begin. Begin and end of llama2c, and what llama3 has behind its ranks, are empty. USAGE: an id beyond the vocabulary.
 * Tokens may end inside a character; for text to be shown use atoll_decoder. */
ATOLL_API atoll_err atoll_tokenizer_decode(const atoll_tokenizer *t, int32_t previous, int32_t id,
                                           const unsigned char **bytes, size_t *n);

/** Turns a stream of tokens into valid UTF-8: an unfinished character is held back until the token that ends it, and
 * bytes that can become none are replaced by U+FFFD. Zero-initialised but for `tokenizer` (borrowed) and `previous`
 * (-1), which atoll_decoder_init() sets. */
typedef struct atoll_decoder {
  const atoll_tokenizer *tokenizer;
  int32_t previous;
  unsigned char held[4];
  size_t n;
  char *text; /* what push returned last */
  size_t capacity;
} atoll_decoder;
ATOLL_API void atoll_decoder_init(atoll_decoder *d, const atoll_tokenizer *t);
/** *text (NUL-terminated, *n bytes, perhaps none) is borrowed until the next call on d. */
ATOLL_API atoll_err atoll_decoder_push(atoll_decoder *d, int32_t id, const char **text, size_t *n);
/** The end of the stream: U+FFFD when a character stays unfinished. d can be used again. */
ATOLL_API atoll_err atoll_decoder_finish(atoll_decoder *d, const char **text, size_t *n);
ATOLL_API void atoll_decoder_free(atoll_decoder *d);

ATOLL_END_C
#endif
