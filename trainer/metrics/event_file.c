#include "trainer/metrics/event_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/utf8.h"
#include "trainer/metrics/protobuf.h"

struct bd_event_file {
    FILE *stream;         // owned
    char *path;           // owned
    bd_protobuf summary;  // of the next event
    bd_protobuf event;
};

// Field numbers of the messages of TensorFlow that are used here.
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_LOG_STATUS = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN = 1,
    METADATA_CLASS = 4,
    PLUGIN_NAME = 1,
    TENSOR_TYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRINGS = 8,
};
enum { SESSION_START = 1, CLASS_TENSOR = 2, TYPE_STRING = 7 };

// ---- Records --------------------------------------------------------------------------------

// CRC-32C (Castagnoli), bit by bit: the record of a step has only a few hundred bytes.
static uint32_t crc32c(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

// TensorFlow rotates and shifts a CRC that it stores: the CRC of data that ends with its own CRC
// would be a constant.
static uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    const uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put_little_endian(uint8_t *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static bd_status write_record(bd_event_file *file, const bd_protobuf *message, bd_error *err)
{
    uint8_t head[12], tail[4];
    if (message->out_of_memory)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for an event of '%s'", file->path);
    put_little_endian(head, message->size_bytes, 8);
    put_little_endian(head + 8, masked_crc(head, 8), 4);
    put_little_endian(tail, masked_crc(message->bytes, message->size_bytes), 4);
    fwrite(head, 1, sizeof head, file->stream);
    fwrite(message->bytes, 1, message->size_bytes, file->stream);
    fwrite(tail, 1, sizeof tail, file->stream);
    if (fflush(file->stream) != 0 || ferror(file->stream))
        return bd_fail_errno(err, "cannot write '%s'", file->path);
    return BD_OK;
}

// ---- Events ---------------------------------------------------------------------------------

static void begin_event(bd_protobuf *event, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    bd_protobuf_clear(event);
    bd_protobuf_put_double(event, EVENT_WALL_TIME,
                           (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    bd_protobuf_put_integer(event, EVENT_STEP, step);
}

static bd_status write_beginning(bd_event_file *file, int64_t first_step, bd_error *err)
{
    begin_event(&file->event, first_step);
    bd_protobuf_put_string(&file->event, EVENT_FILE_VERSION, "brain.Event:2");
    BD_TRY(write_record(file, &file->event, err));
    bd_protobuf log = {0};
    bd_protobuf_put_integer(&log, SESSION_LOG_STATUS, SESSION_START);
    begin_event(&file->event, first_step);
    bd_protobuf_put_message(&file->event, EVENT_SESSION_LOG, &log);
    return write_record(file, &file->event, err);
}

static void put_text(bd_protobuf *message, unsigned field, const char *text)
{
    const size_t n = strlen(text);
    char *good = malloc(bd_utf8_replaced_bound(n));
    if (good)
        bd_protobuf_put_bytes(message, field, good, bd_utf8_replace(text, n, good));
    else
        message->out_of_memory = true;
    free(good);
}

void bd_event_file_add_scalar(bd_event_file *file, const char *tag, double value)
{
    bd_protobuf item = {0};
    put_text(&item, VALUE_TAG, tag);
    bd_protobuf_put_float(&item, VALUE_SIMPLE, (float)value);
    bd_protobuf_put_message(&file->summary, SUMMARY_VALUE, &item);
}

void bd_event_file_add_text(bd_event_file *file, const char *tag, const char *text)
{
    bd_protobuf item = {0}, metadata = {0}, plugin = {0}, tensor = {0}, shape = {0};
    bd_protobuf_put_string(&plugin, PLUGIN_NAME, "text");
    bd_protobuf_put_message(&metadata, METADATA_PLUGIN, &plugin);
    bd_protobuf_put_integer(&metadata, METADATA_CLASS, CLASS_TENSOR);
    bd_protobuf_put_integer(&tensor, TENSOR_TYPE, TYPE_STRING);
    bd_protobuf_put_message(&tensor, TENSOR_SHAPE, &shape);  // no dimensions: one string
    put_text(&tensor, TENSOR_STRINGS, text);
    put_text(&item, VALUE_TAG, tag);
    bd_protobuf_put_message(&item, VALUE_TENSOR, &tensor);
    bd_protobuf_put_message(&item, VALUE_METADATA, &metadata);
    bd_protobuf_put_message(&file->summary, SUMMARY_VALUE, &item);
}

bd_status bd_event_file_write(bd_event_file *file, int64_t step, bd_error *err)
{
    begin_event(&file->event, step);
    bd_protobuf_put_message(&file->event, EVENT_SUMMARY, &file->summary);
    return write_record(file, &file->event, err);
}

// ---- The file -------------------------------------------------------------------------------

// Makes *context, a time, greater than the time in the name of an older file: a run may be
// resumed within a second, or after the clock was set back.
static bd_status come_after(void *context, const char *folder, const char *name, bd_error *err)
{
    (void)folder;
    (void)err;
    int64_t *seconds = context, of;
    if (sscanf(name, BD_EVENT_FILE_PREFIX "%10" SCNd64, &of) == 1 && of >= *seconds)
        *seconds = of + 1;
    return BD_OK;
}

static bd_status open_stream(bd_event_file *file, const char *folder, bd_error *err)
{
    int64_t seconds = (int64_t)time(NULL);
    char name[64];
    BD_TRY(bd_folder_visit(folder, come_after, &seconds, err));
    snprintf(name, sizeof name, BD_EVENT_FILE_PREFIX "%010" PRId64 ".bindery", seconds);
    file->path = bd_path_join(folder, name);
    if (!file->path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    file->stream = fopen(file->path, "wxe");
    return file->stream ? BD_OK : bd_fail_errno(err, "cannot create '%s'", file->path);
}

bd_status bd_event_file_new(bd_event_file **file, const char *folder, int64_t first_step,
                            bd_error *err)
{
    *file = calloc(1, sizeof **file);
    if (!*file)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for an event file");
    bd_status status = open_stream(*file, folder, err);
    if (status == BD_OK)
        status = write_beginning(*file, first_step, err);
    if (status != BD_OK) {
        bd_event_file_free(*file);
        *file = NULL;
    }
    return status;
}

void bd_event_file_free(bd_event_file *file)
{
    if (!file)
        return;
    if (file->stream)
        fclose(file->stream);
    free(file->path);
    bd_protobuf_release(&file->summary);
    bd_protobuf_release(&file->event);
    free(file);
}
