#include "packer/inspect/inspection_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "packer/pack/ledger_report.h"

static const char *const reading_words[] = {"sample", "all", "scan"};

static double share_of(double part, double whole)
{
    return bd_percent(part, whole) / 100;
}

static bd_json *lengths_to_json(const bd_inspection *in)
{
    const bd_quantiles *q = &in->lengths;
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "exact", q->exact);
    for (int i = 0; i < BD_N_QUANTILES - 1; i++) {
        char key[8];
        snprintf(key, sizeof key, "p%d", bd_quantile_percents[i]);
        bd_json_set_integer(json, key, q->values[i]);
    }
    bd_json_set_integer(json, "max", q->values[BD_N_QUANTILES - 1]);
    bd_json_set_bool(json, "max_exact", q->max_exact);
    return json;
}

static bd_json *padding_to_json(const bd_inspection *in)
{
    bd_json *json = bd_json_object(), *bins = bd_json_array();
    int n = BD_PADDING_BINS;
    while (n > 0 && in->statistics.padding[n - 1] == 0)
        n--;
    for (int i = 0; i < n; i++)
        bd_json_append(bins, bd_json_integer(in->statistics.padding[i]));
    bd_json_set_bool(json, "exact", bd_inspection_is_exact(in));
    bd_json_set_integer(json, "rows", in->statistics.figures.rows);
    bd_json_set(json, "histogram", bins);
    return json;
}

static bd_json *attention_to_json(const bd_inspection *in)
{
    const double pairs = (double)in->manifest.totals.attention_pairs;
    const double causal = bd_inspection_causal_pairs(in);
    bd_json *json = bd_json_object(), *tiles = bd_json_array();
    for (int i = 0; i < BD_N_TILE_SIZES; i++) {
        const double visited = (double)in->tiles[i], plain = (double)in->causal_tiles[i];
        bd_json *tile = bd_json_object();
        bd_json_set_integer(tile, "size", bd_tile_sizes[i]);
        bd_json_set_bool(tile, "exact", bd_inspection_is_exact(in));
        bd_json_set_integer(tile, "visited", in->tiles[i]);
        bd_json_set_integer(tile, "causal", in->causal_tiles[i]);
        bd_json_set_real(tile, "saved", plain > 0 ? 1 - share_of(visited, plain) : 0);
        bd_json_append(tiles, tile);
    }
    bd_json_set_integer(json, "pairs", in->manifest.totals.attention_pairs);
    bd_json_set_real(json, "causal_pairs", causal);
    bd_json_set_real(json, "saved", causal > 0 ? 1 - share_of(pairs, causal) : 0);
    bd_json_set(json, "tiles", tiles);
    return json;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void bd_json_set_short_name(bd_json *object, const char *key, const char *name,
                            size_t most_bytes)
{
    const size_t n = strlen(name);
    if (n <= most_bytes) {
        bd_json_set_string(object, key, name);
        return;
    }
    const char *end = name + n - most_bytes;
    while (((unsigned char)*end & 0xC0) == 0x80)  // not in the middle of a character
        end++;
    char *text = NULL;
    const bool made = asprintf(&text, "…%s", end) >= 0;
    bd_json_set_string(object, key, made ? text : end);
    if (made)
        free(text);
}

static bd_json *inspected_sources_to_json(const bd_inspection *in, bd_inspection_limits limits)
{
    bd_json *sources = bd_json_array();
    for (size_t i = 0; i < smaller(in->n_sources, limits.sources); i++) {
        const bd_source_figures *source = &in->sources[i];
        bd_json *json = bd_json_object();
        bd_json_set_short_name(json, "name", source->name, limits.name_bytes);
        bd_json_set_integer(json, "inputs", source->n_inputs);
        bd_json_set_real(
            json, "share",
            share_of((double)source->figures.packed, (double)in->manifest.totals.packed));
        bd_json_set(json, "figures",
                    bd_figures_to_json(&source->figures, in->manifest.config.loss_mask));
        bd_json_append(sources, json);
    }
    return sources;
}

static bd_json *input_figures_to_json(const bd_inspection *in, bd_inspection_limits limits)
{
    bd_json *inputs = bd_json_array();
    for (size_t i = 0; i < smaller(in->manifest.n_inputs, limits.inputs); i++) {
        bd_json *json = bd_json_object();
        bd_input_entry_to_json(&in->manifest.inputs[i], json);
        bd_json_append(inputs, json);
    }
    return inputs;
}

// Malloc'd; NULL for bytes that are not UTF-8, which JSON cannot hold.
static char *copy_text(const char *bytes, size_t n)
{
    const bool is_text = bytes && !memchr(bytes, 0, n) && bd_utf8_valid_prefix(bytes, n) == n;
    return is_text ? strndup(bytes, n) : NULL;
}

static void set_passed_over(bd_json *json, const bd_inspection *in, bd_inspection_limits limits)
{
    const bd_passed_over *passed = &in->manifest.passed_over;
    if (!passed->is_known) {
        bd_json_set_null(json, "passed_over");
        return;
    }
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < smaller(passed->n, limits.sources); i++) {
        const bd_passed_kind *kind = &passed->items[i];
        bd_json *entry = bd_json_object();
        bd_json_set_short_name(entry, "reason", kind->reason, limits.name_bytes);
        bd_json_set_integer(entry, "files", kind->n_files);
        bd_json_set_integer(entry, "bytes", kind->size_bytes);
        bd_json_set_short_name(entry, "first", kind->first, limits.name_bytes);
        bd_json_append(array, entry);
    }
    bd_json_set(json, "passed_over", array);
}

