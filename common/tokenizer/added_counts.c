#include "common/tokenizer/added_counts.h"

#include <string.h>

#include "common/base/memory.h"

static const char list_key[] = "added_tokens";
static const char other_key[] = "added_tokens_other";

// The index of `id`, or the one where it belongs.
static int32_t place_of(const bd_added_counts *counts, uint32_t id)
{
    int32_t low = 0, high = counts->n;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (counts->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Evicts the highest id if there is no room.
static bool insert_count(bd_added_counts *counts, int32_t place, uint32_t id, int64_t n)
{
    bool fits = true;
    if (counts->n == BD_COUNTED_IDS)
        fits = bd_int64_add(counts->other, counts->counts[--counts->n], &counts->other);
    const size_t n_behind = (size_t)(counts->n - place);
    memmove(&counts->ids[place + 1], &counts->ids[place], n_behind * sizeof *counts->ids);
    memmove(&counts->counts[place + 1], &counts->counts[place],
            n_behind * sizeof *counts->counts);
    counts->ids[place] = id;
    counts->counts[place] = n;
    counts->n++;
    return fits;
}

static bool count_many(bd_added_counts *counts, uint32_t id, int64_t n)
{
    const int32_t place = place_of(counts, id);
    if (place < counts->n && counts->ids[place] == id)
        return bd_int64_add(counts->counts[place], n, &counts->counts[place]);
    if (place == BD_COUNTED_IDS)
        return bd_int64_add(counts->other, n, &counts->other);
    return insert_count(counts, place, id, n);
}

void bd_added_counts_count(bd_added_counts *counts, uint32_t id)
{
    count_many(counts, id, 1);
}

bd_status bd_added_counts_add(bd_added_counts *total, const bd_added_counts *part,
                              bd_error *err)
{
    bool fits = bd_int64_add(total->other, part->other, &total->other);
    for (int32_t i = 0; fits && i < part->n; i++)
        fits = count_many(total, part->ids[i], part->counts[i]);
    total->unknown |= part->unknown;
    return fits ? BD_OK : bd_fail(err, BD_ERR_FORMAT, "the sum of '%s' is too large", list_key);
}

// ---- JSON ----------------------------------------------------------------------------------

void bd_added_counts_to_json(const bd_added_counts *counts, bd_json *object)
{
    if (counts->unknown)
        return;
    bd_json *list = bd_json_array();
    for (int32_t i = 0; i < counts->n; i++) {
        bd_json *pair = bd_json_array();
        bd_json_append(pair, bd_json_integer(counts->ids[i]));
        bd_json_append(pair, bd_json_integer(counts->counts[i]));
        bd_json_append(list, pair);
    }
    bd_json_set(object, list_key, list);
    bd_json_set_integer(object, other_key, counts->other);
}

static bd_status pair_from_json(bd_added_counts *counts, const bd_json *pair, int64_t most,
                                bd_error *err)
{
    const int64_t lowest = counts->n > 0 ? (int64_t)counts->ids[counts->n - 1] + 1 : 0;
    int64_t id, count;
    if (bd_json_length(pair) != 2)
        return bd_fail(err, BD_ERR_FORMAT, "not an id and a count");
    BD_TRY(bd_json_as_integer(bd_json_at(pair, 0), lowest, UINT32_MAX, &id, err));
    BD_TRY(bd_json_as_integer(bd_json_at(pair, 1), 1, most, &count, err));
    counts->ids[counts->n] = (uint32_t)id;
    counts->counts[counts->n++] = count;
    return BD_OK;
}

bd_status bd_added_counts_from_json(bd_added_counts *counts, const bd_json *object,
                                    int64_t most, bd_error *err)
{
    *counts = (bd_added_counts){.unknown = bd_json_is_null(object, list_key) &&
                                           bd_json_is_null(object, other_key)};
    if (counts->unknown)
        return BD_OK;
    const bd_json *list;
    BD_TRY(bd_json_get_array(object, list_key, &list, err));
    const size_t n = bd_json_length(list);
    if (n > BD_COUNTED_IDS)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' has %zu entries, more than %d", list_key, n,
                       BD_COUNTED_IDS);
    for (size_t i = 0; i < n; i++)
        if (pair_from_json(counts, bd_json_at(list, i), most, err) != BD_OK)
            return bd_error_prefix(err, BD_ERR_FORMAT, "'%s[%zu]'", list_key, i);
    BD_TRY(bd_json_get_integer(object, other_key, 0, most, &counts->other, err));
    if (counts->other > 0 && n < BD_COUNTED_IDS)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' counts ids that '%s' has room for", other_key,
                       list_key);
    return BD_OK;
}
