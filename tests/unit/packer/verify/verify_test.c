#include "packer/verify/verify.h"

#include "common/dataset/shard.h"
#include "packer/pack/pack.h"
#include "packer/verify/check.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/temporary_folder.h"

// A good dataset is packed, a shard is read into memory, changed, and written with every
// checksum and the manifest made right again: what remains wrong is the change alone.

enum { SEQ_LEN = 8, BATCH_ROWS = 3, MAX_ROWS = 32, MAX_SEGMENTS = 8, SEPARATOR = 256 };

typedef struct segment {
    uint32_t input;
    uint64_t position;
    uint32_t offset, length;
} segment;

typedef struct row {
    uint16_t ids[SEQ_LEN];
    int32_t bounds[MAX_SEGMENTS + 1];
    segment segments[MAX_SEGMENTS];
    int n;
} row;

typedef struct forgery {
    bd_manifest manifest;
    size_t shard;  // index of the one that was read
    row rows[MAX_ROWS];
    int64_t n_rows;
} forgery;

// ---- A good dataset -------------------------------------------------------------------

// Documents of, with their separator, 3, 20, 1, 5 and 9 tokens at bytes 0, 5, 27, 29 and 36 of
// the first file; one of 8 in its second unit; and two in a file that is the third.
static const char CORPUS[] =
    "aa\n%\nbcdefghijklmnopqrst\n%\n%\ndddd\n%\neeeeeeee\n%\nfffffff\n";

static bd_pack_job job_of(bd_inputs *inputs, bd_long_policy policy)
{
    return (bd_pack_job){
        .packing = {.seq_len = SEQ_LEN,
                    .vocab_size = 257,
                    .separator = SEPARATOR,
                    .bos = BD_NO_BOS,
                    .padding = SEPARATOR,
                    .batch_rows = BATCH_ROWS,
                    .long_policy = policy,
                    .shuffle = BD_NO_SHUFFLE,
                    .tokenizer = "bytes",
                    .fingerprint = bd_tokenizer_bytes()->fingerprint},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = inputs,
        .reading = {.text_field = "text",
                    .delimiter = "%",
                    .unit_bytes = 40,
                    .max_document_bytes = 1000},
        .limit = BD_NO_LIMIT,
        .folder = "data",
    };
}

// Packs two files into "data", replacing what is there; returns how many shards there are.
static size_t pack_files(bd_pack_job *job, const char *first, const char *second)
{
    static const bd_pack_settings SETTINGS = {.n_ranks = 1, .n_threads = 1, .overwrite = true};
    bd_inputs inputs = {0};
    bd_threads *threads;
    bd_pack_result result;
    bd_error err = {0};
    job->inputs = &inputs;
    assert_int_equal(bd_threads_new(&threads, 1, NULL), BD_OK);
    assert_int_equal(bd_inputs_add(&inputs, first, &(bd_gathering){.source = "one"}, NULL),
                     BD_OK);
    assert_int_equal(bd_inputs_add(&inputs, second, &(bd_gathering){.source = "other"}, NULL),
                     BD_OK);
    if (bd_inputs_examine(&inputs, &job->reading, threads, &err) != BD_OK ||
        bd_pack(job, &SETTINGS, &result, &err) != BD_OK)
        fail_msg("%s", err.message);
    const size_t n_shards = result.manifest.n_shards;
    bd_pack_result_release(&result);
    bd_threads_free(threads);
    bd_inputs_release(&inputs);
    return n_shards;
}

static void pack_corpus(bd_long_policy policy)
{
    bd_pack_job job = job_of(NULL, policy);
    write_text("a.txt", CORPUS);
    write_text("b.txt", "gg\n%\nhh\n");
    assert_int_equal(pack_files(&job, "a.txt", "b.txt"), 3);
}

// The same with the first file compressed: its slices are a series.
static void pack_series(void)
{
    bd_pack_job job = job_of(NULL, BD_LONG_SPLIT);
    assert_true(write_gzip("a.txt.gz", CORPUS, strlen(CORPUS)));
    write_text("b.txt", "gg\n%\nhh\n");
    assert_int_equal(pack_files(&job, "a.txt.gz", "b.txt"), 3);
}

// ---- Reading and writing a shard ------------------------------------------------------

