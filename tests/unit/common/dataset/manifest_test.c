#include "common/dataset/manifest.h"

#include "tests/unit/temporary_folder.h"

#include "tests/unit/common/dataset/input_entry_fixture.h"

// ---- A small dataset: three inputs, three shards, the second without a row --------
//
// The first input is cut by a stride, the size of the second was not known before reading, the
// third is cut at `starts`.

static bd_figures shard_figures(int64_t rows)
{
    bd_figures figures = {
        .rows = rows,
        .segments = 2 * rows,
        .documents = 2 * rows,
        .text = 6 * rows,
        .separators = 2 * rows,
        .packed = 8 * rows,
        .padding = 2 * rows,
        .targets = 6 * rows,
        .longest_segment = rows > 0 ? 4 + rows : 0,
        .attention_pairs = 20 * rows,
    };
    figures.document_lengths[2] = 2 * rows;
    figures.segments_per_row[1] = rows;
    return figures;
}

static bd_input_entry inputs[] = {
    {.name = "a.jsonl",
     .source = "default",
     .format = "jsonl",
     .compression = "none",
     .size_bytes = 100,
     .weight = 99,
     .extent = 98,
     .stride = 60},
    {.name = "caf\u00e9/b.txt",
     .source = "web",
     .format = "text",
     .compression = "zstd",
     .size_bytes = 0,
     .weight = BD_UNKNOWN,
     .extent = BD_UNKNOWN,
     .stride = INT64_MAX},
    {.name = "c.parquet",
     .source = "web",
     .format = "parquet",
     .compression = "none",
     .size_bytes = INT64_MAX,
     .weight = 0,
     .extent = 900,
     .starts = (int64_t[]){0, 1, 899},
     .n_starts = 3},
};

static bd_passed_kind passed_kinds[] = {{(char[]){"hidden"}, 3, 70, (char[]){"web/.a"}},
                                        {(char[]){"xz"}, 1, 4567, (char[]){"b.xz"}}};

static bd_manifest example(bd_shard_entry shards[3])
{
    static const int64_t rows[] = {3, 0, 2};
    static const bd_unit units[] = {{0, 0, 1, false}, {0, 1, 1, true}, {1, 0, 2, true}};
    bd_manifest manifest = {
        .config = {.seq_len = 10,
                   .vocab_size = 257,
                   .separator = 256,
                   .bos = BD_NO_BOS,
                   .padding = 256,
                   .batch_rows = 4,
                   .shuffle = BD_NO_SHUFFLE,
                   .tokenizer = "bytes",
                   .fingerprint = bd_digest_of("f", 1)},
        .plan_digest = bd_digest_of("p", 1),
        .tokenizer_digest = bd_digest_of("t", 1),
        .inputs = inputs,
        .n_inputs = 3,
        .passed_over = {.items = passed_kinds, .n = 2, .is_known = true},
        .shards = shards,
        .n_shards = 3,
    };
    for (int i = 0; i < 3; i++) {
        shards[i] = (bd_shard_entry){.unit = units[i],
                                     .size_bytes = 1000 + i,
                                     .digest = bd_digest_of(&rows[i], 1),
                                     .records = bd_digest_of(&rows[i], 2),
                                     .positions = bd_digest_of(&rows[i], 3),
                                     .figures = shard_figures(rows[i])};
        assert_int_equal(bd_figures_add(&manifest.totals, &shards[i].figures, NULL), BD_OK);
    }
    return manifest;
}

// Publishes the example into `folder` and returns its text, which the caller frees.
static char *publish_example(const char *folder, size_t *size_bytes)
{
    bd_shard_entry shards[3];
    const bd_manifest manifest = example(shards);
    assert_int_equal(bd_manifest_publish(&manifest, folder, NULL), BD_OK);
    return read_file(in(folder, BD_MANIFEST_NAME), size_bytes);
}

static void assert_empty(const bd_manifest *manifest)
{
    assert_null(manifest->inputs);
    assert_null(manifest->shards);
    assert_int_equal(manifest->n_inputs, 0);
    assert_int_equal(manifest->n_shards, 0);
}

// ---- Writing and reading ----------------------------------------------------------

