/* What the parts of `decode` share. */
#ifndef ATOLL_BENCH_DECODE_H
#define ATOLL_BENCH_DECODE_H

#include "bench.h"

/* Bytes a second that threads read from a buffer of this size. */
atoll_err decode_read_rate(int64_t bytes, int threads, double *rate);
/* Of the L3 cache, which tells rows whose keys and values fit into it from those that memory has to serve; 0: there is
 * none, or it is not known. */
int64_t decode_l3_bytes(void);
/* A small Llama: milliseconds a token over --model-lengths, --windows and --batches, and compile times over --layers.
 * part: "model" or "compile" alone, or NULL. peers: rows of other programs, of which those with "layers" are models.
 * Adds "model" and "compile" to out (or NULL). */
atoll_err decode_models(const atoll_cli *cli, const char *part, json_t *peers, json_t *out);

#endif
