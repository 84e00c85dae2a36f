/* What comm and stop need of the watch. */
#ifndef ATOLL_WATCH_IMPL_H
#define ATOLL_WATCH_IMPL_H

#include "atoll/agree.h"
#include "device_impl.h"

/* Let the watch drive p until it is complete; `what` ("recv from 2 tag 7 on pipe") is copied. watch may be NULL. */
void watch_add(atoll_watch *watch, pending *p, const char *what);
/* The running watch of this process, or NULL. */
atoll_watch *watch_current(void);
/* The signal that asked a second time, or 0; set by stop.c's handler. */
int stop_abort_signal(void);
const char *stop_signal_name(int signal);

#endif
