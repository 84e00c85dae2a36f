/* A program that we talk to line by line over its standard input and output. Everything it may do wrong ends in an
 * error that names it: it never leaves a zombie, never raises SIGPIPE here, and does not outlive us. */
#ifndef ATOLL_PLAN_EXTERN_CHILD_H
#define ATOLL_PLAN_EXTERN_CHILD_H

#include <stddef.h>

#include "atoll/err.h"

typedef struct child child;

/* `command` is a path or a name on PATH, or such a word followed by arguments parted by blanks. NOINPUT when it cannot
 * be started. Lines of its standard error become warnings. */
atoll_err child_start(const char *command, child **out);
/* Ends its input, gives it `grace` seconds to leave, then kills its process group. Accepts NULL. */
void child_stop(child **address, double grace);
/* Word by which messages call it; borrowed. */
const char *child_name(const child *c);
/* Bytes to go out whenever it reads; never blocks. NOMEM. */
atoll_err child_send(child *c, const char *text, size_t bytes);
/* Its next line without the newline, NUL-terminated; borrowed until the next call. TIMEOUT after `seconds` without a
 * whole line; UNAVAILABLE when it ended (says how); CORRUPT for a line of more than CHILD_LINE_MAX bytes or with a NUL
 * byte. After UNAVAILABLE and CORRUPT only child_stop() makes sense. */
#define CHILD_LINE_MAX (1 << 20)
atoll_err child_line(child *c, double seconds, char **line, size_t *bytes);

#endif