char *bd_inspection_token_text(const bd_inspection *inspection, uint32_t id)
{
    const bd_tokenizer *tokenizer = inspection->tokenizer;
    size_t n = 0;
    const char *bytes = tokenizer ? tokenizer->kind->token_bytes(tokenizer, id, &n) : NULL;
    return copy_text(bytes, n);
}

// Takes over `text`, which may be NULL.
static void set_text_or_null(bd_json *json, char *text)
{
    if (text)
        bd_json_set_string(json, "text", text);
    else
        bd_json_set_null(json, "text");
    free(text);
}

// The added tokens of the figures, each with its text.
static bd_json *added_to_json(const bd_inspection *in)
{
    const bd_added_counts *added = &in->manifest.totals.added;
    bd_json *list = bd_json_array();
    for (int32_t i = 0; i < added->n; i++) {
        size_t n = 0;
        const char *name =
            in->tokenizer ? bd_token_name(in->tokenizer, added->ids[i], &n) : NULL;
        bd_json *item = bd_json_object();
        bd_json_set_integer(item, "id", added->ids[i]);
        set_text_or_null(item, copy_text(name, n));
        bd_json_set_integer(item, "count", added->counts[i]);
        bd_json_append(list, item);
    }
    return list;
}

static bd_json *tokens_to_json(const bd_inspection *in)
{
    bd_json *json = bd_json_object(), *frequent = bd_json_array();
    for (size_t i = 0; i < in->n_frequent; i++) {
        const bd_frequent_token *token = &in->frequent[i];
        bd_json *item = bd_json_object();
        bd_json_set_integer(item, "id", token->id);
        set_text_or_null(item, bd_inspection_token_text(in, token->id));
        bd_json_set_integer(item, "count", token->count);
        bd_json_set_real(item, "share",
                         share_of((double)token->count, (double)in->tokens_counted));
        bd_json_append(frequent, item);
    }
    bd_json_set_bool(json, "exact", bd_inspection_is_exact(in));
    bd_json_set_integer(json, "counted", in->tokens_counted);
    bd_json_set(json, "frequent", frequent);
    bd_json_set(json, "added", added_to_json(in));
    return json;
}

