#include "common/dataset/figures.h"

#include <inttypes.h>

#include "common/base/memory.h"

#define FIELD_SINCE(minor, field)                                             \
    {                                                                         \
        .name = #field, .offset = offsetof(bd_figures, field), .since = minor \
    }
#define FIELD(field) FIELD_SINCE(0, field)
#define FIELD_OF_MASKS(field)                                                   \
    {                                                                           \
        .name = #field, .offset = offsetof(bd_figures, field), .of_masks = true \
    }

const bd_figure_field bd_figure_fields[] = {
    FIELD(rows),
    FIELD(segments),
    FIELD(documents),
    FIELD(text),
    FIELD(bos),
    FIELD(separators),
    FIELD(repeated),
    FIELD(packed),
    FIELD(padding),
    FIELD(truncated),
    FIELD(dropped),
    FIELD_SINCE(1, too_short),
    FIELD_SINCE(1, held_out),
    FIELD_OF_MASKS(untrained),
    FIELD_OF_MASKS(masked),
    FIELD(targets),
    FIELD(empty_documents),
    FIELD(split_documents),
    FIELD(truncated_documents),
    FIELD(dropped_documents),
    FIELD_SINCE(1, too_short_documents),
    FIELD_SINCE(1, held_out_documents),
    FIELD_OF_MASKS(untrained_documents),
    FIELD_SINCE(1, headless_documents),
    FIELD(separator_collisions),
    FIELD(invalid_utf8_documents),
    FIELD_SINCE(2, bad_missing_text),
    FIELD_SINCE(2, bad_json),
    FIELD_SINCE(2, bad_utf8),
    FIELD_SINCE(2, bad_too_large),
    FIELD_SINCE(2, bad_pattern),
    FIELD(longest_segment),
    FIELD(attention_pairs),
};
const size_t bd_n_figure_fields = sizeof bd_figure_fields / sizeof bd_figure_fields[0];

// Counts from a file are below this, so that the sum of a few of them cannot overflow.
static const int64_t max_figure = INT64_MAX / 16;

static const char document_lengths_key[] = "document_length_histogram";
static const char segments_per_row_key[] = "segments_per_row_histogram";

static int64_t *field_of(bd_figures *figures, size_t i)
{
    return (int64_t *)((char *)figures + bd_figure_fields[i].offset);
}

static int bin_of(int64_t value)
{
    return bd_bit_width((uint64_t)value) - 1;
}

void bd_figures_count_row(bd_figures *figures, int64_t seq_len, int64_t used,
                          int64_t n_segments)
{
    figures->rows++;
    figures->packed += used;
    figures->padding += seq_len - used;
    figures->segments_per_row[bin_of(n_segments)]++;
}

void bd_figures_count_segment(bd_figures *figures, int64_t offset, int64_t length,
                              int64_t n_targets)
{
    figures->segments++;
    figures->targets += n_targets;
    figures->masked += length - 1 - n_targets;
    figures->repeated += offset > 0;
    figures->attention_pairs += length * (length + 1) / 2;
    if (length > figures->longest_segment)
        figures->longest_segment = length;
}

void bd_figures_count_document(bd_figures *figures, int64_t length)
{
    figures->documents++;
    figures->document_lengths[bin_of(length)]++;
}

int64_t bd_figures_documents_read(const bd_figures *figures)
{
    return figures->documents + figures->dropped_documents + figures->too_short_documents +
           figures->held_out_documents + figures->untrained_documents;
}

int64_t bd_figures_bad_records(const bd_figures *figures)
{
    return figures->bad_missing_text + figures->bad_json + figures->bad_utf8 +
           figures->bad_too_large + figures->bad_pattern;
}

void bd_figures_take_left_out(bd_figures *figures, const bd_figures *from)
{
    figures->dropped = from->dropped;
    figures->dropped_documents = from->dropped_documents;
    figures->too_short = from->too_short;
    figures->too_short_documents = from->too_short_documents;
    figures->held_out = from->held_out;
    figures->held_out_documents = from->held_out_documents;
    figures->untrained = from->untrained;
    figures->untrained_documents = from->untrained_documents;
    figures->headless_documents = from->headless_documents;
    figures->invalid_utf8_documents = from->invalid_utf8_documents;
    figures->bad_missing_text = from->bad_missing_text;
    figures->bad_json = from->bad_json;
    figures->bad_utf8 = from->bad_utf8;
    figures->bad_too_large = from->bad_too_large;
    figures->bad_pattern = from->bad_pattern;
    figures->added = from->added;
}

static bd_status add_to(int64_t *total, int64_t part, const char *name, bd_error *err)
{
    if (!bd_int64_add(*total, part, total))
        return bd_fail(err, BD_ERR_FORMAT, "the sum of '%s' is too large", name);
    return BD_OK;
}