static row copy_row(const bd_row *from)
{
    row to = {.n = (int)from->n_segments};
    assert_true(to.n <= MAX_SEGMENTS);
    memcpy(to.ids, from->ids, sizeof to.ids);
    memcpy(to.bounds, from->bounds, (size_t)from->n_bounds * sizeof *to.bounds);
    for (int k = 0; k < to.n; k++)
        to.segments[k] = (segment){from->segments.input[k], from->segments.position[k],
                                   from->segments.offset[k], from->segments.length[k]};
    return to;
}

static void load(forgery *f, size_t shard_index)
{
    bd_shard shard;
    bd_hasher *hasher = bd_hasher_new();
    *f = (forgery){.shard = shard_index};
    assert_int_equal(bd_manifest_read(&f->manifest, "data", NULL), BD_OK);
    assert_int_equal(bd_shard_open_entry(&shard, "data", &f->manifest, shard_index, NULL),
                     BD_OK);
    f->n_rows = shard.entry.figures.rows;
    assert_true(f->n_rows <= MAX_ROWS);
    for (int64_t r = 0; r < f->n_rows; r++) {
        bd_row found;
        assert_int_equal(bd_shard_row(&shard, r, hasher, &found, NULL), BD_OK);
        f->rows[r] = copy_row(&found);
    }
    bd_shard_close(&shard);
    bd_hasher_free(hasher);
}

static void write_batch(bd_arrow_writer *writer, const row *rows, int64_t n_rows,
                        const bd_packing *packing)
{
    uint16_t ids[BATCH_ROWS][SEQ_LEN];
    int32_t bound_offsets[BATCH_ROWS + 1] = {0}, segment_offsets[BATCH_ROWS + 1] = {0};
    int32_t bounds[BATCH_ROWS * (MAX_SEGMENTS + 1)];
    uint32_t input[BATCH_ROWS * MAX_SEGMENTS], offset[BATCH_ROWS * MAX_SEGMENTS],
        length[BATCH_ROWS * MAX_SEGMENTS];
    uint64_t position[BATCH_ROWS * MAX_SEGMENTS], checksums[BATCH_ROWS];
    const bd_row_batch batch = {.n_rows = n_rows,
                                .ids = ids,
                                .bound_offsets = bound_offsets,
                                .bounds = bounds,
                                .segment_offsets = segment_offsets,
                                .segments = {input, position, offset, length},
                                .checksums = checksums};
    bd_hasher *hasher = bd_hasher_new();
    for (int64_t r = 0; r < n_rows; r++) {
        memcpy(ids[r], rows[r].ids, sizeof ids[r]);
        memcpy(bounds + bound_offsets[r], rows[r].bounds,
               (size_t)(rows[r].n + 1) * sizeof *bounds);
        for (int k = 0; k < rows[r].n; k++) {
            const int32_t at = segment_offsets[r] + k;
            input[at] = rows[r].segments[k].input;
            position[at] = rows[r].segments[k].position;
            offset[at] = rows[r].segments[k].offset;
            length[at] = rows[r].segments[k].length;
        }
        bound_offsets[r + 1] = bound_offsets[r] + rows[r].n + 1;
        segment_offsets[r + 1] = segment_offsets[r] + rows[r].n;
        const bd_row made = bd_row_of_batch(&batch, packing, r);
        checksums[r] = bd_row_checksum(&made, packing, hasher);
    }
    assert_int_equal(bd_arrow_writer_write(writer, &batch, NULL), BD_OK);
    bd_hasher_free(hasher);
}

