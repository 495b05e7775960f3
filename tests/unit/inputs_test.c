#include "packer/inputs.h"

#include <fcntl.h>

#include "tests/unit/gzip_file.h"
#include "tests/unit/temporary_folder.h"

enum { MIB = 1 << 20, UNIT = 1000, END_OF_TEXT = 50256 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bd_reading reading_of(bd_format_choice choice)
{
    return (bd_reading){.format = choice,
                        .text_field = "text",
                        .unit_bytes = UNIT,
                        .max_document_bytes = MIB,
                        .raw_id_bytes = 2,
                        .end_of_text = END_OF_TEXT};
}

static void add_operand(bd_inputs *inputs, const char *operand, bd_format_choice choice)
{
    bd_error err = {0};
    if (bd_inputs_add(inputs, operand, BD_DEFAULT_SOURCE, choice, NULL, &err) != BD_OK)
        fail_msg("%s", err.message);
}

static bd_status try_examine(bd_inputs *inputs, const bd_reading *reading, bd_error *err)
{
    bd_threads *threads;
    assert_int_equal(bd_threads_new(&threads, 2, NULL), BD_OK);
    const bd_status status = bd_inputs_examine(inputs, reading, threads, err);
    bd_threads_free(threads);
    return status;
}

static bd_inputs collect(const char *const *operands, size_t n, bd_format_choice choice)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    const bd_reading reading = reading_of(choice);
    for (size_t i = 0; i < n; i++)
        add_operand(&inputs, operands[i], choice);
    if (try_examine(&inputs, &reading, &err) != BD_OK)
        fail_msg("%s", err.message);
    return inputs;
}

static bd_inputs collect_one(const char *operand)
{
    return collect(&operand, 1, BD_FORMAT_AUTO);
}

static void assert_names(const bd_inputs *inputs, const char *const *names, size_t n)
{
    assert_int_equal(inputs->n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(inputs->items[i].entry.name, names[i]);
}

static void assert_operand_gives(const char *operand, const char *const *names, size_t n)
{
    bd_inputs inputs = {0};
    add_operand(&inputs, operand, BD_FORMAT_AUTO);
    assert_names(&inputs, names, n);
    bd_inputs_release(&inputs);
}

static void assert_refused(const char *operand, bd_status status, const char *message)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    assert_int_equal(
        bd_inputs_add(&inputs, operand, BD_DEFAULT_SOURCE, BD_FORMAT_AUTO, NULL, &err), status);
    assert_string_equal(err.message, message);
    bd_inputs_release(&inputs);
    assert_null(inputs.items);
    assert_int_equal(inputs.n, 0);
}

static void folders_are_read_in_byte_order_of_their_entries(void **state)
{
    (void)state;
    static const char *const IN_ORDER[] = {
        "corpus/10.txt",       "corpus/9.txt",     "corpus/B.txt",  // digits, capitals, small
        "corpus/a/b/c.jsonl",  "corpus/a/z.txt",                    // the folder "a" is an
        "corpus/a.txt",        "corpus/aa.ndjson",                  // entry before "a.txt"
        "corpus/\xc3\xa9.txt", "corpus/\xff.txt",                   // bytes are unsigned
    };
    static const size_t WRITTEN_IN_ORDER[] = {7, 2, 8, 0, 5, 3, 6, 1, 4};
    add_folder("corpus");
    add_folder("corpus/a");
    add_folder("corpus/a/b");
    for (size_t i = 0; i < COUNT(IN_ORDER); i++)
        write_file(IN_ORDER[WRITTEN_IN_ORDER[i]], "0123456789", WRITTEN_IN_ORDER[i]);

    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, IN_ORDER, COUNT(IN_ORDER));
    assert_int_equal(inputs.n_skipped, 0);
    assert_null(inputs.first_skipped);
    for (size_t i = 0; i < inputs.n; i++) {
        const bool json = strstr(IN_ORDER[i], "json") != NULL;
        assert_int_equal(inputs.items[i].format, json ? BD_INPUT_JSONL : BD_INPUT_TEXT);
        assert_int_equal(inputs.items[i].entry.size_bytes, i);
        assert_string_equal(inputs.items[i].path, IN_ORDER[i]);
    }
    bd_inputs_release(&inputs);
    bd_inputs_release(&inputs);
}