static void assert_same_config(const bd_dataset_config *here, const bd_dataset_config *there)
{
    bd_json *a = bd_dataset_config_to_json(here), *b = bd_dataset_config_to_json(there);
    char where[256] = "";
    bd_json_difference(a, b, where, sizeof where);
    assert_string_equal(where, "");
    bd_json_free(a);
    bd_json_free(b);
}

// The fields that a shard's own metadata has.
static void assert_same_shard(const bd_shard_entry *here, const bd_shard_entry *there)
{
    assert_int_equal(here->unit.input, there->unit.input);
    assert_int_equal(here->unit.slice, there->unit.slice);
    assert_int_equal(here->unit.n_inputs, there->unit.n_inputs);
    assert_true(here->unit.last == there->unit.last);
    assert_string_equal(here->records.hex, there->records.hex);
    assert_string_equal(here->positions.hex, there->positions.hex);
    assert_memory_equal(&here->figures, &there->figures, sizeof here->figures);
}

static void manifest_comes_back_as_it_was_published(void **state)
{
    bd_shard_entry shards[3];
    const bd_manifest before = example(shards);
    bd_manifest after;
    assert_int_equal(bd_manifest_publish(&before, *state, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 1);
    assert_int_equal(bd_manifest_read(&after, *state, NULL), BD_OK);
    assert_same_config(&after.config, &before.config);
    assert_string_equal(after.plan_digest.hex, before.plan_digest.hex);
    assert_string_equal(after.tokenizer_digest.hex, before.tokenizer_digest.hex);
    assert_int_equal(after.n_inputs, 3);
    for (int i = 0; i < 3; i++)
        assert_same_input(&after.inputs[i], &inputs[i]);
    assert_true(after.passed_over.is_known);
    assert_int_equal(after.passed_over.n, 2);
    for (int i = 0; i < 2; i++) {
        const bd_passed_kind *kind = &after.passed_over.items[i];
        assert_string_equal(kind->reason, passed_kinds[i].reason);
        assert_string_equal(kind->first, passed_kinds[i].first);
        assert_int_equal(kind->n_files, passed_kinds[i].n_files);
        assert_int_equal(kind->size_bytes, passed_kinds[i].size_bytes);
    }
    assert_int_equal(after.n_shards, 3);
    for (int i = 0; i < 3; i++) {
        assert_same_shard(&after.shards[i], &shards[i]);
        assert_int_equal(after.shards[i].size_bytes, shards[i].size_bytes);
        assert_string_equal(after.shards[i].digest.hex, shards[i].digest.hex);
    }
    assert_memory_equal(&after.totals, &before.totals, sizeof after.totals);
    bd_manifest_release(&after);
    assert_empty(&after);
    bd_manifest_release(&after);
}

static void metadata_of_a_shard_comes_back_without_size_and_digest(void **state)
{
    (void)state;
    bd_shard_entry shards[3];
    const bd_manifest manifest = example(shards);
    shards[1].records = (bd_digest){""};  // as format 1.0 has it
    for (int i = 0; i < 3; i++) {
        bd_dataset_config config;
        bd_shard_entry entry;
        bd_json *json = bd_shard_metadata(&manifest.config, &shards[i]);
        memset(&entry, 0xFF, sizeof entry);
        assert_int_equal(bd_shard_metadata_read(json, &config, &entry, NULL), BD_OK);
        assert_same_config(&config, &manifest.config);
        assert_same_shard(&entry, &shards[i]);
        assert_int_equal(entry.size_bytes, 0);
        assert_string_equal(entry.digest.hex, "");
        bd_json_set_string(json, "records", "no checksum");
        assert_int_equal(bd_shard_metadata_read(json, &config, &entry, NULL), BD_ERR_FORMAT);
        bd_json_set_string(json, "format", "3.0");
        assert_int_equal(bd_shard_metadata_read(json, &config, &entry, NULL),
                         BD_ERR_UNSUPPORTED);
        bd_json_free(json);
    }
}

static void dataset_of_nothing_comes_back(void **state)
{
    bd_shard_entry shards[3];
    bd_manifest manifest = example(shards);
    manifest.n_inputs = manifest.n_shards = 0;
    manifest.totals = (bd_figures){0};
    assert_int_equal(bd_manifest_publish(&manifest, *state, NULL), BD_OK);
    bd_manifest after;
    assert_int_equal(bd_manifest_read(&after, *state, NULL), BD_OK);
    assert_int_equal(after.n_inputs, 0);
    assert_int_equal(after.n_shards, 0);
    bd_manifest_release(&after);
}

static void printed_manifest_is_the_file(void **state)
{
    size_t n, n_printed;
    char *text = publish_example(*state, &n), *printed;
    FILE *out = open_memstream(&printed, &n_printed);
    assert_int_equal(bd_manifest_print(*state, out, NULL), BD_OK);
    fclose(out);
    assert_int_equal(n_printed, n);
    assert_memory_equal(printed, text, n);
    free(printed);
    free(text);
}

static void last_member_is_the_checksum_of_everything_before_it(void **state)
{
    size_t n;
    char *text = publish_example(*state, &n), *comma = strrchr(text, ',');
    char expected[100];
    snprintf(expected, sizeof expected, ",\n  \"checksum\": \"%s\"\n}\n",
             bd_digest_of(text, (size_t)(comma - text)).hex);
    assert_string_equal(comma, expected);
    free(text);
}

// ---- Damage -----------------------------------------------------------------------

static void refuses_damage(const char *folder, const char *what, size_t at)
{
    bd_manifest manifest;
    bd_error err;
    const bd_status status = bd_manifest_read(&manifest, folder, &err);
    if (status != BD_ERR_FORMAT || !strstr(err.message, "manifest.json': D1: "))
        fail_msg("%s at byte %zu: status %d, '%s'", what, at, (int)status,
                 status == BD_OK ? "" : err.message);
    assert_empty(&manifest);
}

static void every_changed_bit_is_noticed(void **state)
{
    size_t n;
    char *text = publish_example(*state, &n);
    FILE *file = fopen(in(*state, BD_MANIFEST_NAME), "r+b");
    assert_non_null(file);
    setbuf(file, NULL);
    for (size_t at = 0; at < n; at++) {
        for (int change = 1; change < 256; change *= 2) {
            fseek(file, (long)at, SEEK_SET);
            fputc(text[at] ^ change, file);
            refuses_damage(*state, "change", at);
        }
        fseek(file, (long)at, SEEK_SET);
        fputc(text[at], file);
    }
    fclose(file);
    bd_manifest manifest;
    assert_int_equal(bd_manifest_read(&manifest, *state, NULL), BD_OK);
    bd_manifest_release(&manifest);
    free(text);
}

static void every_lost_or_added_byte_is_noticed(void **state)
{
    size_t n;
    char *text = publish_example(*state, &n), *other = malloc(n + 1);
    const char *path = in(*state, BD_MANIFEST_NAME);
    assert_non_null(other);
    for (size_t at = 0; at < n; at++) {
        write_file(path, text, at);
        refuses_damage(*state, "cut", at);
        memcpy(other, text, at);
        memcpy(other + at, text + at + 1, n - at - 1);
        write_file(path, other, n - 1);
        refuses_damage(*state, "loss", at);
    }
    for (size_t at = 0; at <= n; at++) {
        memcpy(other, text, at);
        other[at] = ' ';
        memcpy(other + at + 1, text + at, n - at);
        write_file(path, other, n + 1);
        refuses_damage(*state, "addition", at);
    }
    free(other);
    free(text);
}

// ---- Contradictions with a right checksum -----------------------------------------

// Writes the text with occurrence number `which` (from 0) of `old` replaced, and makes its
// checksum right again. Returns false if there is no such occurrence.
static bool forge(const char *folder, const char *text, const char *old, int which,
                  const char *new)
{
    const char *at = strstr(text, old), *end = strrchr(text, ',');
    for (; at && which > 0; which--)
        at = strstr(at + 1, old);
    if (!at || at > end)
        return false;
    char *body, *whole;
    const int n_body = asprintf(&body, "%.*s%s%.*s", (int)(at - text), text, new,
                                (int)(end - at - (ptrdiff_t)strlen(old)), at + strlen(old));
    assert_true(n_body > 0);
    const int n = asprintf(&whole, "%s,\n  \"checksum\": \"%s\"\n}\n", body,
                           bd_digest_of(body, (size_t)n_body).hex);
    write_file(in(folder, BD_MANIFEST_NAME), whole, (size_t)n);
    free(body);
    free(whole);
    return true;
}

static void contradiction_is_named(void **state)
{
    static const struct {
        const char *old;
        int which;
        const char *new;
        bd_status status;
        const char *message;
    } cases[] = {
        {"\"" BD_FORMAT_VERSION "\"", 0, "\"3.0\"", BD_ERR_UNSUPPORTED,
         "format '3.0' is not one that"},
        {"\"" BD_FORMAT_VERSION "\"", 0, "\"2.0\"", BD_ERR_FORMAT,
         "format '2.0' contradicts 'loss_mask', which is not true"},
        {"plan.json", 0, "../plan.json", BD_ERR_FORMAT,
         "'file' is '../plan.json' instead of 'plan.json'"},
        {"tokenizer.json", 0, "x", BD_ERR_FORMAT, "'file' is 'x' instead of 'tokenizer.json'"},
        {"899", 0, "1", BD_ERR_FORMAT, "inputs[2]: 'starts[2]': not an integer from 2 to"},
        {"00000-00001.arrow", 0, "00000-00002.arrow", BD_ERR_FORMAT,
         "shards[1]: 'file' is '00000-00002.arrow' instead of '00000-00001.arrow'"},
        {"00001-00000.arrow", 0, "/etc/passwd", BD_ERR_FORMAT,
         "shards[2]: 'file' is '/etc/passwd' instead of '00001-00000.arrow'"},
        {"\"inputs\": 2", 0, "\"inputs\": 3", BD_ERR_FORMAT,
         "shards[2]: its unit names inputs that the manifest does not list"},
        {"\"inputs\": 2", 0, "\"inputs\": 2147483647", BD_ERR_FORMAT,
         "shards[2]: its unit names inputs that the manifest does not list"},
        {"\"inputs\": 1", 1, "\"inputs\": 2", BD_ERR_FORMAT,
         "shards[2]: its unit does not follow the one before"},
        {"\"inputs\": 2", 1, "\"inputs\": 1", BD_ERR_FORMAT,
         "D3: the sources are not the sums over their shards: [1 'web'].inputs: 2 here, 1 "
         "there"},
        {"\"source\": \"web\"", 0, "\"source\": \"default\"", BD_ERR_FORMAT,
         "D3: the sources are not the sums over their shards: [0 'default'].inputs: 2 here, 1 "
         "there"},
        {"\"sources\": [", 0, "\"sources\": [], \"x\": [", BD_ERR_FORMAT,
         "D3: the sources are not the sums over their shards: [0 'default']: "},
    };
    size_t n;
    char *text = publish_example(*state, &n), expected[5000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_manifest manifest;
        bd_error err = {0};
        assert_true(forge(*state, text, cases[i].old, cases[i].which, cases[i].new));
        assert_int_equal(bd_manifest_read(&manifest, *state, &err), cases[i].status);
        snprintf(expected, sizeof expected, "cannot use '%s/manifest.json': %s",
                 (const char *)*state, cases[i].message);
        if (strncmp(err.message, expected, strlen(expected)) != 0)
            fail_msg("case %zu: '%s' instead of '%s'", i, err.message, expected);
        assert_empty(&manifest);
    }
    free(text);
}

static void shards_out_of_order_are_refused(void **state)
{
    static const bd_unit orders[][2] = {{{0, 1, 1, true}, {0, 0, 1, true}},
                                        {{0, 1, 1, true}, {0, 1, 1, true}},
                                        {{1, 0, 1, true}, {0, 0, 1, true}},
                                        {{0, 0, 2, true}, {1, 0, 1, true}},
                                        {{0, 0, 3, true}, {2, 0, 1, true}}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        bd_shard_entry shards[3];
        bd_manifest manifest = example(shards);
        bd_error err;
        char expected[5000];
        shards[0].unit = orders[i][0];
        shards[1].unit = orders[i][1];
        shards[2].unit = (bd_unit){2, 7, 1, true};
        assert_int_equal(bd_manifest_publish(&manifest, *state, NULL), BD_OK);
        assert_int_equal(bd_manifest_read(&manifest, *state, &err), BD_ERR_FORMAT);
        snprintf(expected, sizeof expected,
                 "cannot use '%s/manifest.json': shards[1]: its unit does not follow the one "
                 "before",
                 (const char *)*state);
        assert_string_equal(err.message, expected);
    }
}

// ---- Format 1.0 -------------------------------------------------------------------

#define FIGURES_1_0                                                                            \
    "{\"rows\":2,\"segments\":3,\"documents\":3,\"text\":12,\"bos\":0,\"separators\":3,"       \
    "\"repeated\":0,\"packed\":15,\"padding\":5,\"truncated\":0,\"dropped\":0,\"targets\":12," \
    "\"empty_documents\":0,\"split_documents\":0,\"truncated_documents\":0,"                   \
    "\"dropped_documents\":0,\"separator_collisions\":0,\"invalid_utf8_documents\":0,"         \
    "\"longest_segment\":6,\"attention_pairs\":46,\"document_length_histogram\":[0,0,3],"      \
    "\"segments_per_row_histogram\":[1,1]}"

// In the form that a released version wrote, except for white space.
static const char body_1_0[] =
    "{\"format\":\"1.0\",\"packing\":{\"seq_len\":10,\"vocab_size\":257,\"separator\":256,"
    "\"bos\":null,\"padding\":256,\"batch_rows\":4,\"strategy\":\"best-fit\",\"long\":"
    "\"split\","
    "\"tokenizer\":{\"name\":\"bytes\",\"fingerprint\":\"f42017219a71443d62cc4e2539ffa8a9\"}},"
    "\"plan\":{\"file\":\"plan.json\",\"checksum\":\"00000000000000000000000000000001\"},"
    "\"tokenizer\":{\"file\":\"tokenizer.json\","
    "\"checksum\":\"00000000000000000000000000000002\"},"
    "\"inputs\":[{\"name\":\"a.jsonl\",\"source\":\"default\",\"format\":\"jsonl\",\"bytes\":"
    "77}],"
    "\"shards\":[{\"file\":\"00000-00000.arrow\","
    "\"checksum\":\"00000000000000000000000000000003\",\"bytes\":1234,"
    "\"unit\":{\"input\":0,\"slice\":0,\"inputs\":1},\"figures\":" FIGURES_1_0 "}],"
    "\"totals\":" FIGURES_1_0 ",\n}";

static void manifest_of_format_1_0_is_read(void **state)
{
    bd_manifest manifest;
    assert_true(forge(*state, body_1_0, "1.0", 0, "1.0"));
    assert_int_equal(bd_manifest_read(&manifest, *state, NULL), BD_OK);
    assert_int_equal(manifest.n_inputs, 1);
    const bd_input_entry *input = &manifest.inputs[0];
    assert_string_equal(input->compression, "none");
    assert_int_equal(input->size_bytes, 77);
    assert_int_equal(input->weight, 77);
    assert_int_equal(input->extent, 77);
    assert_int_equal(input->stride, 0);
    assert_int_equal(input->n_starts, 0);
    assert_int_equal(manifest.n_shards, 1);
    assert_true(manifest.shards[0].unit.last);
    assert_string_equal(manifest.shards[0].records.hex, "");
    assert_int_equal(manifest.shards[0].figures.packed, 15);
    assert_int_equal(manifest.config.shuffle, BD_NO_SHUFFLE);
    assert_int_equal(manifest.totals.held_out, 0);

    bd_source_figures *sources;
    size_t n;
    assert_int_equal(bd_manifest_sources(&manifest, &sources, &n, NULL), BD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(sources[0].figures.text, 12);
    free(sources);
    bd_manifest_release(&manifest);
}

static void input_without_any_size_is_refused_in_format_1_0(void **state)
{
    bd_manifest manifest;
    bd_error err = {0};
    assert_true(forge(*state, body_1_0, "\"bytes\":77", 0, "\"bytes\":null"));
    assert_int_equal(bd_manifest_read(&manifest, *state, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "inputs[0]: 'bytes' is missing"));
    assert_empty(&manifest);
}

// ---- A newer minor version --------------------------------------------------------

static void unknown_key_of_a_newer_minor_version_is_ignored(void **state)
{
    size_t n;
    char *text = publish_example(*state, &n);
    assert_true(forge(*state, text, "\"" BD_FORMAT_VERSION "\"", 0,
                      "\"1.9\",\n  \"later\": {\"a\": [1]}"));
    bd_manifest manifest;
    assert_int_equal(bd_manifest_read(&manifest, *state, NULL), BD_OK);
    assert_int_equal(manifest.n_shards, 3);
    bd_manifest_release(&manifest);
    free(text);
}

// ---- Errors -----------------------------------------------------------------------

static void totals_that_are_wrong_are_not_published(void **state)
{
    bd_shard_entry shards[3];
    bd_manifest manifest = example(shards);
    bd_error err;
    manifest.totals.text++;
    assert_int_equal(bd_manifest_publish(&manifest, *state, &err), BD_ERR_FORMAT);
    assert_string_equal(
        err.message,
        "D3: the totals are not the sums over the shards: text: 30 here, 31 there");
    manifest.totals.segments_per_row[1]++;
    manifest.totals.text--;
    assert_int_equal(bd_manifest_publish(&manifest, *state, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "D3: the totals are not the sums over the shards: "
                                     "segments_per_row_histogram[1]: 5 here, 6 there");
    manifest.totals.segments_per_row[1]--;
    shards[0].figures.padding++;
    manifest.totals.padding++;
    assert_int_equal(bd_manifest_publish(&manifest, *state, &err), BD_ERR_FORMAT);
    assert_string_equal(
        err.message, "S6: the ledger does not add up: packed 40 + padding 11 != rows 5 x 10");
    assert_int_equal(count_entries(*state), 0);
}

static void missing_manifest_is_told_from_a_missing_folder(void **state)
{
    bd_manifest manifest;
    bd_error err;
    char expected[5000];
    const char *missing = in(*state, "missing"), *file = in(*state, "file");
    assert_int_equal(bd_manifest_read(&manifest, *state, &err), BD_ERR_ARGUMENT);
    snprintf(expected, sizeof expected,
             "'%s' is not a finished dataset: it has no manifest.json", (const char *)*state);
    assert_string_equal(err.message, expected);

    assert_int_equal(bd_manifest_read(&manifest, missing, &err), BD_ERR_IO);
    snprintf(expected, sizeof expected,
             "cannot open '%s/manifest.json': No such file or directory", missing);
    assert_string_equal(err.message, expected);

    write_file(file, "x", 1);
    assert_int_equal(bd_manifest_read(&manifest, file, &err), BD_ERR_IO);
    snprintf(expected, sizeof expected, "cannot open '%s/manifest.json': Not a directory",
             file);
    assert_string_equal(err.message, expected);
    assert_empty(&manifest);

    assert_int_equal(bd_manifest_publish(&(bd_manifest){0}, missing, &err), BD_ERR_IO);
    assert_int_equal(bd_manifest_print(missing, stdout, &err), BD_ERR_IO);
}

// ---- Sources -----------------------------------------------------------------------

static void sources_come_in_the_order_of_their_first_inputs(void **state)
{
    (void)state;
    bd_input_entry five[] = {
        {.source = "b"}, {.source = "a"}, {.source = "b"}, {.source = "c"}, {.source = "a"}};
    bd_shard_entry shards[] = {
        {.unit = {0, 0, 1, true}, .figures = {.text = 1, .longest_segment = 9}},
        {.unit = {1, 0, 1, true}, .figures = {.text = 10, .longest_segment = 3}},
        {.unit = {2, 0, 1, false}, .figures = {.text = 100, .longest_segment = 11}},
        {.unit = {2, 1, 1, true}, .figures = {.text = 1000, .longest_segment = 4}},
        {.unit = {4, 0, 1, true}, .figures = {.text = 10000, .longest_segment = 2}},
    };
    static const bd_source_figures expected[] = {
        {"b", 2, {.text = 1101, .longest_segment = 11}},
        {"a", 2, {.text = 10010, .longest_segment = 3}},
        {"c", 1, {0}},
    };
    const bd_manifest manifest = {
        .inputs = five, .n_inputs = 5, .shards = shards, .n_shards = 5};
    bd_source_figures *sources;
    size_t n;
    assert_int_equal(bd_manifest_sources(&manifest, &sources, &n, NULL), BD_OK);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(sources[i].name, expected[i].name);
        assert_int_equal(sources[i].n_inputs, expected[i].n_inputs);
        assert_memory_equal(&sources[i].figures, &expected[i].figures, sizeof(bd_figures));
    }
    free(sources);
    assert_int_equal(bd_manifest_sources(&(bd_manifest){0}, &sources, &n, NULL), BD_OK);
    assert_int_equal(n, 0);
    free(sources);
}

static void one_source_too_many_is_refused(void **state)
{
    static bd_input_entry many[BD_MAX_SOURCES + 1];
    static char names[BD_MAX_SOURCES + 1][16];
    bd_shard_entry shards[3];
    bd_manifest manifest = example(shards);
    bd_source_figures *sources;
    size_t n;
    bd_error err = {0};
    for (int i = 0; i <= BD_MAX_SOURCES; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        many[i] = inputs[0];
        many[i].source = names[i];
    }
    manifest.inputs = many;
    manifest.n_inputs = BD_MAX_SOURCES;
    assert_int_equal(bd_manifest_sources(&manifest, &sources, &n, NULL), BD_OK);
    assert_int_equal(n, BD_MAX_SOURCES);
    free(sources);
    manifest.n_inputs++;
    assert_int_equal(bd_manifest_sources(&manifest, &sources, &n, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "more than 4096 sources");
    assert_null(sources);
    assert_int_equal(bd_manifest_publish(&manifest, *state, NULL), BD_ERR_UNSUPPORTED);
    assert_int_equal(count_entries(*state), 0);
}

static void sum_of_a_source_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    bd_shard_entry shards[3];
    const bd_manifest manifest = example(shards);
    bd_source_figures *sources;
    size_t n;
    shards[0].figures.text = shards[1].figures.text = INT64_MAX;
    assert_int_equal(bd_manifest_sources(&manifest, &sources, &n, NULL), BD_ERR_FORMAT);
    assert_null(sources);
}

// ---- Rows -------------------------------------------------------------------------

static void row_is_found_in_its_shard(void **state)
{
    (void)state;
    static const struct {
        size_t shard;
        int64_t row;
    } expected[] = {{0, 0}, {0, 1}, {0, 2}, {2, 0}, {2, 1}};  // the second shard has none
    bd_shard_entry shards[3];
    const bd_manifest manifest = example(shards);
    size_t shard;
    int64_t row;
    for (int i = 0; i < 5; i++) {
        assert_true(bd_manifest_find_row(&manifest, i, &shard, &row));
        assert_int_equal(shard, expected[i].shard);
        assert_int_equal(row, expected[i].row);
    }
    assert_false(bd_manifest_find_row(&manifest, 5, &shard, &row));
    assert_false(bd_manifest_find_row(&manifest, -1, &shard, &row));
    assert_false(bd_manifest_find_row(&manifest, INT64_MAX, &shard, &row));
    assert_false(bd_manifest_find_row(&(bd_manifest){0}, 0, &shard, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(manifest_comes_back_as_it_was_published),
        cmocka_unit_test(metadata_of_a_shard_comes_back_without_size_and_digest),
        test_in_folder(dataset_of_nothing_comes_back),
        test_in_folder(printed_manifest_is_the_file),
        test_in_folder(last_member_is_the_checksum_of_everything_before_it),
        test_in_folder(every_changed_bit_is_noticed),
        test_in_folder(every_lost_or_added_byte_is_noticed),
        test_in_folder(contradiction_is_named),
        test_in_folder(shards_out_of_order_are_refused),
        test_in_folder(manifest_of_format_1_0_is_read),
        test_in_folder(input_without_any_size_is_refused_in_format_1_0),
        test_in_folder(unknown_key_of_a_newer_minor_version_is_ignored),
        test_in_folder(totals_that_are_wrong_are_not_published),
        test_in_folder(missing_manifest_is_told_from_a_missing_folder),
        cmocka_unit_test(sources_come_in_the_order_of_their_first_inputs),
        test_in_folder(one_source_too_many_is_refused),
        cmocka_unit_test(sum_of_a_source_that_does_not_fit_is_refused),
        cmocka_unit_test(row_is_found_in_its_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