// Writes the shard and the manifest; f->manifest's figures of the shard are taken as they are.
static void seal(forgery *f)
{
    bd_shard_entry *entry = &f->manifest.shards[f->shard];
    const bd_packing *packing = &f->manifest.packing;
    const char *path = in("data", bd_unit_shard_name(&entry->unit).text);
    bd_json *json = bd_shard_metadata(packing, entry);
    bd_arrow_writer *writer;
    char *metadata;
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &metadata, NULL), BD_OK);
    assert_int_equal(bd_arrow_writer_open(&writer, path, packing, metadata, false, NULL),
                     BD_OK);
    for (int64_t r = 0; r < f->n_rows; r += BATCH_ROWS)
        write_batch(writer, f->rows + r,
                    f->n_rows - r < BATCH_ROWS ? f->n_rows - r : BATCH_ROWS, packing);
    assert_int_equal(bd_arrow_writer_close(writer, NULL), BD_OK);
    bd_arrow_writer_free(writer);
    bd_json_free(json);
    free(metadata);

    bd_error err = {0};
    assert_int_equal(bd_digest_file(path, &entry->digest, &entry->size_bytes, NULL), BD_OK);
    f->manifest.totals = (bd_figures){0};
    for (size_t i = 0; i < f->manifest.n_shards; i++)
        bd_figures_add(&f->manifest.totals, &f->manifest.shards[i].figures, NULL);
    if (bd_manifest_publish(&f->manifest, "data", &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_manifest_release(&f->manifest);
}

// ---- Verdicts -------------------------------------------------------------------------

static bd_verify_settings settings_of(bd_verify_depth depth, int n_threads)
{
    return (bd_verify_settings){.depth = depth, .n_threads = n_threads, .quiet = true};
}

static bd_verdict judge_as(const bd_verify_settings *settings)
{
    bd_verdict verdict;
    bd_error err = {0};
    if (bd_verify("data", settings, &verdict, &err) != BD_OK)
        fail_msg("%s", err.message);
    return verdict;
}

static bd_verdict judge(int n_threads)
{
    const bd_verify_settings settings = settings_of(BD_VERIFY_ROWS, n_threads);
    return judge_as(&settings);
}

static void assert_good(void)
{
    bd_verdict verdict = judge(1);
    if (verdict.n_problems > 0)
        fail_msg("%s", verdict.problems[0].message);
    bd_verdict_release(&verdict);
}

// There is one problem, and `message` is part of it.
static void assert_one(bd_verdict *verdict, const char *message)
{
    assert_int_equal(verdict->n_problems, 1);
    if (!strstr(verdict->problems[0].message, message))
        fail_msg("'%s' instead of '%s'", verdict->problems[0].message, message);
    bd_verdict_release(verdict);
    bd_verdict_release(verdict);
}

// The same problem whether shards or the rows of a shard are shared among threads.
static void assert_problem(const char *message)
{
    static const int N_THREADS[] = {1, 2, 8};
    for (size_t i = 0; i < sizeof N_THREADS / sizeof *N_THREADS; i++) {
        bd_verdict verdict = judge(N_THREADS[i]);
        assert_one(&verdict, message);
    }
}

// Among the problems is one that `message` is part of.
static void assert_among_problems(const char *message)
{
    bd_verdict verdict = judge(1);
    bool named = false;
    for (size_t p = 0; p < verdict.n_problems; p++)
        named |= strstr(verdict.problems[p].message, message) != NULL;
    bd_verdict_release(&verdict);
    if (!named)
        fail_msg("no problem mentions '%s'", message);
}

// The shard with the long document, changed by each test.
static const char *const SHARD = "data/00000-00000.arrow";

static row *find(forgery *f, uint64_t position, uint32_t offset, int *k)
{
    for (int64_t r = 0; r < f->n_rows; r++)
        for (*k = 0; *k < f->rows[r].n; ++*k)
            if (f->rows[r].segments[*k].position == position &&
                f->rows[r].segments[*k].offset == offset)
                return &f->rows[r];
    fail_msg("no piece at byte %d, token %u", (int)position, offset);
    return NULL;
}

static segment *find_segment(forgery *f, uint64_t position, uint32_t offset)
{
    int k;
    row *found = find(f, position, offset, &k);
    return &found->segments[k];
}

// ---- Promises -------------------------------------------------------------------------

static void a_good_dataset_has_no_problem(void **state)
{
    (void)state;
    static const bd_long_policy POLICIES[] = {BD_LONG_SPLIT, BD_LONG_TRUNCATE, BD_LONG_DROP};
    for (size_t p = 0; p < 3; p++) {
        pack_corpus(POLICIES[p]);
        for (int n_threads = 1; n_threads <= 8; n_threads *= 8) {
            bd_verdict verdict = judge(n_threads);
            assert_int_equal(verdict.n_problems, 0);
            assert_int_equal(verdict.n_shards, 3);
            assert_true(verdict.n_rows > 3 && verdict.n_tokens > 20);
            bd_verdict_release(&verdict);
        }
        for (size_t i = 0; i < 3; i++) {  // written again as it was, it is still good
            forgery f;
            load(&f, i);
            seal(&f);
            assert_good();
        }
    }
}

static void a_scan_counts_what_the_packer_counted(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    bd_manifest manifest;
    bd_scan scan;
    assert_int_equal(bd_manifest_read(&manifest, "data", NULL), BD_OK);
    assert_int_equal(bd_scan_init(&scan, "data", &manifest, NULL), BD_OK);
    assert_int_equal(bd_scan_check_units(&scan, NULL), BD_OK);
    for (size_t i = 0; i < manifest.n_shards; i++) {
        bd_figures figures;
        assert_int_equal(bd_scan_shard(&scan, i, &(bd_scan_options){0}, &figures, NULL), BD_OK);
        assert_memory_equal(&figures, &manifest.shards[i].figures, sizeof figures);
    }
    bd_scan_release(&scan);
    bd_scan_release(&scan);
    bd_manifest_release(&manifest);
}

static void s2_a_document_outside_the_unit_is_found(void **state)
{
    (void)state;
    static const struct {
        uint32_t input;
        uint64_t position;
    } WRONG[] = {{0, 40}, {0, 1000}, {1, 0}, {2, 0}, {UINT32_MAX, 0}, {0, UINT64_MAX}};
    for (size_t w = 0; w < sizeof WRONG / sizeof *WRONG; w++) {
        pack_corpus(BD_LONG_SPLIT);
        forgery f;
        load(&f, 0);
        segment *last = find_segment(&f, 36, 0);  // "eeeeeeee", the last that begins there
        last->input = WRONG[w].input;
        last->position = WRONG[w].position;
        find_segment(&f, 36, 7)->input = WRONG[w].input;
        find_segment(&f, 36, 7)->position = WRONG[w].position;
        seal(&f);
        assert_problem(": S2: a document lies outside the shard's unit");
    }
    pack_corpus(BD_LONG_SPLIT);  // and in a unit after the first, before its begin
    forgery f;
    load(&f, 1);
    f.rows[0].segments[0].position = 39;
    seal(&f);
    assert_problem("'data/00000-00001.arrow', row 0: S2: a document lies outside the shard's "
                   "unit");
}

static void s3_a_piece_that_does_not_follow_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    find_segment(&f, 5, 7)->offset = 6;  // of "bcd…", 20 tokens in pieces of 8, 8 and 6
    seal(&f);
    assert_problem(": S3: a piece does not begin where the one before it ends");

    pack_corpus(BD_LONG_SPLIT);
    load(&f, 0);
    find_segment(&f, 0, 0)->length = 4;  // a document without its first token
    find_segment(&f, 0, 0)->offset = 1;
    seal(&f);
    assert_problem(": S3: a piece does not begin where the one before it ends");
}