static void operands_stay_in_their_order(void **state)
{
    (void)state;
    static const char *const OPERANDS[] = {"z.txt", "folder", "a.txt", "z.txt"};
    static const char *const NAMES[] = {"z.txt", "folder/m.txt", "a.txt", "z.txt"};
    add_folder("folder");
    write_text("z.txt", "");
    write_text("a.txt", "");
    write_text("folder/m.txt", "");
    bd_inputs inputs = collect(OPERANDS, COUNT(OPERANDS), BD_FORMAT_AUTO);
    assert_names(&inputs, NAMES, COUNT(NAMES));
    bd_inputs_release(&inputs);
}

static void names_begin_with_the_operands_last_name(void **state)
{
    static const char *const OPERANDS[] = {"corpus", "corpus/", "corpus///", "./corpus",
                                           "corpus/sub/../../corpus"};
    static const char *const NAMES[] = {"corpus/a.txt", "corpus/sub/b.txt"};
    static const char *const NAMELESS[] = {"a.txt", "sub/b.txt"};
    add_folder("corpus");
    add_folder("corpus/sub");
    write_text("corpus/a.txt", "");
    write_text("corpus/sub/b.txt", "");
    for (size_t i = 0; i < COUNT(OPERANDS); i++) {
        bd_inputs inputs = collect_one(OPERANDS[i]);
        assert_names(&inputs, NAMES, COUNT(NAMES));
        bd_inputs_release(&inputs);
    }

    char *absolute;
    assert_true(asprintf(&absolute, "%s/corpus/sub/b.txt", (char *)*state) > 0);
    bd_inputs inputs = collect_one(absolute);
    assert_names(&inputs, (const char *[]){"b.txt"}, 1);
    assert_string_equal(inputs.items[0].path, absolute);
    bd_inputs_release(&inputs);
    free(absolute);

    static const char *const PLACES[] = {"corpus", "sub"};
    static const char *const DOTS[] = {".", ".."};
    for (size_t i = 0; i < COUNT(DOTS); i++) {
        assert_int_equal(chdir(PLACES[i]), 0);
        inputs = collect_one(DOTS[i]);
        assert_names(&inputs, NAMELESS, COUNT(NAMELESS));
        bd_inputs_release(&inputs);
    }
}

static void names_that_begin_with_a_dot_are_left_out(void **state)
{
    (void)state;
    add_folder("corpus");
    add_folder("corpus/.git");
    write_text("corpus/.git/a.txt", "");
    write_text("corpus/.hidden.txt", "");
    write_text("corpus/seen.txt", "");
    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, (const char *[]){"corpus/seen.txt"}, 1);
    assert_int_equal(inputs.n_skipped, 0);
    bd_inputs_release(&inputs);

    inputs = collect_one("corpus/.hidden.txt");  // whoever names it wants it
    assert_names(&inputs, (const char *[]){".hidden.txt"}, 1);
    bd_inputs_release(&inputs);
}

static void unknown_endings_in_folders_are_skipped_and_counted(void **state)
{
    (void)state;
    add_folder("corpus");
    write_text("corpus/a.csv", "");
    write_text("corpus/b.TXT", "");
    write_text("corpus/c.NdJson", "");
    write_text("corpus/d", "");
    write_text("corpus/etxt", "");
    write_text("corpus/f.text", "");
    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, (const char *[]){"corpus/b.TXT", "corpus/c.NdJson", "corpus/f.text"},
                 3);
    assert_int_equal(inputs.items[1].format, BD_INPUT_JSONL);
    assert_int_equal(inputs.n_skipped, 3);
    assert_string_equal(inputs.first_skipped, "corpus/a.csv");
    bd_inputs_release(&inputs);

    const char *operand = "corpus";
    inputs = collect(&operand, 1, BD_FORMAT_JSONL);  // a given format takes them all
    assert_int_equal(inputs.n, 6);
    assert_int_equal(inputs.n_skipped, 0);
    for (size_t i = 0; i < inputs.n; i++)
        assert_int_equal(inputs.items[i].format, BD_INPUT_JSONL);
    bd_inputs_release(&inputs);
}

// Other programs' files end like those of tokens, too.
static void a_file_in_a_folder_that_only_ends_like_tokens_is_skipped(void **state)
{
    (void)state;
    add_folder("corpus");
    write_text("corpus/a.txt", "");
    write_text("corpus/firmware.bin", "no tokens");
    write_text("corpus/weights.npy", "no tokens");
    write_text("corpus/x.csv.gz", "");  // what accompanies nothing that is there
    bd_inputs inputs = {0};
    add_operand(&inputs, "corpus", BD_FORMAT_AUTO);
    assert_names(&inputs, (const char *[]){"corpus/a.txt"}, 1);
    assert_int_equal(inputs.n_skipped, 3);
    assert_string_equal(inputs.first_skipped, "corpus/firmware.bin");
    bd_inputs_release(&inputs);
}

