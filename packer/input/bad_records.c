#include "packer/input/bad_records.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

BD_ENUM_NAMES(bd_bad_kind, BD_BAD_KINDS);

int64_t *bd_figures_bad(bd_figures *figures, bd_bad_kind kind)
{
    switch (kind) {
    case BD_BAD_MISSING_TEXT:
        return &figures->bad_missing_text;
    case BD_BAD_JSON:
        return &figures->bad_json;
    case BD_BAD_UTF8:
        return &figures->bad_utf8;
    case BD_BAD_TOO_LARGE:
        return &figures->bad_too_large;
    default:
        assert(kind == BD_BAD_PATTERN);
        return &figures->bad_pattern;
    }
}

static bool is_place_before(const bd_bad_place *a, const bd_bad_place *b)
{
    return a->input != b->input ? a->input < b->input : a->position < b->position;
}

bd_status bd_bad_places_add(bd_bad_places *places, const bd_bad_place *place, bd_error *err)
{
    size_t at = places->n;
    while (at > 0 && is_place_before(place, &places->items[at - 1]))
        at--;
    if (at == BD_MAX_BAD_PLACES || (at > 0 && !is_place_before(&places->items[at - 1], place)))
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&places->items, &places->capacity, places->n + 1,
                            sizeof *places->items, err));
    if (places->n == BD_MAX_BAD_PLACES)
        places->n--;
    memmove(&places->items[at + 1], &places->items[at],
            (places->n - at) * sizeof *places->items);
    places->items[at] = *place;
    places->n++;
    return BD_OK;
}

bd_status bd_bad_places_merge(bd_bad_places *places, const bd_bad_places *others, bd_error *err)
{
    for (size_t i = 0; i < others->n; i++)
        BD_TRY(bd_bad_places_add(places, &others->items[i], err));
    return BD_OK;
}

void bd_bad_places_release(bd_bad_places *places)
{
    free(places->items);
    *places = (bd_bad_places){0};
}
