/* Sweeps: lists of numbers on the command line, and rows that other programs have measured. */
#ifndef ATOLL_BENCH_LISTS_H
#define ATOLL_BENCH_LISTS_H

#include "bench.h"

enum { LIST_MOST = 16 };

typedef struct bench_list {
  int n;
  int64_t v[LIST_MOST];
} bench_list;

/* "512,2048" of a flag, or `otherwise`; each in [lo, hi]. */
atoll_err bench_numbers(const atoll_cli *cli, const char *flag, const char *otherwise, int64_t lo, int64_t hi,
                        bench_list *out);
/* The rows of the files that a flag names, separated by commas, one array (empty without the flag). Owned. */
atoll_err bench_rows(const atoll_cli *cli, const char *flag, json_t **rows);
/* Adds to row "peers": {program: value of `measure`} for those rows that have the same values of all keys (NULL ends
 * them; one that neither has counts as the same). Returns the best of them by `more` (1: the largest), NaN when there
 * is none. */
double bench_compare(json_t *row, json_t *peers, const char *const *keys, const char *measure, int more);
/* After all rows were compared: says how many peers found no row of theirs, and why the first of them did not. */
void bench_tell_unmatched(const json_t *peers);
/* 1 when an earlier window of the list attends to all tokens of a text, too, as 0 and any from `length` on do. */
int bench_sees_the_same(const bench_list *windows, int w, int64_t length);
/* " , RATIO x the best peer", or nothing for NaN: text. */
const char *bench_against(double ratio, char text[48]);

#endif