// An index is no input and no skipped file either, whatever format was chosen.
static void what_accompanies_a_file_of_tokens_is_passed_over(void **state)
{
    (void)state;
    static const char *const PAIRS[][2] = {
        {"corpus/a.bin", "corpus/a.idx"},
        {"corpus/b.ds", "corpus/b.ds.index"},
        {"corpus/c.npy", "corpus/c.csv.gz"},
    };
    add_folder("corpus");
    for (size_t i = 0; i < COUNT(PAIRS); i++) {
        write_text(PAIRS[i][0], "");
        write_text(PAIRS[i][1], "");
    }
    write_text("corpus/alone.idx", "");
    bd_inputs inputs = {0};
    add_operand(&inputs, "corpus", BD_FORMAT_TOKENS);
    assert_names(
        &inputs,
        (const char *[]){"corpus/a.bin", "corpus/alone.idx", "corpus/b.ds", "corpus/c.npy"}, 4);
    assert_int_equal(inputs.n_skipped, 0);
    bd_inputs_release(&inputs);
}

// A dataset may lie beside its corpus; one that is not there yet excludes nothing.
static void an_excluded_folder_is_passed_over(void **state)
{
    (void)state;
    static const char *const EXCLUDED[] = {"corpus/out", "./corpus/../corpus/out/", "link"};
    add_folder("corpus");
    add_folder("corpus/out");
    write_text("corpus/a.txt", "");
    write_text("corpus/out/b.txt", "");
    assert_int_equal(symlink("corpus/out", "link"), 0);
    for (size_t i = 0; i < COUNT(EXCLUDED); i++) {
        bd_inputs inputs = {0};
        assert_int_equal(bd_inputs_add(&inputs, "corpus", BD_DEFAULT_SOURCE, BD_FORMAT_AUTO,
                                       EXCLUDED[i], NULL),
                         BD_OK);
        assert_names(&inputs, (const char *[]){"corpus/a.txt"}, 1);
        assert_int_equal(inputs.n_skipped, 0);
        bd_inputs_release(&inputs);
    }
    bd_inputs inputs = {0};
    assert_int_equal(
        bd_inputs_add(&inputs, "corpus", BD_DEFAULT_SOURCE, BD_FORMAT_AUTO, "nowhere", NULL),
        BD_OK);
    assert_names(&inputs, (const char *[]){"corpus/a.txt", "corpus/out/b.txt"}, 2);
    bd_inputs_release(&inputs);
}

static void a_folder_without_a_usable_file_is_refused(void **state)
{
    (void)state;
    add_folder("corpus");
    assert_refused("corpus", BD_ERR_ARGUMENT, "nothing to read in the folder 'corpus'");
    write_text("corpus/a.csv", "");
    assert_refused("corpus", BD_ERR_ARGUMENT, "nothing to read in the folder 'corpus'");
}

static void an_unknown_ending_given_by_name_is_looked_into(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        bd_input_format format;
    } CASES[] = {
        {"", BD_INPUT_TEXT},
        {"a,b\n", BD_INPUT_TEXT},
        {"{\"text\":1}", BD_INPUT_JSONL},
        {" \t\r\n{", BD_INPUT_JSONL},
        {"\xEF\xBB\xBF {", BD_INPUT_JSONL},
        {"\xEF\xBB\xBF[", BD_INPUT_TEXT},
        {"caf\xc3", BD_INPUT_TEXT},  // the head of a file may end in a character
    };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        write_text("a.csv", CASES[i].content);
        bd_inputs inputs = collect_one("a.csv");
        assert_names(&inputs, (const char *[]){"a.csv"}, 1);
        assert_int_equal(inputs.items[0].format, CASES[i].format);
        bd_inputs_release(&inputs);
    }
    const char *operand = "a.csv";
    bd_inputs inputs = collect(&operand, 1, BD_FORMAT_JSONL);
    assert_int_equal(inputs.items[0].format, BD_INPUT_JSONL);
    bd_inputs_release(&inputs);
}

static void assert_not_told(const char *path, const void *content, size_t n)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    char message[200];
    const bd_reading reading = reading_of(BD_FORMAT_AUTO);
    write_file(path, content, n);
    add_operand(&inputs, path, BD_FORMAT_AUTO);
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_ARGUMENT);
    snprintf(message, sizeof message,
             "cannot tell the format of '%s' from its content: give --format", path);
    assert_string_equal(err.message, message);
    bd_inputs_release(&inputs);
}