bd_status bd_figures_add(bd_figures *total, const bd_figures *part, bd_error *err)
{
    const int64_t longest = total->longest_segment > part->longest_segment
                                ? total->longest_segment
                                : part->longest_segment;
    bd_figures other = *part;
    for (size_t i = 0; i < bd_n_figure_fields; i++)
        BD_TRY(add_to(field_of(total, i), *field_of(&other, i), bd_figure_fields[i].name, err));
    total->longest_segment = longest;
    for (int bin = 0; bin < BD_HISTOGRAM_BINS; bin++) {
        BD_TRY(add_to(&total->document_lengths[bin], part->document_lengths[bin],
                      document_lengths_key, err));
        BD_TRY(add_to(&total->segments_per_row[bin], part->segments_per_row[bin],
                      segments_per_row_key, err));
    }
    return bd_added_counts_add(&total->added, &part->added, err);
}

// The sums are 128 bits wide, because numbers from a file may be anything.
bd_status bd_figures_check_ledger(const bd_figures *figures, int64_t seq_len, bd_error *err)
{
    typedef __int128 wide;
    const bd_figures *f = figures;
    if ((wide)f->text + f->bos + f->separators + f->repeated !=
        (wide)f->packed + f->truncated + f->dropped + f->too_short + f->held_out + f->untrained)
        return bd_fail(err, BD_ERR_FORMAT,
                       "S6: the ledger does not add up: text %" PRId64 " + bos %" PRId64
                       " + separators %" PRId64 " + repeated %" PRId64 " != packed %" PRId64
                       " + truncated %" PRId64 " + dropped %" PRId64 " + too short %" PRId64
                       " + held out %" PRId64 " + untrained %" PRId64,
                       f->text, f->bos, f->separators, f->repeated, f->packed, f->truncated,
                       f->dropped, f->too_short, f->held_out, f->untrained);
    if ((wide)f->packed + f->padding != (wide)f->rows * seq_len)
        return bd_fail(err, BD_ERR_FORMAT,
                       "S6: the ledger does not add up: packed %" PRId64 " + padding %" PRId64
                       " != rows %" PRId64 " x %" PRId64,
                       f->packed, f->padding, f->rows, seq_len);
    if ((wide)f->packed - f->segments - f->masked != f->targets)
        return bd_fail(err, BD_ERR_FORMAT,
                       "S6: the ledger does not add up: packed %" PRId64 " - segments %" PRId64
                       " - masked %" PRId64 " != targets %" PRId64,
                       f->packed, f->segments, f->masked, f->targets);
    return BD_OK;
}

static bd_json *histogram_to_json(const int64_t *bins)
{
    int n = BD_HISTOGRAM_BINS;
    while (n > 0 && bins[n - 1] == 0)
        n--;
    bd_json *array = bd_json_array();
    for (int i = 0; i < n; i++)
        bd_json_append(array, bd_json_integer(bins[i]));
    return array;
}

static bd_status histogram_from_json(int64_t *bins, const bd_json *json, const char *key,
                                     bd_error *err)
{
    const bd_json *array;
    BD_TRY(bd_json_get_array(json, key, &array, err));
    const size_t n = bd_json_length(array);
    if (n > BD_HISTOGRAM_BINS)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' has %zu entries, more than %d", key, n,
                       BD_HISTOGRAM_BINS);
    for (size_t i = 0; i < n; i++)
        if (bd_json_as_integer(bd_json_at(array, i), 0, max_figure, &bins[i], err) != BD_OK)
            return bd_error_prefix(err, BD_ERR_FORMAT, "'%s[%zu]'", key, i);
    return BD_OK;
}

bd_json *bd_figures_to_json(const bd_figures *figures, bool masked)
{
    bd_figures copy = *figures;
    bd_json *json = bd_json_object();
    for (size_t i = 0; i < bd_n_figure_fields; i++)
        if (masked || !bd_figure_fields[i].of_masks)
            bd_json_set_integer(json, bd_figure_fields[i].name, *field_of(&copy, i));
    bd_added_counts_to_json(&figures->added, json);
    bd_json_set(json, document_lengths_key, histogram_to_json(figures->document_lengths));
    bd_json_set(json, segments_per_row_key, histogram_to_json(figures->segments_per_row));
    return json;
}

bd_status bd_figures_from_json(bd_figures *figures, const bd_json *json, bool masked,
                               bd_error *err)
{
    *figures = (bd_figures){0};
    for (size_t i = 0; i < bd_n_figure_fields; i++) {
        const bd_figure_field *field = &bd_figure_fields[i];
        if (field->of_masks ? masked : field->since == 0 || !bd_json_is_null(json, field->name))
            BD_TRY(bd_json_get_integer(json, field->name, 0, max_figure, field_of(figures, i),
                                       err));
    }
    BD_TRY(bd_added_counts_from_json(&figures->added, json, max_figure, err));
    BD_TRY(histogram_from_json(figures->document_lengths, json, document_lengths_key, err));
    return histogram_from_json(figures->segments_per_row, json, segments_per_row_key, err);
}

bool bd_figures_difference(const bd_figures *here, const bd_figures *there, char *where,
                           size_t where_size)
{
    bd_figures comparable = *here;
    if (there->added.unknown)
        comparable.added = there->added;
    bd_json *a = bd_figures_to_json(&comparable, true), *b = bd_figures_to_json(there, true);
    const bool differ = bd_json_difference(a, b, where, where_size);
    bd_json_free(a);
    bd_json_free(b);
    return differ;
}