static bd_json *most_repeated_to_json(const bd_inspection *in)
{
    bd_json *most = bd_json_array();
    for (size_t i = 0; i < in->duplicates.n_most; i++) {
        const bd_repeated_document *document = &in->duplicates.most[i];
        bd_json *json = bd_json_object();
        bd_json_set_integer(json, "count", document->count);
        bd_json_set_integer(json, "tokens", document->n_tokens);
        bd_json_set_string(json, "shard", bd_inspection_shard_name(in, document->shard).text);
        bd_json_set_integer(json, "row", document->row);
        bd_json_set_integer(json, "input", document->input);
        bd_json_set_integer(json, "position", (int64_t)document->position);
        bd_json_append(most, json);
    }
    return most;
}

static void set_duplicates(bd_json *json, const bd_inspection *in)
{
    const bd_duplicates *d = &in->duplicates;
    if (!in->has_duplicates) {
        bd_json_set_null(json, "duplicates");
        return;
    }
    bd_json *found = bd_json_object();
    bd_json_set_bool(found, "exact", d->exact);
    bd_json_set_real(found, "error", d->error);
    bd_json_set_integer(found, "documents", d->documents);
    bd_json_set_integer(found, "distinct", d->distinct);
    bd_json_set_integer(found, "repeated", d->documents - d->distinct);
    bd_json_set_integer(found, "tokens", d->tokens);
    if (d->exact)
        bd_json_set_integer(found, "repeated_tokens", d->repeated_tokens);
    else
        bd_json_set_null(found, "repeated_tokens");
    bd_json_set(found, "most_repeated", most_repeated_to_json(in));
    bd_json_set(json, "duplicates", found);
}

static bd_json *shards_to_json(const bd_inspection *in, bd_inspection_limits limits)
{
    bd_json *shards = bd_json_array();
    for (size_t i = 0; i < smaller(in->manifest.n_shards, limits.shards); i++) {
        const bd_shard_entry *entry = &in->manifest.shards[i];
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "file", bd_inspection_shard_name(in, i).text);
        bd_json_set_integer(json, "bytes", entry->size_bytes);
        if (in->is_shard)
            bd_json_set_null(json, "checksum");
        else
            bd_json_set_string(json, "checksum", entry->digest.hex);
        bd_json_set_integer(json, "rows", entry->figures.rows);
        bd_json_set_integer(json, "documents", entry->figures.documents);
        bd_json_set_integer(json, "tokens", entry->figures.packed);
        bd_json_set_integer(json, "padding", entry->figures.padding);
        bd_json_append(shards, json);
    }
    return shards;
}

static bd_json *extent_to_json(const bd_inspection *in)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "how", reading_words[in->rows_read]);
    bd_json_set_integer(json, "rows", in->statistics.figures.rows);
    bd_json_set_integer(json, "shards", in->shards_read);
    return json;
}

bd_json *bd_inspection_to_short_json(const bd_inspection *inspection,
                                     bd_inspection_limits limits)
{
    const bd_inspection *in = inspection;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.2");
    bd_json_set_string(json, "of", in->is_shard ? "shard" : "dataset");
    bd_json_set(json, "reading", extent_to_json(in));
    bd_json_set(json, "packing", bd_dataset_config_to_json(&in->manifest.config));
    if (in->tokenizer_file)
        bd_json_set_string(json, "tokenizer_file", in->tokenizer_file);
    else
        bd_json_set_null(json, "tokenizer_file");
    bd_json_set(json, "figures",
                bd_figures_to_json(&in->manifest.totals, in->manifest.config.loss_mask));
    bd_json_set(json, "lengths", lengths_to_json(in));
    bd_json_set(json, "padding_per_row", padding_to_json(in));
    bd_json_set(json, "attention", attention_to_json(in));
    bd_json_set(json, "tokens", tokens_to_json(in));
    set_duplicates(json, in);
    bd_json_set(json, "sources", inspected_sources_to_json(in, limits));
    bd_json_set(json, "inputs", input_figures_to_json(in, limits));
    set_passed_over(json, in, limits);
    bd_json_set(json, "shards", shards_to_json(in, limits));
    return json;
}

bd_json *bd_inspection_to_json(const bd_inspection *inspection)
{
    return bd_inspection_to_short_json(
        inspection, (bd_inspection_limits){SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX});
}