static void what_content_does_not_tell_is_refused(void **state)
{
    (void)state;
    assert_not_told("image", "\x89PNG\r\n\x1a\n\0", 9);
    assert_not_told("nul", "a\0b", 3);
    assert_not_told("latin1", "\xe9t\xe9 et hiver", 13);
    // A name that promises a binary format, and text in it.
    static const char *const PROMISES[] = {"a.parquet", "a.arrow", "a.arrows", "a.bin",
                                           "a.ds",      "a.npy",   "a.BIN.gz"};
    for (size_t i = 0; i < COUNT(PROMISES); i++)
        assert_not_told(PROMISES[i], "text", 4);
    write_text("a.txt", "\xff\xfe");  // the name of a text is believed
    bd_inputs inputs = collect_one("a.txt");
    assert_int_equal(inputs.items[0].format, BD_INPUT_TEXT);
    bd_inputs_release(&inputs);
}

static void the_magic_of_a_table_is_believed_before_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *magic;
        size_t n;
        bd_input_format format;
    } CASES[] = {{"PAR1", 4, BD_INPUT_PARQUET},
                 {"ARROW1\0\0", 8, BD_INPUT_ARROW},
                 {"\xFF\xFF\xFF\xFF\0\0\0\0", 8, BD_INPUT_ARROW_STREAM}};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        bd_inputs inputs = {0};
        bd_error err = {0};
        char message[200];
        const bd_reading reading = reading_of(BD_FORMAT_AUTO);
        assert_true(write_gzip("a.txt", CASES[i].magic, CASES[i].n));
        add_operand(&inputs, "a.txt", BD_FORMAT_AUTO);
        assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_UNSUPPORTED);
        snprintf(message, sizeof message,
                 "cannot read 'a.txt': a compressed %s file; decompress it first",
                 bd_input_format_words[CASES[i].format]);
        assert_string_equal(err.message, message);
        assert_int_equal(inputs.items[0].format, CASES[i].format);
        bd_inputs_release(&inputs);
    }
}

static void links_to_files_are_followed_and_links_to_folders_are_not(void **state)
{
    (void)state;
    add_folder("corpus");
    add_folder("elsewhere");
    write_text("elsewhere/far.txt", "four");
    assert_int_equal(symlink("../elsewhere/far.txt", "corpus/near.txt"), 0);
    assert_int_equal(symlink("..", "corpus/loop"), 0);
    assert_int_equal(symlink("../elsewhere", "corpus/other.txt"), 0);
    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, (const char *[]){"corpus/near.txt"}, 1);
    assert_int_equal(inputs.items[0].entry.size_bytes, 4);
    assert_int_equal(inputs.n_skipped, 2);
    bd_inputs_release(&inputs);

    inputs = collect_one("corpus/other.txt");  // a link that was given by name is entered
    assert_names(&inputs, (const char *[]){"other.txt/far.txt"}, 1);
    bd_inputs_release(&inputs);
}

static void pipes_are_never_opened(void **state)
{
    (void)state;
    add_folder("corpus");
    assert_int_equal(mkfifo("corpus/pipe.txt", 0666), 0);
    write_text("corpus/seen.txt", "");
    alarm(20);  // opening a pipe waits for its writer
    assert_refused("corpus/pipe.txt", BD_ERR_ARGUMENT,
                   "cannot read 'corpus/pipe.txt': not a regular file");
    bd_inputs inputs = collect_one("corpus");
    alarm(0);
    assert_names(&inputs, (const char *[]){"corpus/seen.txt"}, 1);
    assert_int_equal(inputs.n_skipped, 1);
    bd_inputs_release(&inputs);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    assert_refused("nowhere.txt", BD_ERR_IO,
                   "cannot read 'nowhere.txt': No such file or directory");
    add_folder("corpus");
    write_text("corpus/a.txt", "");
    assert_int_equal(symlink("nowhere", "corpus/b.txt"), 0);
    assert_refused("corpus", BD_ERR_IO,
                   "cannot read 'corpus/b.txt': No such file or directory");
}

// ---- Patterns, lists, standard input ------------------------------------------------------

