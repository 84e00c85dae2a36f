/* What atoll-plan does besides planning a job. Each reads its flags from the command line and writes its output. */
#ifndef ATOLL_PLAN_PROGRAMS_H
#define ATOLL_PLAN_PROGRAMS_H

#include "atoll/cli.h"

/* --accuracy DIR --profiles DIR [--json FILE] [--explain] */
atoll_err plan_accuracy(const atoll_cli *cli);

/* --facts FILE: MISMATCH when a figure is further off than atoll/facts.h promises. */
atoll_err plan_facts(const atoll_cli *cli);

#endif
