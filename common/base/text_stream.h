// text_stream.h - printing into memory.
//
// open_memstream() will not do: where it finds no memory, glibc drops the output and reports
// that neither by ferror() nor by fclose(), so that a text would be cut short without a
// message.
#ifndef BINDERY_COMMON_BASE_TEXT_STREAM_H
#define BINDERY_COMMON_BASE_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bd_text_stream {
    FILE *file;  // to print to
    char *text;  // owned; the output that was flushed, ended by a NUL that `n` does not count
    size_t n, capacity;
} bd_text_stream;

// Begins an empty text. The struct must stay where it is until it is closed. False: no memory.
bool bd_text_stream_open(bd_text_stream *stream);

// The text, malloc'd and the caller's to free, with its length in *n (which may be NULL). NULL
// if memory ran out while it was printed.
char *bd_text_stream_close(bd_text_stream *stream, size_t *n);

#endif