static void patterns_are_taken_in_byte_order(void **state)
{
    (void)state;
    add_folder("corpus");
    add_folder("corpus/b.txt");
    write_text("corpus/c.txt", "");
    write_text("corpus/B.txt", "");
    write_text("corpus/b.txt/inner.txt", "");
    write_text("corpus/a.jsonl", "");
    write_text("corpus/.hidden.txt", "");
    assert_operand_gives("corpus/*.txt", (const char *[]){"B.txt", "b.txt/inner.txt", "c.txt"},
                         3);
    assert_operand_gives("corp?s/[ac].*", (const char *[]){"a.jsonl", "c.txt"}, 2);
    assert_refused("corpus/*.parquet", BD_ERR_ARGUMENT,
                   "cannot read 'corpus/*.parquet': nothing matches it");
    write_text("corpus/d[1].txt", "");  // a file of that very name is no pattern
    assert_operand_gives("corpus/d[1].txt", (const char *[]){"d[1].txt"}, 1);
}

static void lists_name_operands_line_by_line(void **state)
{
    (void)state;
    add_folder("corpus");
    write_text("corpus/a.txt", "");
    write_text("corpus/b.txt", "");
    write_text("# not a comment", "");
    write_text("list", "# a comment\n\ncorpus/b.txt\r\ncorpus\n\r\ncorpus/*.txt\n"
                       "./# not a comment");
    assert_operand_gives("@list",
                         (const char *[]){"b.txt", "corpus/a.txt", "corpus/b.txt", "a.txt",
                                          "b.txt", "# not a comment"},
                         6);
    write_text("list", "");
    assert_operand_gives("@list", NULL, 0);
    write_text("list", "corpus/a.txt\n\nnowhere.txt\n");
    assert_refused("@list", BD_ERR_IO,
                   "'list', line 3: cannot read 'nowhere.txt': No such file or directory");
    write_file("list", "corpus/a.txt\n\0corpus/b.txt", 26);
    assert_refused("@list", BD_ERR_FORMAT, "'list': a NUL byte in a list of files");
    assert_refused("@nowhere", BD_ERR_IO, "cannot open 'nowhere': No such file or directory");
}

static void standard_input_is_read_once(void **state)
{
    (void)state;
    bd_inputs inputs = {0};
    bd_error err = {0};
    bd_reading reading = reading_of(BD_FORMAT_AUTO);
    add_operand(&inputs, "-", BD_FORMAT_AUTO);
    assert_int_equal(bd_inputs_add(&inputs, "-", "again", BD_FORMAT_AUTO, NULL, &err),
                     BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "standard input can be read only once");
    assert_int_equal(inputs.n, 1);
    const bd_input *input = &inputs.items[0];
    assert_true(bd_input_is_stdin(input));

    // It is not touched, so only the options can tell what it is.
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_int_equal(input->format, BD_INPUT_JSONL);
    assert_string_equal(input->entry.name, "-");
    assert_int_equal(input->entry.size_bytes, BD_UNKNOWN);
    assert_int_equal(input->entry.weight, BD_UNKNOWN);
    assert_int_equal(input->entry.extent, BD_UNKNOWN);
    assert_int_equal(input->entry.stride, UNIT);
    assert_string_equal(input->edges.hex, "");
    bd_inputs_release(&inputs);

    add_operand(&inputs, "-", BD_FORMAT_TEXT);
    reading = reading_of(BD_FORMAT_TEXT);
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_int_equal(inputs.items[0].format, BD_INPUT_TEXT);
    assert_int_equal(inputs.items[0].entry.stride, 0);  // one document, whatever its size
    assert_int_equal(inputs.items[0].entry.n_starts, 1);
    bd_inputs_release(&inputs);

    add_operand(&inputs, "-", BD_FORMAT_AUTO);
    reading = reading_of(BD_FORMAT_AUTO);
    reading.delimiter = "%";
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_int_equal(inputs.items[0].format, BD_INPUT_TEXT);
    assert_int_equal(inputs.items[0].entry.stride, UNIT);
    bd_inputs_release(&inputs);
}

static void inputs_carry_the_source_they_were_given_with(void **state)
{
    (void)state;
    bd_inputs inputs = {0};
    add_folder("web");
    write_text("web/a.txt", "");
    write_text("web/b.txt", "");
    write_text("c.txt", "");
    char source[] = "from the web";
    assert_int_equal(bd_inputs_add(&inputs, "web", source, BD_FORMAT_AUTO, NULL, NULL), BD_OK);
    source[0] = '?';  // it was copied
    assert_int_equal(bd_inputs_add(&inputs, "c.txt", "books", BD_FORMAT_AUTO, NULL, NULL),
                     BD_OK);
    assert_int_equal(inputs.n, 3);
    assert_string_equal(inputs.items[0].entry.source, "from the web");
    assert_string_equal(inputs.items[1].entry.source, "from the web");
    assert_string_equal(inputs.items[2].entry.source, "books");
    bd_inputs_release(&inputs);
}

