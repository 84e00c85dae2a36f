/* Visibility and language guards shared by every public header. */
#ifndef ATOLL_API_H
#define ATOLL_API_H

#if defined(__GNUC__)
#define ATOLL_API               __attribute__((visibility("default")))
#define ATOLL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define ATOLL_API
#define ATOLL_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
#define ATOLL_BEGIN_C extern "C" {
#define ATOLL_END_C   }
#else
#define ATOLL_BEGIN_C
#define ATOLL_END_C
#endif

#endif
