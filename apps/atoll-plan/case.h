/* Planning a case of the neutral scorer instead of a job. */
#ifndef ATOLL_PLAN_APP_CASE_H
#define ATOLL_PLAN_APP_CASE_H

#include "atoll/cli.h"

/* --case FILE --profiles DIR [--judge FILE] [--explain] [--lose TEXT] [--add TEXT]. Rank 0 alone prints and writes; the
 * others return at once. */
atoll_err plan_case(const atoll_cli *cli, int rank);

#endif
