#include "common/base/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// A write that takes no byte sets the error of the stream, and it stays set.
static ssize_t append_to_text(void *cookie, const char *data, size_t n)
{
    bd_text_stream *stream = cookie;
    if (bd_array_reserve((void **)&stream->text, &stream->capacity, stream->n + n + 1, 1,
                         NULL) != BD_OK)
        return 0;
    memcpy(stream->text + stream->n, data, n);
    stream->n += n;
    stream->text[stream->n] = '\0';
    return (ssize_t)n;
}

bool bd_text_stream_open(bd_text_stream *stream)
{
    *stream = (bd_text_stream){.text = calloc(1, 1), .capacity = 1};
    if (stream->text)
        stream->file =
            fopencookie(stream, "w", (cookie_io_functions_t){.write = append_to_text});
    if (stream->file)
        return true;
    free(stream->text);
    *stream = (bd_text_stream){0};
    return false;
}

char *bd_text_stream_close(bd_text_stream *stream, size_t *n)
{
    const bool failed = fflush(stream->file) != 0 || ferror(stream->file);
    fclose(stream->file);
    char *text = stream->text;
    if (n)
        *n = stream->n;
    *stream = (bd_text_stream){0};
    if (!failed)
        return text;
    free(text);
    return NULL;
}