static void s3_a_context_token_that_is_another_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    int k;
    row *second = find(&f, 5, 7, &k);
    second->ids[second->bounds[k]] = '?';
    seal(&f);
    assert_problem(": S3: a piece does not repeat the last token of the one before it");
}

static void s3_pieces_that_disagree_are_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    find_segment(&f, 5, 7)->length++;
    seal(&f);
    assert_problem(": S3: pieces disagree on their document's length");
}

static void s3_a_document_without_its_end_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    find_segment(&f, 5, 0)->length = 21;
    find_segment(&f, 5, 7)->length = 21;
    find_segment(&f, 5, 14)->length = 21;
    seal(&f);
    assert_problem(": S3: a document's last piece is missing");
}

// A document takes the place of a whole one, and of one in pieces.
static void s3_a_document_that_is_there_twice_is_found(void **state)
{
    (void)state;
    static const struct {
        uint64_t document, taken;
    } CASES[] = {{27, 29}, {29, 36}};
    for (int i = 0; i < 2; i++) {
        pack_corpus(BD_LONG_SPLIT);
        forgery f;
        load(&f, 0);
        find_segment(&f, CASES[i].document, 0)->position = CASES[i].taken;
        seal(&f);
        assert_problem(": S3: a document is there twice");
    }
}

// With `truncate` a long document has exactly seq_len tokens: whole it would be too long, and
// a short one has no excuse.
static void s3_a_wrong_truncation_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_TRUNCATE);
    forgery f;
    load(&f, 0);
    segment *first = find_segment(&f, 0, 0);  // "aa"
    first->length = 4;
    seal(&f);
    assert_problem(": S3: a document's last piece is missing");
}

static void s4_rows_in_another_order_are_found(void **state)
{
    (void)state;
    forgery f;
    for (int64_t r = 0;; r++) {
        pack_corpus(BD_LONG_SPLIT);
        load(&f, 0);
        if (r + 1 == f.n_rows)
            break;
        const row swapped = f.rows[r];
        f.rows[r] = f.rows[r + 1];
        f.rows[r + 1] = swapped;
        seal(&f);
        char message[200];
        snprintf(message, sizeof message,
                 "'%s', row %d: S4: its earliest document is not after the row before's", SHARD,
                 (int)r + 1);
        assert_problem(message);
    }
    bd_manifest_release(&f.manifest);
}

