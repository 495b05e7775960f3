#include "packer/inspect/inspection_page_rows.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "packer/input/input_options.h"
#include "packer/inspect/inspection_json.h"
#include "packer/inspect/inspection_page.h"
#include "packer/inspect/row_text.h"

typedef struct gathering {
    const bd_inspection *inspection;
    bd_hasher *hasher;  // owned
    bd_json *rows, *inputs, *vocabulary;
    size_t vocabulary_bytes;
    bool cut;
} gathering;

static int64_t min_count(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// ---- Tokens --------------------------------------------------------------------------------

typedef struct number_key {
    char text[24];
} number_key;

static number_key key_of(uint32_t number)
{
    number_key key;
    snprintf(key.text, sizeof key.text, "%" PRIu32, number);
    return key;
}

static bd_json *bytes_to_json(const char *bytes, size_t n)
{
    bd_json *json = bd_json_array();
    for (size_t i = 0; i < n; i++)
        bd_json_append(json, bd_json_integer((unsigned char)bytes[i]));
    return json;
}

static void add_token(gathering *g, uint32_t id)
{
    const bd_tokenizer *tokenizer = g->inspection->tokenizer;
    const number_key key = key_of(id);
    size_t n = 0;
    const char *bytes = tokenizer ? tokenizer->kind->token_bytes(tokenizer, id, &n) : NULL;
    if (!bytes || !bd_json_is_null(g->vocabulary, key.text))
        return;
    if (n > BD_PAGE_VOCABULARY_BYTES - g->vocabulary_bytes) {
        g->cut = true;
        return;
    }
    g->vocabulary_bytes += n;
    char *text = bd_inspection_token_text(g->inspection, id);
    if (text)
        bd_json_set_string(g->vocabulary, key.text, text);
    else
        bd_json_set(g->vocabulary, key.text, bytes_to_json(bytes, n));
    free(text);
}

static bd_json *ids_to_json(gathering *g, const bd_row *row, int64_t from, int64_t to)
{
    const int id_bytes = bd_dataset_id_bytes(&g->inspection->manifest.config);
    bd_json *ids = bd_json_array();
    for (int64_t t = from; t < to; t++) {
        const uint32_t id = bd_id_at(row->ids, id_bytes, t);
        bd_json_append(ids, bd_json_integer(id));
        add_token(g, id);
    }
    return ids;
}

// Which tokens of segment `s` before token `to` of the row are trained: pairs of the first one and
// the one after the last, counted from the segment's first token.
static bd_json *trained_to_json(const bd_row *row, int64_t s, int64_t to)
{
    const int64_t from = row->bounds[s];
    bd_json *ranges = bd_json_array();
    for (int64_t t = from, begin; t < to;) {
        while (t < to && !bd_row_is_target(row, s, t))
            t++;
        for (begin = t; t < to && bd_row_is_target(row, s, t);)
            t++;
        if (begin == t)
            break;
        bd_json *range = bd_json_array();
        bd_json_append(range, bd_json_integer(begin - from));
        bd_json_append(range, bd_json_integer(t - from));
        bd_json_append(ranges, range);
    }
    return ranges;
}

// ---- Segments ------------------------------------------------------------------------------

static void add_input(gathering *g, uint32_t index)
{
    const bd_manifest *manifest = &g->inspection->manifest;
    const number_key key = key_of(index);
    if (manifest->n_inputs == 0 || !bd_json_is_null(g->inputs, key.text))
        return;
    const bd_input_entry *input = &manifest->inputs[index];
    bd_json *json = bd_json_object();
    bd_json_set_short_name(json, "name", input->name, BD_PAGE_NAME_BYTES);
    bd_json_set_short_name(json, "source", input->source, BD_PAGE_NAME_BYTES);
    bd_json_set_string(json, "unit", bd_position_unit(input->format));
    bd_json_set(g->inputs, key.text, json);
}

static int64_t segment_tokens(const bd_row *row, int64_t s)
{
    return row->bounds[s + 1] - row->bounds[s];
}

// To how many tokens each of the first `n` segments is cut so that all of them have room.
static int64_t tokens_of_each(const bd_row *row, int64_t n)
{
    int64_t good = 0, bad = BD_PAGE_ROW_TOKENS + 1;
    while (bad - good > 1) {
        const int64_t middle = (good + bad) / 2;
        int64_t sum = 0;
        for (int64_t s = 0; s < n; s++)
            sum += min_count(segment_tokens(row, s), middle);
        if (sum <= BD_PAGE_ROW_TOKENS)
            good = middle;
        else
            bad = middle;
    }
    return good;
}

static bd_json *segments_to_json(gathering *g, const bd_row *row)
{
    const int64_t n = min_count(row->n_segments, BD_PAGE_SEGMENTS);
    const int64_t most = tokens_of_each(row, n);
    bd_json *segments = bd_json_array();
    for (int64_t s = 0; s < n; s++) {
        const int64_t from = row->bounds[s], to = row->bounds[s + 1];
        const int64_t shown_to = min_count(to, from + most);
        bd_json *json = bd_json_object();
        bd_json_set_integer(json, "from", from);
        bd_json_set_integer(json, "to", to);
        bd_json_set_integer(json, "input", row->segments.input[s]);
        bd_json_set_integer(json, "position", (int64_t)row->segments.position[s]);
        bd_json_set_integer(json, "offset", row->segments.offset[s]);
        bd_json_set_integer(json, "length", row->segments.length[s]);
        bd_json_set(json, "ids", ids_to_json(g, row, from, shown_to));
        if (row->loss_mask) {
            bd_json_set_integer(json, "targets", bd_row_targets(row, s));
            bd_json_set(json, "trained", trained_to_json(row, s, shown_to));
        }
        bd_json_append(segments, json);
        add_input(g, row->segments.input[s]);
    }
    return segments;
}

// ---- Rows ----------------------------------------------------------------------------------

static bd_status add_page_row(gathering *g, const bd_shard *shard, size_t index, int64_t number,
                              int64_t row_in_shard, bd_error *err)
{
    bd_row row;
    BD_TRY(bd_shard_row(shard, row_in_shard, g->hasher, &row, err));
    const bd_status status = bd_row_check_inputs(&row, &g->inspection->manifest, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'%s', row %" PRId64, shard->path, row_in_shard);
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "row", number);
    bd_json_set_string(json, "shard", bd_inspection_shard_name(g->inspection, index).text);
    bd_json_set_integer(json, "row_in_shard", row_in_shard);
    bd_json_set_integer(json, "used", row.bounds[row.n_segments]);
    bd_json_set_integer(json, "n_segments", row.n_segments);
    bd_json_set(json, "segments", segments_to_json(g, &row));
    bd_json_append(g->rows, json);
    return BD_OK;
}

// `n` rows from `number` on; they end with its shard.
static bd_status add_run(gathering *g, int64_t number, int64_t n, bd_error *err)
{
    const bd_inspection *in = g->inspection;
    size_t index;
    int64_t from;
    const bool found = bd_manifest_find_row(&in->manifest, number, &index, &from);
    assert(found);
    (void)found;
    const int64_t end = min_count(from + n, in->manifest.shards[index].figures.rows);
    bd_shard shard;
    BD_TRY(bd_inspection_open_shard(in, index, &shard, err));
    bd_status status = BD_OK;
    for (int64_t r = from; status == BD_OK && r < end; r++)
        status = add_page_row(g, &shard, index, number + r - from, r, err);
    bd_shard_close(&shard);
    return status;
}

// All rows if they are few, else runs at places that divide the rows evenly.
static bd_status add_page_rows(gathering *g, bd_error *err)
{
    const bd_manifest *manifest = &g->inspection->manifest;
    const int64_t rows = manifest->totals.rows;
    const bool all = rows <= BD_PAGE_ROWS;
    const int64_t run =
        !all && manifest->config.codec == BD_SHARD_ZSTD ? BD_PAGE_COMPRESSED_RUN : 1;
    const int64_t n_runs = all ? rows : BD_PAGE_ROWS / run;
    for (int64_t i = 0; i < n_runs; i++) {
        const int64_t place = (int64_t)((__int128)rows * (2 * i + 1) / (2 * n_runs));
        BD_TRY(add_run(g, place, run, err));
    }
    return BD_OK;
}

bd_status bd_inspection_page_sample(const bd_inspection *inspection, bd_json **sample,
                                    bd_error *err)
{
    gathering g = {
        .inspection = inspection,
        .hasher = bd_hasher_new(),
        .rows = bd_json_array(),
        .inputs = bd_json_object(),
        .vocabulary = bd_json_object(),
    };
    const bd_status status = g.hasher ? add_page_rows(&g, err)
                                      : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    *sample = bd_json_object();
    bd_json_set(*sample, "rows", g.rows);
    bd_json_set(*sample, "inputs", g.inputs);
    bd_json_set(*sample, "vocabulary", g.vocabulary);
    bd_json_set_bool(*sample, "cut", g.cut);
    bd_hasher_free(g.hasher);
    if (status != BD_OK) {
        bd_json_free(*sample);
        *sample = NULL;
    }
    return status;
}
