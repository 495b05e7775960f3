// A shard made of any bytes: it is opened and every row checked, first with its own checksum
// and then with the right one, so that the rules after R7 are reached, too.
#include "tests/fuzz/memory_file.h"

// The source itself instead of the library: the bytes lie in memory, whose end AddressSanitizer
// watches, and not in a mapped file.
#include "common/dataset/shard.c"  // NOLINT(bugprone-suspicious-include)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bd_status open_bytes(bd_shard *shard, const void *data, size_t size, bd_error *err)
{
    *shard = (bd_shard){.file = {.slot = -1}, .path = strdup("fuzz")};
    BD_TRY(bd_arrow_reader_open(&shard->reader, data, size, err));
    BD_TRY(read_metadata(shard, err));
    BD_TRY(bd_arrow_reader_check_schema(shard->reader, &shard->config, err));
    return load_all(shard, err);
}

// What the packer's scan and a trainer do with a row that obeys the rules.
static void use_row(const bd_row *row, const bd_dataset_config *config)
{
    bd_figures figures = {0};
    REQUIRE(row->n_segments == row->n_bounds - 1);
    const int64_t used = row->bounds[row->n_segments];
    REQUIRE(0 < used && used <= config->seq_len);
    bd_figures_count_row(&figures, config->seq_len, used, row->n_segments);
    for (int64_t s = 0; s < row->n_segments; s++) {
        const int64_t from = row->bounds[s], to = row->bounds[s + 1];
        REQUIRE(0 <= from && from < to && to <= used);
        bd_figures_count_segment(&figures, row->segments.offset[s], to - from,
                                 bd_row_targets(row, s));
        bd_figures_count_document(&figures, row->segments.length[s]);
        const int64_t n = bd_separator_collisions(row, config, s);
        REQUIRE(0 <= n && n <= to - from);
    }
    const int id_bytes = bd_dataset_id_bytes(config);
    for (int64_t t = 0; t < config->seq_len; t++)
        REQUIRE(bd_id_at(row->ids, id_bytes, t) < config->vocab_size);
}

static void check_rows(const bd_shard *shard)
{
    bd_hasher *hasher = bd_hasher_new();
    REQUIRE(hasher);
    for (int64_t r = 0; r < shard->entry.figures.rows; r++) {
        bd_row row;
        bd_error err = {0};
        if (bd_shard_row(shard, r, hasher, &row, &err) == BD_OK)
            use_row(&row, &shard->config);
        else
            REQUIRE(strstr(err.message, "'fuzz', row ") == err.message);
        row.checksum = bd_row_checksum(&row, &shard->config, hasher);
        if (bd_row_check(&row, &shard->config, hasher, &err) == BD_OK)
            use_row(&row, &shard->config);
        else
            REQUIRE(err.message[0] == 'R' && err.message[1] != '7');
    }
    bd_hasher_free(hasher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bd_shard shard;
    bd_error err = {0};
    if (open_bytes(&shard, data, size, &err) == BD_OK)
        check_rows(&shard);
    else
        REQUIRE(err.status != BD_OK && err.message[0]);
    bd_shard_close(&shard);
    return 0;
}