static void assert_figure_checked(void (*change)(bd_figures *), bd_long_policy policy,
                                  const char *name)
{
    pack_corpus(policy);
    forgery f;
    load(&f, 0);
    change(&f.manifest.shards[0].figures);
    seal(&f);
    bd_verdict verdict = judge(1);
    if (verdict.n_problems != 1)
        fail_msg("a wrong '%s' makes %zu problems", name, verdict.n_problems);
    char message[100];
    snprintf(message, sizeof message, "'%s': S5: the rows differ from the metadata: %s", SHARD,
             name);
    assert_non_null(strstr(verdict.problems[0].message, message));
    bd_verdict_release(&verdict);
}

#define FIGURE(name, change, policy)                         \
    static void change_##name(bd_figures *f)                 \
    {                                                        \
        change;                                              \
    }                                                        \
    static void s5_##name##_is_counted_again(void **state)   \
    {                                                        \
        (void)state;                                         \
        assert_figure_checked(change_##name, policy, #name); \
    }

// The ledger still adds up after each of these: only the rows tell.
FIGURE(segments, (f->segments++, f->targets--), BD_LONG_SPLIT)
FIGURE(documents, f->documents++, BD_LONG_SPLIT)
FIGURE(text, (f->text++, f->separators--), BD_LONG_SPLIT)
FIGURE(bos, (f->bos++, f->repeated--), BD_LONG_SPLIT)
FIGURE(repeated, (f->repeated++, f->truncated++), BD_LONG_SPLIT)
FIGURE(packed, (f->packed++, f->padding--, f->targets++, f->truncated--), BD_LONG_TRUNCATE)
FIGURE(empty_documents, f->empty_documents--, BD_LONG_SPLIT)
FIGURE(split_documents, f->split_documents++, BD_LONG_SPLIT)
FIGURE(truncated_documents, f->truncated_documents++, BD_LONG_TRUNCATE)
FIGURE(separator_collisions, f->separator_collisions++, BD_LONG_SPLIT)
FIGURE(longest_segment, f->longest_segment++, BD_LONG_SPLIT)
FIGURE(attention_pairs, f->attention_pairs++, BD_LONG_SPLIT)
FIGURE(document_length_histogram, (f->document_lengths[0]--, f->document_lengths[1]++),
       BD_LONG_SPLIT)
FIGURE(segments_per_row_histogram, (f->segments_per_row[0]--, f->segments_per_row[1]++),
       BD_LONG_SPLIT)
// Rows cannot tell what was dropped, but nothing is where the policy is another.
FIGURE(dropped_documents, f->dropped_documents++, BD_LONG_SPLIT)

static void d1_a_changed_or_missing_file_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    assert_int_equal(unlink("data/00000-00001.arrow"), 0);
    assert_problem("'data/00000-00001.arrow': D1: it is missing");
    pack_corpus(BD_LONG_SPLIT);
    write_text("data/tokenizer.json", "{}");
    assert_problem("'data/tokenizer.json': D1: the file's checksum does not match");
    pack_corpus(BD_LONG_SPLIT);
    FILE *shard = fopen(SHARD, "ab");
    assert_non_null(shard);
    fputc('x', shard);
    fclose(shard);
    bd_verdict verdict = judge(1);
    assert_int_equal(verdict.n_problems, 1);
    assert_non_null(strstr(verdict.problems[0].message, SHARD));
    bd_verdict_release(&verdict);
}

static bd_verdict judge_structure(void)
{
    const bd_verify_settings settings = settings_of(BD_VERIFY_STRUCTURE, 2);
    return judge_as(&settings);
}

static void a_structure_is_judged_by_its_files_alone(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    f.rows[0].ids[0] ^= 1;  // the row is another, and everything around it agrees
    seal(&f);
    bd_verdict verdict = judge_structure();
    assert_int_equal(verdict.n_problems, 0);
    bd_verdict_release(&verdict);
    FILE *shard = fopen(SHARD, "r+b");
    assert_non_null(shard);
    assert_int_equal(fseek(shard, 8, SEEK_SET), 0);
    fputc('x', shard);  // where nothing but the checksum of the file notices, or Arrow does
    fclose(shard);
    verdict = judge_structure();
    assert_one(&verdict, SHARD);
    assert_int_equal(unlink(SHARD), 0);
    verdict = judge_structure();
    assert_one(&verdict, "'data/00000-00000.arrow': D1: it is missing");
}

