// protobuf.h - builds a message of protocol buffers field by field.
//
// A message inside a message is built first, then put as bytes. If memory runs out, the flag
// out_of_memory is set; check it before using the bytes.
#ifndef BINDERY_TRAINER_METRICS_PROTOBUF_H
#define BINDERY_TRAINER_METRICS_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bd_protobuf {
    uint8_t *bytes;  // owned
    size_t size_bytes, capacity;
    bool out_of_memory;
} bd_protobuf;

void bd_protobuf_release(bd_protobuf *message);  // safe on an empty struct and safe twice
void bd_protobuf_clear(bd_protobuf *message);    // keeps the memory

void bd_protobuf_put_integer(bd_protobuf *message, unsigned field, int64_t value);
void bd_protobuf_put_double(bd_protobuf *message, unsigned field, double value);
void bd_protobuf_put_float(bd_protobuf *message, unsigned field, float value);
void bd_protobuf_put_bytes(bd_protobuf *message, unsigned field, const void *bytes,
                           size_t size_bytes);
void bd_protobuf_put_string(bd_protobuf *message, unsigned field, const char *text);
// Puts `inner` into `message` and releases it.
void bd_protobuf_put_message(bd_protobuf *message, unsigned field, bd_protobuf *inner);

#endif