// ---- Compression --------------------------------------------------------------------------

static void compression_is_told_by_content(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bd_input_format format;
    } CASES[] = {
        {"a.txt", BD_INPUT_TEXT},
        {"a.txt.gz", BD_INPUT_TEXT},
        {"a.JSONL.GZ", BD_INPUT_JSONL},
        {"a.json.gzip", BD_INPUT_JSONL},
        {"a.ndjson.zst", BD_INPUT_JSONL},  // a wrong ending, but one of compression
        {"a", BD_INPUT_JSONL},
        {"a.gz", BD_INPUT_JSONL},
    };
    static const char LINE[] = "{\"text\":\"a\"}\n";
    for (size_t i = 0; i < COUNT(CASES); i++) {
        for (int compressed = 0; compressed < 2; compressed++) {
            if (compressed)
                assert_true(write_gzip(CASES[i].name, LINE, strlen(LINE)));
            else
                write_text(CASES[i].name, LINE);
            bd_inputs inputs = collect_one(CASES[i].name);
            const bd_input *input = &inputs.items[0];
            assert_int_equal(input->format, CASES[i].format);
            assert_int_equal(input->compression, compressed ? BD_GZIP : BD_PLAIN);
            assert_string_equal(input->entry.compression, compressed ? "gzip" : "none");
            assert_string_equal(input->entry.format, bd_input_format_words[CASES[i].format]);
            assert_int_equal(input->entry.extent, strlen(LINE));
            bd_inputs_release(&inputs);
        }
    }
}

// Up to the size of a unit a compressed input is like a plain one; beyond, only reading tells.
static void a_compressed_input_is_measured_up_to_a_unit(void **state)
{
    (void)state;
    static const int64_t SIZES[] = {0, 1, UNIT - 1, UNIT, UNIT + 1, 100 * UNIT};
    char *text = malloc(100 * UNIT);
    assert_non_null(text);
    memset(text, 'a', 100 * UNIT);
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        struct stat info;
        assert_true(write_gzip("a.jsonl.gz", text, (size_t)SIZES[i]));
        write_file("b.jsonl", text, (size_t)SIZES[i]);
        assert_int_equal(stat("a.jsonl.gz", &info), 0);
        const char *const operands[] = {"a.jsonl.gz", "b.jsonl"};
        bd_inputs inputs = collect(operands, 2, BD_FORMAT_AUTO);
        const bd_input_entry *zipped = &inputs.items[0].entry, *plain = &inputs.items[1].entry;
        const int64_t expected = SIZES[i] <= UNIT ? SIZES[i] : BD_UNKNOWN;
        assert_int_equal(zipped->size_bytes, info.st_size);
        assert_int_equal(zipped->extent, expected);
        assert_int_equal(zipped->weight, expected);
        assert_int_equal(plain->size_bytes, SIZES[i]);
        assert_int_equal(plain->extent, SIZES[i]);
        assert_int_equal(plain->weight, SIZES[i]);
        assert_int_equal(zipped->stride, UNIT);
        assert_int_equal(plain->stride, UNIT);
        assert_int_equal(zipped->n_starts + plain->n_starts, 0);
        bd_inputs_release(&inputs);
    }
    free(text);
}

static void a_text_that_is_one_document_is_not_cut(void **state)
{
    (void)state;
    char text[3 * UNIT];
    memset(text, 'a', sizeof text);
    write_file("a.txt", text, sizeof text);
    assert_true(write_gzip("b.txt", text, sizeof text));
    for (int delimited = 0; delimited < 2; delimited++) {
        bd_inputs inputs = {0};
        bd_reading reading = reading_of(BD_FORMAT_AUTO);
        reading.delimiter = delimited ? "%" : NULL;
        add_operand(&inputs, "a.txt", BD_FORMAT_AUTO);
        add_operand(&inputs, "b.txt", BD_FORMAT_AUTO);
        assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
        for (size_t i = 0; i < 2; i++) {
            const bd_input_entry *entry = &inputs.items[i].entry;
            assert_int_equal(entry->stride, delimited ? UNIT : 0);
            assert_int_equal(entry->n_starts, !delimited);
            if (!delimited)
                assert_int_equal(entry->starts[0], 0);
        }
        bd_inputs_release(&inputs);
    }
}