static void d2_a_shard_too_many_is_found(void **state)
{
    (void)state;
    static const char *const STRAYS[] = {"data/00000-00009.arrow", "data/stray.arrow",
                                         "data/0-0.arrow", "data/ 00000-00000.arrow",
                                         "data/99999999999999999999-00000.arrow"};
    pack_corpus(BD_LONG_SPLIT);
    for (size_t i = 0; i < sizeof STRAYS / sizeof *STRAYS; i++) {
        char message[200];
        write_text(STRAYS[i], "");
        snprintf(message, sizeof message, "'%s': D2: the manifest does not name it", STRAYS[i]);
        assert_problem(message);
        assert_int_equal(unlink(STRAYS[i]), 0);
    }
    assert_good();
    write_text("data/stray.arrow", "");  // also where their number is right
    assert_int_equal(unlink(SHARD), 0);
    bd_verdict verdict = judge(1);
    assert_int_equal(verdict.n_problems, 2);
    bd_verdict_release(&verdict);
}

// A plan with checksums of its own and cuts that make numbers overflow: no harm is done.
static void d2_units_that_are_not_the_plans_are_found(void **state)
{
    (void)state;
    static const char *const UNIT_SIZES[] = {"30", "1", "1099511627776", "9223372036854775807"};
    for (size_t i = 0; i < sizeof UNIT_SIZES / sizeof *UNIT_SIZES; i++) {
        pack_corpus(BD_LONG_SPLIT);
        forgery f;
        load(&f, 0);
        size_t n;
        char *plan = read_file("data/plan.json", &n), *changed;
        char *at = strstr(plan, "\"unit_size\": 40");
        assert_non_null(at);
        *at = '\0';
        assert_true(asprintf(&changed, "%s\"unit_size\": %s%s", plan, UNIT_SIZES[i],
                             at + strlen("\"unit_size\": 40")) > 0);
        write_text("data/plan.json", changed);
        f.manifest.plan_digest = bd_digest_of(changed, strlen(changed));
        if (i >= 2)
            f.manifest.inputs[0].size_bytes = f.manifest.inputs[0].weight =
                f.manifest.inputs[0].extent = INT64_MAX;
        f.manifest.inputs[0].stride = i < 2 ? strtoll(UNIT_SIZES[i], NULL, 10) : INT64_MAX / 2;
        free(plan);
        free(changed);
        seal(&f);
        bd_verdict verdict = judge(1);
        bool named = false;
        for (size_t p = 0; p < verdict.n_problems; p++)
            named |= strstr(verdict.problems[p].message, "'data': D2: ") != NULL ||
                     strstr(verdict.problems[p].message, ": S2: ") != NULL ||
                     strstr(verdict.problems[p].message, "plan.json': 'unit_size'") != NULL;
        assert_true(named);
        bd_verdict_release(&verdict);
    }
}

static void d2_a_unit_without_a_shard_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 0);
    f.manifest.n_shards--;
    assert_int_equal(unlink("data/00001-00000.arrow"), 0);
    seal(&f);
    assert_problem("'data': D2: shard 2 is not the plan's unit 00001-00000.arrow");
}

static void d2_a_shard_beyond_the_plan_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 2);
    bd_shard_entry *shards = realloc(f.manifest.shards, 4 * sizeof *shards);
    assert_non_null(shards);
    f.manifest.shards = shards;
    shards[3] = shards[2];
    shards[3].unit.slice = 1;
    f.manifest.n_shards = 4;
    f.shard = 3;
    seal(&f);
    assert_among_problems("'data': D2: the manifest has 1 shards more than the plan has units");
}

// ---- Series and limits ----------------------------------------------------------------

static void a_good_series_has_no_problem(void **state)
{
    (void)state;
    pack_series();
    assert_good();
    for (size_t i = 0; i < 3; i++) {
        forgery f;
        load(&f, i);
        seal(&f);
        assert_good();
    }
}

static void d2_a_series_that_does_not_end_is_found(void **state)
{
    (void)state;
    pack_series();
    forgery f;
    load(&f, 1);
    assert_true(f.manifest.shards[1].unit.last);
    f.manifest.shards[1].unit.last = false;
    seal(&f);
    assert_problem("'data': D2: shard 2 is not the plan's unit 00000-00000.arrow");
}

