/* Compiling emitted C with the system's compiler, and keeping the results. */
#ifndef RECURRENT_NATIVE_H
#define RECURRENT_NATIVE_H

#include "runtime.h"

typedef struct rt_native rt_native; /* a loaded library, shared by its programs */

/* *out: NULL when there is no compiler or it fails; *why (of n bytes) says what was done or why not. Only a lack of
 * memory is an error. compiler and flags as of atoll_rec_params; threads: the program may use several; divide: the text
 * has parts (RT_HERE), which may be compiled side by side. */
atoll_err rt_native_create(const char *source, size_t bytes, const char *compiler, const char *flags, int threads,
                           int divide, rt_native **out, char *why, size_t n);
rt_native *rt_native_share(rt_native *lib);
void rt_native_destroy(rt_native **lib);
void *rt_native_symbol(const rt_native *lib, const char *name); /* or NULL */
/* "rt_program_<number>", or NULL. */
rt_entry rt_native_entry(const rt_native *lib, int number);

#endif
