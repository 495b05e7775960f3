#include "trainer/metrics/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// How the value of a field is stored: the low bits of the key before it.
enum wire { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };

void bd_protobuf_release(bd_protobuf *message)
{
    free(message->bytes);
    *message = (bd_protobuf){0};
}

void bd_protobuf_clear(bd_protobuf *message)
{
    message->size_bytes = 0;
    message->out_of_memory = false;
}

static void append_bytes(bd_protobuf *message, const void *bytes, size_t n)
{
    if (bd_array_reserve((void **)&message->bytes, &message->capacity, message->size_bytes + n,
                         1, NULL) != BD_OK) {
        message->out_of_memory = true;
        return;
    }
    if (n > 0)
        memcpy(message->bytes + message->size_bytes, bytes, n);
    message->size_bytes += n;
}

static void append_little_endian(bd_protobuf *message, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    append_bytes(message, bytes, n);
}

static void append_varint(bd_protobuf *message, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    append_bytes(message, bytes, n);
}

static void append_key(bd_protobuf *message, unsigned field, enum wire wire)
{
    append_varint(message, field << 3 | wire);
}

void bd_protobuf_put_integer(bd_protobuf *message, unsigned field, int64_t value)
{
    append_key(message, field, WIRE_VARINT);
    append_varint(message, (uint64_t)value);
}

void bd_protobuf_put_double(bd_protobuf *message, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_key(message, field, WIRE_8_BYTES);
    append_little_endian(message, bits, sizeof bits);
}

void bd_protobuf_put_float(bd_protobuf *message, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_key(message, field, WIRE_4_BYTES);
    append_little_endian(message, bits, sizeof bits);
}

void bd_protobuf_put_bytes(bd_protobuf *message, unsigned field, const void *bytes,
                           size_t size_bytes)
{
    append_key(message, field, WIRE_LENGTH);
    append_varint(message, size_bytes);
    append_bytes(message, bytes, size_bytes);
}

void bd_protobuf_put_string(bd_protobuf *message, unsigned field, const char *text)
{
    bd_protobuf_put_bytes(message, field, text, strlen(text));
}

void bd_protobuf_put_message(bd_protobuf *message, unsigned field, bd_protobuf *inner)
{
    message->out_of_memory |= inner->out_of_memory;
    bd_protobuf_put_bytes(message, field, inner->bytes, inner->size_bytes);
    bd_protobuf_release(inner);
}