static void d2_a_series_that_ends_too_soon_is_found(void **state)
{
    (void)state;
    pack_series();
    forgery f;
    load(&f, 0);
    f.manifest.shards[0].unit.last = true;
    seal(&f);
    assert_problem("'data': D2: shard 1 is not the plan's unit 00001-00000.arrow");
}

static void s2_a_document_in_another_slice_of_a_series_is_found(void **state)
{
    (void)state;
    pack_series();
    forgery f;
    load(&f, 1);
    f.rows[0].segments[0].position = 39;
    seal(&f);
    assert_problem("'data/00000-00001.arrow', row 0: S2: a document lies outside the shard's "
                   "unit");
}

// Of 8 documents, 5 of which lie in the first unit.
static void d2_a_limit_ends_the_units_where_the_documents_do(void **state)
{
    (void)state;
    static const size_t N_SHARDS[] = {0, 1, 1, 1, 1, 1, 2, 3, 3, 3};
    for (int64_t limit = 1; limit <= 9; limit++) {
        bd_pack_job job = job_of(NULL, BD_LONG_SPLIT);
        job.limit = limit;
        write_text("a.txt", CORPUS);
        write_text("b.txt", "gg\n%\nhh\n");
        assert_int_equal(pack_files(&job, "a.txt", "b.txt"), N_SHARDS[limit]);
        assert_good();
        if (N_SHARDS[limit] < 2)
            continue;
        forgery f;  // the last shard is taken away, and with it documents
        load(&f, 0);
        f.manifest.n_shards--;
        assert_int_equal(
            unlink(in("data",
                      bd_unit_shard_name(&f.manifest.shards[f.manifest.n_shards].unit).text)),
            0);
        seal(&f);
        assert_problem("'data': D2: shard ");
    }
}

static void d2_more_documents_than_the_limit_are_found(void **state)
{
    (void)state;
    bd_pack_job job = job_of(NULL, BD_LONG_SPLIT);
    job.limit = 6;
    write_text("a.txt", CORPUS);
    write_text("b.txt", "gg\n%\nhh\n");
    pack_files(&job, "a.txt", "b.txt");
    forgery f;
    load(&f, 0);
    size_t n;
    char *plan = read_file("data/plan.json", &n), *at = strstr(plan, "\"limit\": 6");
    assert_non_null(at);
    at[strlen("\"limit\": ")] = '5';
    write_text("data/plan.json", plan);
    f.manifest.plan_digest = bd_digest_of(plan, n);
    free(plan);
    seal(&f);
    assert_problem("'data': D2: 6 documents, the limit is 5");
}

// ---- What is selected -----------------------------------------------------------------

static void a_selection_of_any_kind_has_no_problem(void **state)
{
    (void)state;
    for (int kind = 0; kind < 16; kind++) {
        bd_pack_job job = job_of(NULL, kind & 8 ? BD_LONG_DROP : BD_LONG_SPLIT);
        job.packing.shuffle = kind & 1 ? 99 : BD_NO_SHUFFLE;
        job.packing.min_tokens = kind & 2 ? 3 : 0;
        job.packing.max_documents = kind & 1 ? 2 : 0;
        job.packing.codec = kind & 2 ? BD_SHARD_ZSTD : BD_SHARD_UNCOMPRESSED;
        if (kind & 4) {
            job.packing.holdout = BD_MILLION / 2;
            job.packing.part = BD_PART_TRAINING;
            job.holdout_folder = "data/holdout";
        }
        write_text("a.txt", CORPUS);
        write_text("b.txt", "gg\n%\nhhhh\n");
        assert_int_equal(pack_files(&job, "a.txt", "b.txt"), 3);
        assert_good();
        if (kind & 4) {
            const bd_verify_settings settings = settings_of(BD_VERIFY_ROWS, 1);
            bd_verdict verdict;
            assert_int_equal(bd_verify("data/holdout", &settings, &verdict, NULL), BD_OK);
            if (verdict.n_problems > 0)
                fail_msg("%s", verdict.problems[0].message);
            bd_verdict_release(&verdict);
        }
    }
}

static void s7_a_document_that_is_too_short_is_found(void **state)
{
    (void)state;
    bd_pack_job job = job_of(NULL, BD_LONG_SPLIT);
    job.packing.min_tokens = 2;
    write_text("a.txt", CORPUS);
    write_text("b.txt", "gg\n%\nhh\n");
    pack_files(&job, "a.txt", "b.txt");
    assert_good();
    forgery f;
    load(&f, 2);  // "gg" and "hh" become one document of two tokens and one of one
    row *r = &f.rows[0];
    assert_int_equal(r->n, 2);
    r->bounds[1] = 2;
    r->ids[1] = SEPARATOR;
    r->segments[0].length = 2;
    r->segments[1].length = 4;
    seal(&f);
    assert_problem("'data/00001-00000.arrow', row 0: S7: a document has fewer than min_tokens");
}

