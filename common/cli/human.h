// human.h - amounts and times for people to read. Not for files, JSON or scripts.
//
//   printf("%s in %s\n", bd_format_bytes(n).text, bd_format_duration(time_ns).text);
#ifndef BINDERY_COMMON_CLI_HUMAN_H
#define BINDERY_COMMON_CLI_HUMAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Returned by value, so that it can be used where it is made.
typedef struct bd_formatted {
    char text[32];
} bd_formatted;

// 999 -> "999", 1234567 -> "1.23 M"; decimal steps k, M, G, T, P, E.
bd_formatted bd_format_count(uint64_t n);

// 1234567 -> "1,234,567": every digit, in groups of three.
bd_formatted bd_format_exact(int64_t n);

// 512 -> "512 B", 67108864 -> "64.0 MiB"; binary steps.
bd_formatted bd_format_bytes(uint64_t n_bytes);

// "350 ms", "12 s", "3 min 04 s", "1 h 02 min", "2 d 03 h". Negative counts as 0.
bd_formatted bd_format_duration(int64_t time_ns);

#ifdef __cplusplus
}
#endif

#endif