static void damage_that_is_met_is_named(void **state)
{
    (void)state;
    size_t n;
    bd_error err = {0};
    bd_inputs inputs = {0};
    const bd_reading reading = reading_of(BD_FORMAT_AUTO);
    assert_true(write_gzip("a.jsonl.gz", "{}\n", 3));
    char *data = read_file("a.jsonl.gz", &n);
    write_file("a.jsonl.gz", data, n - 5);
    free(data);
    add_operand(&inputs, "a.jsonl.gz", BD_FORMAT_AUTO);
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'a.jsonl.gz'"));
    bd_inputs_release(&inputs);
}

// ---- Files of tokens ----------------------------------------------------------------------

static void write_raw(const char *name, const uint16_t *ids, size_t n_ids, const uint64_t *ends,
                      size_t n_ends)
{
    char sidecar[64];
    snprintf(sidecar, sizeof sidecar, "%s.index", name);
    write_file(name, ids, n_ids * sizeof *ids);
    write_file(sidecar, ends, n_ends * sizeof *ends);
}

// Documents of 3, 0, 7, 4 and 1 tokens; a unit has room for 4.
static void indexed_tokens_are_cut_between_documents(void **state)
{
    (void)state;
    static const uint16_t IDS[15] = {0};
    static const uint64_t ENDS[] = {3, 3, 10, 14, 15};
    static const int64_t STARTS[] = {0, 2, 3, 4};
    bd_inputs inputs = {0};
    bd_reading reading = reading_of(BD_FORMAT_AUTO);
    reading.unit_bytes = 9;
    add_folder("corpus");
    write_raw("corpus/a.ds", IDS, COUNT(IDS), ENDS, COUNT(ENDS));
    add_operand(&inputs, "corpus", BD_FORMAT_AUTO);  // the index is no input of its own
    assert_names(&inputs, (const char *[]){"corpus/a.ds"}, 1);
    assert_int_equal(inputs.n_skipped, 0);
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    const bd_input *input = &inputs.items[0];
    assert_int_equal(input->format, BD_INPUT_TOKENS);
    assert_int_equal(input->id_bytes, 2);
    assert_int_equal(input->entry.extent, COUNT(ENDS));
    assert_int_equal(input->entry.weight, sizeof IDS);
    assert_int_equal(input->entry.stride, 0);
    assert_int_equal(input->entry.n_starts, COUNT(STARTS));
    assert_memory_equal(input->entry.starts, STARTS, sizeof STARTS);
    bd_inputs_release(&inputs);
}

static void tokens_of_llm_c_are_cut_at_multiples(void **state)
{
    (void)state;
    enum { N_TOKENS = 10 };
    unsigned char file[1024 + 2 * N_TOKENS] = {0};
    const int32_t header[] = {20240520, 1, N_TOKENS};
    bd_reading reading = reading_of(BD_FORMAT_AUTO);
    memcpy(file, header, sizeof header);
    write_file("a.bin", file, sizeof file);
    for (int64_t unit_bytes = 1; unit_bytes <= 9; unit_bytes++) {
        bd_inputs inputs = {0};
        reading.unit_bytes = unit_bytes;
        add_operand(&inputs, "a.bin", BD_FORMAT_AUTO);
        assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
        const bd_input *input = &inputs.items[0];
        assert_int_equal(input->format, BD_INPUT_LLM_C);
        assert_int_equal(input->entry.extent, N_TOKENS);
        assert_int_equal(input->entry.weight, 2 * N_TOKENS);
        assert_int_equal(input->entry.stride, unit_bytes < 4 ? 1 : unit_bytes / 2);
        bd_inputs_release(&inputs);
    }
}

static void a_megatron_pair_is_called_after_its_ids(void **state)
{
    (void)state;
    unsigned char index[34 + 4 + 8 + 16] = "MMIDIDX\0\0\1";  // version 1
    index[17] = 8;                                           // uint16
    index[18] = 1;                                           // sequences
    index[26] = 2;                                           // documents, and one more
    index[34] = 3;                                           // tokens of the first
    index[54] = 1;                                           // where the documents end
    write_file("a.idx", index, sizeof index);
    write_file("a.bin", "\1\0\2\0\3\0", 6);
    static const char *const OPERANDS[] = {"a.idx", "a.bin"};
    bd_inputs inputs = collect(OPERANDS, 2, BD_FORMAT_AUTO);
    for (size_t i = 0; i < 2; i++) {
        const bd_input *input = &inputs.items[i];
        assert_int_equal(input->format, BD_INPUT_MEGATRON);
        assert_string_equal(input->entry.name, "a.bin");
        assert_string_equal(input->path, "a.bin");
        assert_int_equal(input->entry.size_bytes, 6);
        assert_int_equal(input->entry.extent, 1);
        assert_string_equal(input->edges.hex, inputs.items[0].edges.hex);
    }
    bd_inputs_release(&inputs);
}