static void r9_a_row_with_too_many_documents_is_found(void **state)
{
    (void)state;
    pack_corpus(BD_LONG_SPLIT);
    forgery f;
    load(&f, 2);
    assert_int_equal(f.rows[0].n, 2);
    f.manifest.packing.max_documents = 1;
    seal(&f);
    assert_among_problems("'data/00001-00000.arrow', row 0: R9: ");
}

static void what_is_no_dataset_has_no_verdict(void **state)
{
    (void)state;
    bd_verdict verdict;
    bd_error err = {0};
    const bd_verify_settings settings = settings_of(BD_VERIFY_ROWS, 1);
    assert_int_equal(bd_verify("nowhere", &settings, &verdict, &err), BD_ERR_IO);
    add_folder("empty");
    assert_int_equal(bd_verify("empty", &settings, &verdict, &err), BD_ERR_ARGUMENT);
    assert_int_equal(verdict.n_problems, 0);
    assert_null(verdict.problems);
    pack_corpus(BD_LONG_SPLIT);
    write_text("data/manifest.json", "{}");  // but a damaged manifest is a verdict
    verdict = judge(1);
    assert_int_equal(verdict.n_problems, 1);
    bd_verdict_release(&verdict);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(a_good_dataset_has_no_problem),
        test_inside_folder(a_scan_counts_what_the_packer_counted),
        test_inside_folder(s2_a_document_outside_the_unit_is_found),
        test_inside_folder(s3_a_piece_that_does_not_follow_is_found),
        test_inside_folder(s3_a_context_token_that_is_another_is_found),
        test_inside_folder(s3_pieces_that_disagree_are_found),
        test_inside_folder(s3_a_document_without_its_end_is_found),
        test_inside_folder(s3_a_document_that_is_there_twice_is_found),
        test_inside_folder(s3_a_wrong_truncation_is_found),
        test_inside_folder(s4_rows_in_another_order_are_found),
        test_inside_folder(s5_segments_is_counted_again),
        test_inside_folder(s5_documents_is_counted_again),
        test_inside_folder(s5_text_is_counted_again),
        test_inside_folder(s5_bos_is_counted_again),
        test_inside_folder(s5_repeated_is_counted_again),
        test_inside_folder(s5_packed_is_counted_again),
        test_inside_folder(s5_empty_documents_is_counted_again),
        test_inside_folder(s5_split_documents_is_counted_again),
        test_inside_folder(s5_truncated_documents_is_counted_again),
        test_inside_folder(s5_separator_collisions_is_counted_again),
        test_inside_folder(s5_longest_segment_is_counted_again),
        test_inside_folder(s5_attention_pairs_is_counted_again),
        test_inside_folder(s5_document_length_histogram_is_counted_again),
        test_inside_folder(s5_segments_per_row_histogram_is_counted_again),
        test_inside_folder(s5_dropped_documents_is_counted_again),
        test_inside_folder(d1_a_changed_or_missing_file_is_found),
        test_inside_folder(a_structure_is_judged_by_its_files_alone),
        test_inside_folder(d2_a_shard_too_many_is_found),
        test_inside_folder(d2_units_that_are_not_the_plans_are_found),
        test_inside_folder(d2_a_unit_without_a_shard_is_found),
        test_inside_folder(d2_a_shard_beyond_the_plan_is_found),
        test_inside_folder(a_good_series_has_no_problem),
        test_inside_folder(d2_a_series_that_does_not_end_is_found),
        test_inside_folder(d2_a_series_that_ends_too_soon_is_found),
        test_inside_folder(s2_a_document_in_another_slice_of_a_series_is_found),
        test_inside_folder(d2_a_limit_ends_the_units_where_the_documents_do),
        test_inside_folder(d2_more_documents_than_the_limit_are_found),
        test_inside_folder(a_selection_of_any_kind_has_no_problem),
        test_inside_folder(s7_a_document_that_is_too_short_is_found),
        test_inside_folder(r9_a_row_with_too_many_documents_is_found),
        test_inside_folder(what_is_no_dataset_has_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
