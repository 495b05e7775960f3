#include "common/tokenizer/spans.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// ---- Collecting ----------------------------------------------------------------------------

static bd_status add_span(bd_spans *spans, bd_span span, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&spans->items, &spans->capacity, spans->n + 1,
                            sizeof *spans->items, err));
    spans->items[spans->n++] = span;
    return BD_OK;
}

bd_status bd_spans_add_text(bd_spans *spans, const char *text, size_t size_bytes, bool trained,
                            bd_error *err)
{
    if (size_bytes == 0)
        return BD_OK;
    return add_span(spans, (bd_span){text, size_bytes, BD_SPAN_IS_TEXT, trained}, err);
}

bd_status bd_spans_add_token(bd_spans *spans, uint32_t id, bool trained, bd_error *err)
{
    return add_span(spans, (bd_span){.token = id, .trained = trained}, err);
}

void bd_spans_release(bd_spans *spans)
{
    free(spans->items);
    *spans = (bd_spans){0};
}

// ---- Encoding ------------------------------------------------------------------------------

// Room for `n` more ids.
static bd_status reserve_ids(bd_span_ids *result, size_t n, bd_error *err)
{
    size_t needed;
    if (!bd_size_add(result->n, n, &needed))
        return bd_fail(err, BD_ERR_MEMORY, "too many tokens in one document");
    BD_TRY(bd_array_reserve((void **)&result->ids, &result->ids_capacity, needed,
                            sizeof *result->ids, err));
    return bd_array_reserve((void **)&result->trained, &result->trained_capacity, needed,
                            sizeof *result->trained, err);
}

// The end of the run of texts that begins with spans[first] and is tokenised as one text, and the
// size of that text.
static size_t run_end(const bd_spans *spans, size_t first, size_t *size_bytes)
{
    const bool trained = spans->items[first].trained;
    size_t end = first;
    *size_bytes = 0;
    for (; end < spans->n && spans->items[end].token == BD_SPAN_IS_TEXT &&
           spans->items[end].trained == trained;
         end++)
        *size_bytes += spans->items[end].size_bytes;
    return end;
}

bd_status bd_spans_encode(const bd_spans *spans, bd_encoder *encoder, bd_span_ids *result,
                          bd_error *err)
{
    const bd_tokenizer *tokenizer = encoder->tokenizer;
    result->n = 0;
    for (size_t i = 0; i < spans->n;) {
        const bd_span *span = &spans->items[i];
        size_t n_ids = 1;
        if (span->token != BD_SPAN_IS_TEXT) {
            BD_TRY(reserve_ids(result, 1, err));
            result->ids[result->n] = (uint32_t)span->token;
            i++;
        } else {
            size_t size_bytes;
            const char *text = span->text;
            const size_t end = run_end(spans, i, &size_bytes);
            if (end - i > 1) {  // most texts stand alone, and are not copied
                BD_TRY(bd_array_reserve((void **)&result->text, &result->text_capacity,
                                        size_bytes, 1, err));
                text = result->text;
                for (size_t at = 0; i < end; at += spans->items[i++].size_bytes)
                    memcpy(result->text + at, spans->items[i].text, spans->items[i].size_bytes);
            }
            BD_TRY(reserve_ids(result, tokenizer->kind->max_ids(tokenizer, size_bytes), err));
            BD_TRY(bd_encode(encoder, text, size_bytes, result->ids + result->n, &n_ids, err));
            i = end;
        }
        memset(result->trained + result->n, span->trained, n_ids);
        result->n += n_ids;
    }
    return BD_OK;
}

void bd_span_ids_release(bd_span_ids *result)
{
    free(result->ids);
    free(result->trained);
    free(result->text);
    *result = (bd_span_ids){0};
}
