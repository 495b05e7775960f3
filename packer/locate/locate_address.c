#include "packer/locate/locate_address.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 3 };

// A part of the address between its colons.
typedef struct part {
    const char *text;  // not ended by NUL
    int n;
} part;

// How many parts `text` has; one more than MAX_PARTS stands for too many.
static int cut_address(const char *text, part *parts)
{
    int n = 0;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ":");
        if (n == MAX_PARTS || length > INT16_MAX)
            return MAX_PARTS + 1;
        parts[n++] = (part){at, (int)length};
        at += length;
        if (*at == '\0')
            return n;
    }
}

// Digits only. A number too large for any dataset becomes INT64_MAX, which none has.
static bool read_number(part p, int64_t *number)
{
    *number = 0;
    for (int i = 0; i < p.n; i++) {
        const char c = p.text[i];
        if (c < '0' || c > '9')
            return false;
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, c - '0', number)) {
            *number = INT64_MAX;
            return strspn(p.text, "0123456789") >= (size_t)p.n;
        }
    }
    return p.n > 0;
}

static bool find_input_name(part p, const bd_manifest *manifest, size_t *shard)
{
    bd_shard_name name;
    bd_unit unit;
    if ((size_t)p.n >= sizeof name.text)
        return false;
    memcpy(name.text, p.text, (size_t)p.n);
    name.text[p.n] = '\0';
    if (!bd_unit_from_name(&unit, name.text, ".arrow") &&
        !bd_unit_from_name(&unit, name.text, ""))
        return false;
    const bd_shard_entry *entry = bd_manifest_find_unit(manifest, &unit);
    if (!entry)
        return false;
    *shard = (size_t)(entry - manifest->shards);
    return true;
}

static bd_status read_shard(part p, const bd_manifest *manifest, size_t *shard, bd_error *err)
{
    int64_t number;
    if (read_number(p, &number) && number < (int64_t)manifest->n_shards) {
        *shard = (size_t)number;
        return BD_OK;
    }
    if (find_input_name(p, manifest, shard))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "no shard '%.*s': the dataset has shards 0 to %zu, %s to %s", p.n, p.text,
                   manifest->n_shards - 1, bd_unit_shard_name(&manifest->shards[0].unit).text,
                   bd_unit_shard_name(&manifest->shards[manifest->n_shards - 1].unit).text);
}

static bd_status read_row(part p, const bd_manifest *manifest, bd_token_address *address,
                          bd_error *err)
{
    const bd_shard_entry *entry = &manifest->shards[address->shard];
    const bd_shard_name name = bd_unit_shard_name(&entry->unit);
    if (entry->figures.rows == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "no row '%.*s': %s has no rows", p.n, p.text,
                       name.text);
    if (!read_number(p, &address->row) || address->row >= entry->figures.rows)
        return bd_fail(err, BD_ERR_ARGUMENT, "no row '%.*s': %s has rows 0 to %" PRId64, p.n,
                       p.text, name.text, entry->figures.rows - 1);
    return BD_OK;
}

static bd_status read_dataset_row(part p, const bd_manifest *manifest,
                                  bd_token_address *address, bd_error *err)
{
    int64_t row;
    if (!read_number(p, &row) ||
        !bd_manifest_find_row(manifest, row, &address->shard, &address->row))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "no row '%.*s': the dataset has rows 0 to %" PRId64, p.n, p.text,
                       manifest->totals.rows - 1);
    return BD_OK;
}

bd_status bd_token_address_parse(bd_token_address *address, const char *text,
                                 const bd_manifest *manifest, bd_error *err)
{
    part parts[MAX_PARTS];
    const int n = cut_address(text, parts);
    *address = (bd_token_address){0};
    if (n != 2 && n != 3)
        return bd_fail(err, BD_ERR_ARGUMENT, "'%.100s' is not SHARD:ROW:TOKEN or ROW:TOKEN",
                       text);
    if (manifest->n_shards == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "the dataset has no shards");
    if (n == 3)
        BD_TRY(read_shard(parts[0], manifest, &address->shard, err));
    BD_TRY(n == 3 ? read_row(parts[1], manifest, address, err)
                  : read_dataset_row(parts[0], manifest, address, err));
    const part token = parts[n - 1];
    if (!read_number(token, &address->token) || address->token >= manifest->config.seq_len)
        return bd_fail(err, BD_ERR_ARGUMENT, "no token '%.*s': a row has tokens 0 to %" PRId64,
                       token.n, token.text, manifest->config.seq_len - 1);
    return BD_OK;
}

int64_t bd_token_address_row(const bd_token_address *address, const bd_manifest *manifest)
{
    int64_t row = address->row;
    for (size_t i = 0; i < address->shard; i++)
        row += manifest->shards[i].figures.rows;
    return row;
}

int bd_token_address_compare(const bd_token_address *a, const bd_token_address *b)
{
    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}