// ---- Edges --------------------------------------------------------------------------------

static bd_digest edges_of(const char *path)
{
    bd_inputs inputs = collect_one(path);
    const bd_digest edges = inputs.items[0].edges;
    bd_inputs_release(&inputs);
    return edges;
}

// Whether the edges of the file change when its byte `at` does.
static bool notices(const char *path, off_t at)
{
    const bd_digest before = edges_of(path);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    const bd_digest after = edges_of(path);
    return strcmp(before.hex, after.hex) != 0;
}

static void edges_are_the_first_and_the_last_mib(void **state)
{
    (void)state;
    write_file("large.txt", "x", 1);
    assert_int_equal(truncate("large.txt", 3 * MIB + 5), 0);
    assert_true(notices("large.txt", 0));
    assert_true(notices("large.txt", MIB - 1));
    assert_false(notices("large.txt", MIB));
    assert_false(notices("large.txt", 2 * MIB + 4));
    assert_true(notices("large.txt", 2 * MIB + 5));
    assert_true(notices("large.txt", 3 * MIB + 4));

    write_file("middling.txt", "x", 1);  // its two edges overlap
    assert_int_equal(truncate("middling.txt", MIB + 3), 0);
    for (off_t at = 0; at < MIB + 3; at += MIB / 2)
        assert_true(notices("middling.txt", at));

    write_text("small.txt", "ab");
    assert_true(notices("small.txt", 0));
    assert_true(notices("small.txt", 1));
    write_text("empty.txt", "");
    edges_of("empty.txt");
}

static void the_edges_of_tokens_are_those_of_their_index_too(void **state)
{
    (void)state;
    static const uint16_t IDS[4] = {1, 2, 3, 4};
    write_raw("a.ds", IDS, 4, (const uint64_t[]){1, 4}, 2);
    const bd_digest before = edges_of("a.ds");
    write_raw("a.ds", IDS, 4, (const uint64_t[]){2, 4}, 2);
    const bd_digest after = edges_of("a.ds");
    assert_string_not_equal(before.hex, after.hex);
    assert_true(notices("a.ds", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(folders_are_read_in_byte_order_of_their_entries),
        test_inside_folder(operands_stay_in_their_order),
        test_inside_folder(names_begin_with_the_operands_last_name),
        test_inside_folder(names_that_begin_with_a_dot_are_left_out),
        test_inside_folder(unknown_endings_in_folders_are_skipped_and_counted),
        test_inside_folder(a_file_in_a_folder_that_only_ends_like_tokens_is_skipped),
        test_inside_folder(what_accompanies_a_file_of_tokens_is_passed_over),
        test_inside_folder(an_excluded_folder_is_passed_over),
        test_inside_folder(a_folder_without_a_usable_file_is_refused),
        test_inside_folder(an_unknown_ending_given_by_name_is_looked_into),
        test_inside_folder(what_content_does_not_tell_is_refused),
        test_inside_folder(the_magic_of_a_table_is_believed_before_its_name),
        test_inside_folder(links_to_files_are_followed_and_links_to_folders_are_not),
        test_inside_folder(pipes_are_never_opened),
        test_inside_folder(a_missing_file_is_named),
        test_inside_folder(patterns_are_taken_in_byte_order),
        test_inside_folder(lists_name_operands_line_by_line),
        test_inside_folder(standard_input_is_read_once),
        test_inside_folder(inputs_carry_the_source_they_were_given_with),
        test_inside_folder(compression_is_told_by_content),
        test_inside_folder(a_compressed_input_is_measured_up_to_a_unit),
        test_inside_folder(a_text_that_is_one_document_is_not_cut),
        test_inside_folder(damage_that_is_met_is_named),
        test_inside_folder(indexed_tokens_are_cut_between_documents),
        test_inside_folder(tokens_of_llm_c_are_cut_at_multiples),
        test_inside_folder(a_megatron_pair_is_called_after_its_ids),
        test_inside_folder(edges_are_the_first_and_the_last_mib),
        test_inside_folder(the_edges_of_tokens_are_those_of_their_index_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
