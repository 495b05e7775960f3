#include "packer/inspect/inspect_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bd_status print_row(FILE *out, const bd_inspection *in, const bd_shard *shard,
                           int64_t number, int64_t row_in_shard, bd_row_style style,
                           bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_row row;
    bd_status status = bd_shard_row(shard, row_in_shard, hasher, &row, err);
    bd_hasher_free(hasher);
    if (status != BD_OK)
        return status;
    fprintf(out,
            "Row %" PRId64 ": row %" PRId64 " of %s, %" PRId64 " segment%s, %d of %" PRId64
            " tokens used\n",
            number, row_in_shard, bd_unit_shard_name(&shard->entry.unit).text, row.n_segments,
            row.n_segments == 1 ? "" : "s", row.bounds[row.n_segments],
            in->manifest.config.seq_len);
    status = bd_row_print(out, &row, &in->manifest, in->tokenizer, style, err);
    if (status == BD_ERR_FORMAT)
        bd_error_prefix(err, status, "'%s', row %" PRId64, shard->path, row_in_shard);
    return status;
}

static bd_status print_numbered(FILE *out, const bd_inspection *in, int64_t number,
                                bd_row_style style, bd_error *err)
{
    size_t index;
    int64_t row_in_shard;
    if (!bd_manifest_find_row(&in->manifest, number, &index, &row_in_shard))
        return in->manifest.totals.rows == 0
                   ? bd_fail(err, BD_ERR_ARGUMENT, "--row: '%s' has no rows", in->path)
                   : bd_fail(err, BD_ERR_ARGUMENT, "--row: '%s' has rows 0 to %" PRId64,
                             in->path, in->manifest.totals.rows - 1);
    bd_shard shard;
    BD_TRY(bd_inspection_open_shard(in, index, &shard, err));
    const bd_status status = print_row(out, in, &shard, number, row_in_shard, style, err);
    bd_shard_close(&shard);
    return status;
}

// ---- --row ---------------------------------------------------------------------------------

static bool parse_number(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    *number = value;
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

// The shard that is called `name`, with or without ".arrow": the number in the dataset of its
// first row, and how many rows it has.
static bool find_shard(const bd_manifest *manifest, const char *name, size_t n, int64_t *first,
                       int64_t *rows)
{
    *first = 0;
    for (size_t i = 0; i < manifest->n_shards; i++) {
        const bd_shard_name shard = bd_unit_shard_name(&manifest->shards[i].unit);
        const size_t stem = strlen(shard.text) - strlen(".arrow");
        *rows = manifest->shards[i].figures.rows;
        if ((n == stem || n == strlen(shard.text)) && strncmp(name, shard.text, n) == 0)
            return true;
        *first += *rows;
    }
    return false;
}

bd_status bd_inspect_row(FILE *out, const bd_inspection *inspection, const char *which,
                         bd_row_style style, bd_error *err)
{
    const bd_manifest *manifest = &inspection->manifest;
    const char *colon = strrchr(which, ':');
    int64_t number, first = 0, rows;
    if (!parse_number(colon ? colon + 1 : which, &number))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--row: '%.60s' is neither the number of a row nor SHARD:ROW", which);
    if (!colon)
        return print_numbered(out, inspection, number, style, err);
    if (!find_shard(manifest, which, (size_t)(colon - which), &first, &rows))
        return bd_fail(err, BD_ERR_ARGUMENT, "--row: '%s' has no shard '%.*s'",
                       inspection->path, (int)(colon - which), which);
    if (number >= rows)
        return bd_fail(err, BD_ERR_ARGUMENT, "--row: '%.*s' has %" PRId64 " rows",
                       (int)(colon - which), which, rows);
    return print_numbered(out, inspection, first + number, style, err);
}

// ---- --sample ------------------------------------------------------------------------------

static bool contains(const int64_t *rows, int64_t n, int64_t row)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] == row)
            return true;
    return false;
}

// The draws are the hashes of 0, 1, 2 …, those that were there already left out.
static void draw_rows(int64_t *drawn, int64_t n, int64_t n_rows, uint64_t seed)
{
    uint64_t counter = 0;
    for (int64_t i = 0; i < n;) {
        const uint64_t hash = bd_hash64(&counter, sizeof counter, seed);
        const int64_t row = (int64_t)((unsigned __int128)hash * (uint64_t)n_rows >> 64);
        counter++;
        if (!contains(drawn, i, row))
            drawn[i++] = row;
    }
}

bd_status bd_inspect_sample(FILE *out, const bd_inspection *inspection, int64_t n, int64_t seed,
                            bd_row_style style, bd_error *err)
{
    const int64_t n_rows = inspection->manifest.totals.rows;
    const bool all = n >= n_rows;
    n = all ? n_rows : n;
    int64_t *drawn = calloc((size_t)n + 1, sizeof *drawn);
    if (!drawn)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a sample");
    if (!all)
        draw_rows(drawn, n, n_rows, (uint64_t)seed);
    bd_status status = BD_OK;
    for (int64_t i = 0; status == BD_OK && i < n && !ferror(out); i++) {
        if (i > 0)
            fputc('\n', out);
        status = print_numbered(out, inspection, all ? i : drawn[i], style, err);
    }
    free(drawn);
    return status;
}
