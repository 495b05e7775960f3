#include "packer/input/inputs.h"

#include <fcntl.h>

#include "packer/input/decompressor.h"
#include "packer/input/kinds.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/temporary_folder.h"

enum { MIB = 1 << 20, UNIT = 1000, END_OF_TEXT = 50256 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bd_input_options reading_of(const bd_input_kind *choice)
{
    return (bd_input_options){.format = choice,
                              .text_field = "text",
                              .unit_bytes = UNIT,
                              .max_document_bytes = MIB,
                              .raw_id_bytes = 2,
                              .end_of_text = END_OF_TEXT};
}

static const bd_collect_options DEFAULT = {.source = BD_DEFAULT_SOURCE};

static void add_operand(bd_inputs *inputs, const char *operand)
{
    bd_error err = {0};
    if (bd_inputs_add(inputs, operand, &DEFAULT, &err) != BD_OK)
        fail_msg("%s", err.message);
}

// Returns how many files were passed over for a reason; the first must be `first`.
static int64_t n_passed(const bd_inputs *inputs, const char *reason, const char *first)
{
    for (size_t i = 0; i < inputs->passed.n; i++) {
        const bd_passed_kind *kind = &inputs->passed.items[i];
        if (strcmp(kind->reason, reason) == 0) {
            assert_string_equal(kind->first, first);
            return kind->n_files;
        }
    }
    return 0;
}

static bd_status try_examine(bd_inputs *inputs, const bd_input_options *reading, bd_error *err)
{
    bd_threads *threads;
    assert_int_equal(bd_threads_new(&threads, 2, NULL), BD_OK);
    const bd_status status = bd_inputs_examine(inputs, reading, threads, err);
    bd_threads_free(threads);
    return status;
}

static bd_inputs collect(const char *const *operands, size_t n, const bd_input_kind *choice)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    const bd_input_options reading = reading_of(choice);
    for (size_t i = 0; i < n; i++)
        add_operand(&inputs, operands[i]);
    if (try_examine(&inputs, &reading, &err) != BD_OK)
        fail_msg("%s", err.message);
    return inputs;
}

static bd_inputs collect_one(const char *operand)
{
    return collect(&operand, 1, NULL);
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
    add_operand(&inputs, operand);
    assert_names(&inputs, names, n);
    bd_inputs_release(&inputs);
}

static void assert_refused(const char *operand, bd_status status, const char *message)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    assert_int_equal(bd_inputs_add(&inputs, operand, &DEFAULT, &err), status);
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
    assert_int_equal(inputs.passed.n, 0);
    assert_true(inputs.passed.is_known);
    for (size_t i = 0; i < inputs.n; i++) {
        const bool json = strstr(IN_ORDER[i], "json") != NULL;
        assert_ptr_equal(inputs.items[i].kind, json ? &bd_jsonl_kind : &bd_text_kind);
        assert_int_equal(inputs.items[i].entry.size_bytes, i);
        assert_string_equal(inputs.items[i].path, IN_ORDER[i]);
    }
    bd_inputs_release(&inputs);
    bd_inputs_release(&inputs);
}

static void operands_stay_in_their_order(void **state)
{
    (void)state;
    static const char *const OPERANDS[] = {"z.txt", "folder", "a.txt"};
    static const char *const NAMES[] = {"z.txt", "folder/m.txt", "a.txt"};
    add_folder("folder");
    write_text("z.txt", "");
    write_text("a.txt", "");
    write_text("folder/m.txt", "");
    bd_inputs inputs = collect(OPERANDS, COUNT(OPERANDS), NULL);
    assert_names(&inputs, NAMES, COUNT(NAMES));
    bd_inputs_release(&inputs);
}

// Files are recognised by device and inode, and keep the name that came first.
static void every_file_is_met_once(void **state)
{
    (void)state;
    static const char *const OPERANDS[] = {"z.txt", "folder", "./folder/../z.txt", "folder"};
    add_folder("folder");
    write_text("z.txt", "");
    write_text("folder/m.txt", "four");
    assert_int_equal(link("folder/m.txt", "folder/hard.txt"), 0);
    assert_int_equal(symlink("m.txt", "folder/soft.txt"), 0);
    assert_int_equal(symlink("../z.txt", "folder/z.txt"), 0);
    bd_inputs inputs = collect(OPERANDS, COUNT(OPERANDS), NULL);
    assert_names(&inputs, (const char *[]){"z.txt", "folder/hard.txt"}, 2);
    assert_int_equal(inputs.passed.n, 1);
    assert_int_equal(n_passed(&inputs, "met before", "folder/m.txt"), 3 + 1 + 4);
    assert_int_equal(inputs.passed.items[0].size_bytes, 5 * 4);
    bd_inputs_release(&inputs);
}

static void a_file_cannot_be_of_two_sources(void **state)
{
    (void)state;
    bd_inputs inputs = {0};
    bd_error err = {0};
    const bd_input_options reading = reading_of(NULL);
    const bd_collect_options other = {.source = "other"};
    const bd_collect_options read_otherwise = {.source = BD_DEFAULT_SOURCE,
                                               .own = {.text_field = (char[]){"content"}}};
    write_text("a.txt", "");
    add_operand(&inputs, "a.txt");
    assert_int_equal(bd_inputs_add(&inputs, "./a.txt", &other, NULL), BD_OK);
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "'./a.txt' is given twice, for source 'other' and, as 'a.txt', for "
                        "'default'; --exclude passes over files of folders");
    bd_inputs_release(&inputs);

    add_operand(&inputs, "a.txt");
    assert_int_equal(bd_inputs_add(&inputs, "./a.txt", &read_otherwise, NULL), BD_OK);
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "'./a.txt' is given twice, with different options: it is 'a.txt'");
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
    add_folder("corpus/.git/refs");
    write_text("corpus/.git/refs/a.txt", "four");
    write_text("corpus/.hidden.txt", "");
    assert_int_equal(symlink("..", "corpus/.git/loop"), 0);
    write_text("corpus/seen.txt", "");
    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, (const char *[]){"corpus/seen.txt"}, 1);
    assert_int_equal(inputs.passed.n, 1);
    assert_int_equal(n_passed(&inputs, "hidden", "corpus/.git/loop"), 3);
    assert_int_equal(inputs.passed.items[0].size_bytes, 4);
    bd_inputs_release(&inputs);

    inputs = collect_one("corpus/.hidden.txt");  // a file that is named is read
    assert_names(&inputs, (const char *[]){".hidden.txt"}, 1);
    bd_inputs_release(&inputs);
}

// The expected result for a file, alone in a folder and given by name: its format, or the
// reason why it is not read.
static const struct {
    const char *name, *content;
    size_t n;  // 0: as long as the text
    const bd_input_kind *format;
    const char *reason;  // NULL: it is read
} KINDS[] = {
    {"a.TXT", "{}", 0, &bd_text_kind, NULL},  // a name that says text decides,
    {"a.NdJson", "x", 0, &bd_jsonl_kind, NULL},
    {"a.txt", "caf\xe9", 0, &bd_text_kind, NULL},
    {"a.txt", "\xFF\xFF\xFF\xFFtext, and more of it", 0, &bd_text_kind, NULL},
    {"a.txt", "\x89PNG\r\n\x1a\n\0", 9, 0, "image"},  // unless there is a magic number
    {"Makefile", "all:\n", 0, &bd_text_kind, NULL},
    {"a.py", "", 0, &bd_text_kind, NULL},
    {"a.md", "caf\xc3", 0, &bd_text_kind, NULL},  // the head may end inside a character
    {"a.md", "[a link](b)", 0, &bd_text_kind, NULL},
    {"a.c", "{ int a; }\n", 0, &bd_text_kind, NULL},
    {"a", "{\"\" and {}", 0, &bd_jsonl_kind, NULL},  // its only line has no end
    {"a", "{\"text\":\"}\\\"\"} \r\n{", 0, &bd_jsonl_kind, NULL},
    {"a", "\xEF\xBB\xBF \n{\"text\":{}}", 0, &bd_jsonl_kind, NULL},
    {"a", "{\"a\":1} and so on", 0, &bd_text_kind, NULL},
    {"a.json", "{\"text\":1}\n{\"text\":2}\n", 0, &bd_jsonl_kind, NULL},
    {"a.json", " \n", 0, &bd_jsonl_kind, NULL},
    {"a.json", "{\n\"a\": 1}", 0, 0, "JSON over several lines"},
    {"a.json", "{\"a\": {}\n}", 0, 0, "JSON over several lines"},
    {"a.json", "{ // a comment\n}", 0, 0, "JSON over several lines"},
    {"a.ipynb", "{\n \"cells\": []}", 0, 0, "JSON over several lines"},
    {"a.json", "[\"a\"]", 0, &bd_json_kind, NULL},
    {"a.json", "[]", 0, &bd_json_kind, NULL},
    {"a.json.gz", "[{\"text\": \"}\"},", 0, &bd_json_kind, NULL},  // reading reports the error
    {"a", "[ {\"text\": \"\"} ]", 0, &bd_json_kind, NULL},
    {"a", "[\"a\"]", 0, &bd_text_kind, NULL},
    {"a.csv", "a,\"text\"\r\n", 0, &bd_csv_kind, NULL},
    {"a.TSV.gz", "text\tb", 0, &bd_tsv_kind, NULL},
    {"a.csv", "\x89PNG\r\n\x1a\n\0", 9, 0, "image"},
    {"a", "\x5D\0\0\x80", 4, 0, "unknown compression"},
    {"a", "PK\3\4\x14\0", 6, 0, "zip archive"},
    {"a", "7z\xBC\xAF\x27\x1C\0", 7, 0, "7z or RAR archive"},
    {"a", "%PDF-1.7\nand text", 0, 0, "PDF"},
    {"a", "\xFF\xD8\xFF\xE0", 0, 0, "image"},
    {"a",
     "\x7F"
     "ELF\2\1\1\0",
     8, 0, "program"},
    {"a", "PARENT", 6, &bd_text_kind, NULL},
    {"a", "BZhuman", 0, &bd_text_kind, NULL},
    {"a", "\xFF\xFEt\0e\0", 6, 0, "UTF-16 or UTF-32"},
    {"a.npy", "\x93NUMPY\1\0", 8, 0, "NumPy array"},
    {"a.parquet", "version https://git-lfs.github.com/spec/v1\n", 0, 0, "Git LFS pointer"},
    {"a.parquet", "text", 0, 0, "not what its name says"},
    {"a.BIN.gz", "text", 0, 0, "not what its name says"},
    {"a.bin", "\1\0", 2, 0, "binary"},
    {"a", "a\0b", 3, 0, "binary"},
    {"a", "\xe9t\xe9 et hiver", 0, 0, "not UTF-8"},
    {"a", "\xe9\1 ", 0, 0, "binary"},
    {"a", "\xFF\xFF\xFF\xFF\0\0\0\0", 8, 0, "binary"},  // not a message of an Arrow stream
};

static void content_tells_what_a_file_is(void **state)
{
    (void)state;
    const bd_input_options reading = reading_of(NULL);
    add_folder("corpus");
    write_text("corpus/other.txt", "");
    for (size_t i = 0; i < COUNT(KINDS); i++) {
        const char *reason = KINDS[i].reason;
        char path[64], message[200];
        bd_inputs inputs = {0};
        bd_error err = {0};
        snprintf(path, sizeof path, "corpus/%s", KINDS[i].name);
        write_file(path, KINDS[i].content,
                   KINDS[i].n > 0 ? KINDS[i].n : strlen(KINDS[i].content));
        inputs.allow_skipped = true;
        add_operand(&inputs, "corpus");
        if (try_examine(&inputs, &reading, &err) != BD_OK)
            fail_msg("%zu: %s", i, err.message);
        if (reason && (inputs.passed.n != 1 || n_passed(&inputs, reason, path) != 1))
            fail_msg("%zu: not %s", i, reason);
        if (!reason && (inputs.n != 2 || inputs.items[0].kind != KINDS[i].format))
            fail_msg("%zu: not format %s", i, KINDS[i].format->name);
        bd_inputs_release(&inputs);

        add_operand(&inputs, path);
        const bd_status status = try_examine(&inputs, &reading, &err);
        snprintf(message, sizeof message, "cannot read '%s': %s; ", path, reason ? reason : "");
        if (reason &&
            (status != BD_ERR_ARGUMENT || strncmp(err.message, message, strlen(message)) != 0))
            fail_msg("%zu: %s", i, err.message);
        if (!reason && (status != BD_OK || inputs.items[0].kind != KINDS[i].format))
            fail_msg("%zu: not format %s", i, KINDS[i].format->name);
        bd_inputs_release(&inputs);
        unlink(path);
    }
}

// One JSON object without the text is a settings file; among other lines it is a record.
static void a_lone_object_without_the_text_is_no_corpus(void **state)
{
    (void)state;
    add_folder("corpus");
    write_text("corpus/a.json", "{\"name\": \"a\"}\n");
    write_text("corpus/b.json", "{\"name\": \"a\"}\n{\"name\": \"b\"}\n");
    write_text("corpus/c.json", "{\"text\": null}\n");
    // Longer than the bytes that are examined first: one line, two lines, one with the text at
    // its end.
    static const struct {
        const char *path, *end;
    } LONG[] = {{"corpus/d.map", "\", \"name\": 1}\n"},
                {"corpus/e.map", "\", \"name\": 1}\n{}"},
                {"corpus/f.map", "\", \"text\": 1}\n"}};
    for (size_t i = 0; i < COUNT(LONG); i++) {
        char line[70000];
        memset(line, 'x', sizeof line);
        memcpy(line, "{\"x\": \"", strlen("{\"x\": \""));
        memcpy(line + sizeof line - 20, LONG[i].end, strlen(LONG[i].end) + 1);
        write_text(LONG[i].path, line);
    }
    bd_inputs inputs = collect_one("corpus");
    assert_names(
        &inputs,
        (const char *[]){"corpus/b.json", "corpus/c.json", "corpus/e.map", "corpus/f.map"}, 4);
    assert_int_equal(n_passed(&inputs, "JSON without its text", "corpus/a.json"), 2);
    bd_inputs_release(&inputs);
    inputs = collect_one("corpus/a.json");  // a file that is named is read
    assert_ptr_equal(inputs.items[0].kind, &bd_jsonl_kind);
    bd_inputs_release(&inputs);
}

static void other_encodings_are_text_where_they_are_allowed(void **state)
{
    (void)state;
    bd_input_options reading = reading_of(NULL);
    reading.utf8_policy = BD_UTF8_REPLACE;
    bd_inputs inputs = {0};
    add_folder("corpus");
    write_text("corpus/a.md", "\xe9t\xe9\r\n\tet hiver");
    write_text("corpus/b", "\xe9\1");
    write_text("corpus/c.json", "{\"text\": \"\xe9\"}");
    add_operand(&inputs, "corpus");
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_names(&inputs, (const char *[]){"corpus/a.md", "corpus/c.json"}, 2);
    assert_ptr_equal(inputs.items[0].kind, &bd_text_kind);
    assert_ptr_equal(inputs.items[1].kind, &bd_jsonl_kind);
    assert_int_equal(n_passed(&inputs, "binary", "corpus/b"), 1);
    bd_inputs_release(&inputs);
}

static void a_given_format_takes_every_file_of_a_folder(void **state)
{
    (void)state;
    const char *operand = "corpus";
    add_folder("corpus");
    write_text("corpus/a.csv", "");
    write_text("corpus/b", "[1]");
    write_text("corpus/c.bin", "\1\2");
    bd_inputs inputs = collect(&operand, 1, &bd_jsonl_kind);
    assert_int_equal(inputs.n, 3);
    assert_int_equal(inputs.passed.n, 0);
    for (size_t i = 0; i < inputs.n; i++)
        assert_ptr_equal(inputs.items[i].kind, &bd_jsonl_kind);
    bd_inputs_release(&inputs);
}

static bd_inputs collect_with(bd_collect_options how)
{
    bd_inputs inputs = {0};
    bd_error err = {0};
    const bd_input_options reading = reading_of(NULL);
    how.source = BD_DEFAULT_SOURCE;
    if (bd_inputs_add(&inputs, "corpus", &how, &err) != BD_OK ||
        try_examine(&inputs, &reading, &err) != BD_OK)
        fail_msg("%s", err.message);
    return inputs;
}

static void patterns_choose_among_the_files_of_folders(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"a.md", "a.txt", "sub/b.md", "sub/deep/a.txt"};
    add_folder("corpus");
    add_folder("corpus/sub");
    add_folder("corpus/sub/deep");
    for (size_t i = 0; i < COUNT(NAMES); i++) {
        char path[64];
        snprintf(path, sizeof path, "corpus/%s", NAMES[i]);
        write_text(path, "");
    }
    static const struct {
        const char *include, *exclude;
        int n;
        const char *names[4];
    } CASES[] = {
        {NULL, "*.md", 2, {"corpus/a.txt", "corpus/sub/deep/a.txt"}},  // * matches / as well
        {NULL, "a.*", 1, {"corpus/sub/b.md"}},              // the last name, wherever it is
        {NULL, "sub", 2, {"corpus/a.md", "corpus/a.txt"}},  // a folder and what is below
        {NULL, "sub/*/a.txt", 3, {"corpus/a.md", "corpus/a.txt", "corpus/sub/b.md"}},
        {NULL,
         "corpus",
         4,
         {"corpus/a.md", "corpus/a.txt", "corpus/sub/b.md",
          "corpus/sub/deep/a.txt"}},  // a name that was given explicitly counts
        {"*.md", NULL, 2, {"corpus/a.md", "corpus/sub/b.md"}},
        {"deep", NULL, 1, {"corpus/sub/deep/a.txt"}},
        {"*.md", "sub", 1, {"corpus/a.md"}},
    };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        const char *include = CASES[i].include, *exclude = CASES[i].exclude;
        bd_inputs inputs = collect_with((bd_collect_options){
            .include = {&include, include != NULL}, .exclude = {&exclude, exclude != NULL}});
        assert_names(&inputs, CASES[i].names, (size_t)CASES[i].n);
        assert_int_equal(bd_passed_over_files(&inputs.passed), 4 - CASES[i].n);
        for (size_t k = 0; k < inputs.passed.n; k++)
            assert_non_null(strstr(exclude ? "excluded, not included" : "not included",
                                   inputs.passed.items[k].reason));
        bd_inputs_release(&inputs);
    }
}

static void most_of_a_folder_must_be_read(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_inputs inputs = {0};
    const bd_input_options reading = reading_of(NULL);
    add_folder("corpus");
    write_text("corpus/.hidden", "and long: what was left out on purpose does not count");
    write_text("corpus/a.txt", "12345");
    write_text("corpus/b.csv", "12345");
    inputs = collect_one("corpus");
    assert_int_equal(inputs.n, 1);
    bd_inputs_release(&inputs);

    write_text("corpus/b.csv", "123456");
    add_operand(&inputs, "corpus");
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_ARGUMENT);
    assert_string_equal(
        err.message,
        "more than half of the folder 'corpus' cannot be read (--allow-skipped "
        "packs the rest, --exclude passes over): CSV without its text: 1 file, 6 B, such "
        "as 'corpus/b.csv'");
    bd_inputs_release(&inputs);

    inputs.allow_skipped = true;
    add_operand(&inputs, "corpus");
    assert_int_equal(try_examine(&inputs, &reading, &err), BD_OK);
    bd_inputs_release(&inputs);
}

// An index is no input, whatever format was chosen, if its partner is one.
static void companions_of_a_token_file_are_passed_over(void **state)
{
    (void)state;
    static const char *const PAIRS[][2] = {
        {"corpus/a.bin", "corpus/a.idx"},
        {"corpus/b.ds", "corpus/b.ds.index"},
        {"corpus/c.npy", "corpus/c.csv.gz"},
    };
    static const char *const OPERANDS[] = {"corpus/c.csv.gz",   "corpus/a.idx",
                                           "corpus/a.bin",      "corpus/b.ds",
                                           "corpus/b.ds.index", "corpus/c.npy"};
    add_folder("corpus");
    for (size_t i = 0; i < COUNT(PAIRS); i++) {
        write_text(PAIRS[i][0], "");
        write_text(PAIRS[i][1], "");
    }
    bd_inputs inputs = collect(OPERANDS, COUNT(OPERANDS), &bd_text_kind);
    assert_names(&inputs, (const char *[]){"a.bin", "b.ds", "c.npy"}, 3);
    assert_int_equal(n_passed(&inputs, "index of another input", "c.csv.gz"), 3);
    bd_inputs_release(&inputs);

    write_text("corpus/alone.idx", "");
    const char *operand = "corpus";
    inputs = collect(&operand, 1, &bd_text_kind);
    assert_names(
        &inputs,
        (const char *[]){"corpus/a.bin", "corpus/alone.idx", "corpus/b.ds", "corpus/c.npy"}, 4);
    assert_int_equal(n_passed(&inputs, "index of another input", "corpus/a.idx"), 3);
    bd_inputs_release(&inputs);
}

// Metadata that datatrove writes beside an index is no input; elsewhere such a name means
// nothing.
static void metadata_of_tokens_is_passed_over(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "corpus/a.ds",       "corpus/a.ds.index", "corpus/a.ds.loss", "corpus/a.ds.metadata",
        "corpus/b.metadata", "corpus/c",          "corpus/c.loss",    "corpus/c.metadata"};
    add_folder("corpus");
    for (size_t i = 0; i < COUNT(NAMES); i++)
        write_text(NAMES[i], "gpt2|2\n100\n");
    const char *operand = "corpus";
    bd_inputs inputs = collect(&operand, 1, &bd_text_kind);
    assert_names(&inputs,
                 (const char *[]){"corpus/a.ds", "corpus/b.metadata", "corpus/c",
                                  "corpus/c.loss", "corpus/c.metadata"},
                 5);
    assert_int_equal(n_passed(&inputs, "index of another input", "corpus/a.ds.index"), 3);
    bd_inputs_release(&inputs);
}

// A dataset may lie beside its corpus; a folder that does not exist excludes nothing.
static void an_avoided_folder_is_not_entered(void **state)
{
    (void)state;
    static const char *const AVOIDED[] = {"corpus/out", "./corpus/../corpus/out/", "link"};
    add_folder("corpus");
    add_folder("corpus/out");
    write_text("corpus/a.txt", "");
    write_text("corpus/out/b.txt", "");
    assert_int_equal(symlink("corpus/out", "link"), 0);
    for (size_t i = 0; i < COUNT(AVOIDED); i++) {
        bd_inputs inputs = collect_with((bd_collect_options){.avoided = AVOIDED[i]});
        assert_names(&inputs, (const char *[]){"corpus/a.txt"}, 1);
        assert_int_equal(inputs.passed.n, 0);
        bd_inputs_release(&inputs);
    }
    bd_inputs inputs = collect_with((bd_collect_options){.avoided = "nowhere"});
    assert_names(&inputs, (const char *[]){"corpus/a.txt", "corpus/out/b.txt"}, 2);
    bd_inputs_release(&inputs);
}

static void a_folder_without_a_usable_file_is_refused(void **state)
{
    (void)state;
    const bd_input_options reading = reading_of(NULL);
    static const char *const MESSAGES[] = {
        "nothing to read in the folder 'corpus'",
        "nothing to read in the folder 'corpus', which holds: CSV without its text: 1 file, 3 "
        "B, such as "
        "'corpus/a.csv'",
    };
    add_folder("corpus");
    for (size_t i = 0; i < COUNT(MESSAGES); i++) {
        bd_inputs inputs = {.allow_skipped = true};
        bd_error err = {0};
        add_operand(&inputs, "corpus");
        assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_ARGUMENT);
        assert_string_equal(err.message, MESSAGES[i]);
        bd_inputs_release(&inputs);
        write_text("corpus/a.csv", "a,b");
    }
}

static void the_magic_of_a_table_is_believed_before_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *magic;
        size_t n;
        const bd_input_kind *format;
    } CASES[] = {{"PAR1", 4, &bd_parquet_kind},
                 {"ARROW1\0\0", 8, &bd_arrow_kind},
                 {"\xFF\xFF\xFF\xFF\x10\0\0\0\x0c\0\0\0", 12, &bd_arrow_stream_kind}};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        bd_inputs inputs = {0};
        bd_error err = {0};
        char message[200];
        const bd_input_options reading = reading_of(NULL);
        assert_true(write_gzip("a.txt", CASES[i].magic, CASES[i].n));
        add_operand(&inputs, "a.txt");
        assert_int_equal(try_examine(&inputs, &reading, &err), BD_ERR_UNSUPPORTED);
        snprintf(message, sizeof message,
                 "cannot read 'a.txt': a compressed %s file; decompress it first",
                 CASES[i].format->name);
        assert_string_equal(err.message, message);
        assert_ptr_equal(inputs.items[0].kind, CASES[i].format);
        bd_inputs_release(&inputs);
    }
}

// A folder behind a link is entered only if it was not entered before, so that loops end; a
// folder itself is always entered, and its files may have been met before.
static void links_are_followed_once(void **state)
{
    (void)state;
    add_folder("corpus");
    add_folder("corpus/z");
    add_folder("elsewhere");
    write_text("elsewhere/far.txt", "four");
    write_text("elsewhere/other.txt", "");
    write_text("corpus/z/deep.txt", "12");
    assert_int_equal(symlink("../elsewhere/far.txt", "corpus/a.txt"), 0);
    assert_int_equal(symlink("../elsewhere", "corpus/b"), 0);
    assert_int_equal(symlink("..", "corpus/c"), 0);  // out of it and back in
    assert_int_equal(symlink(".", "elsewhere/loop"), 0);
    assert_int_equal(symlink("z", "corpus/d"), 0);
    bd_inputs inputs = collect_one("corpus/");
    assert_names(
        &inputs,
        (const char *[]){"corpus/a.txt", "corpus/b/other.txt", "corpus/c/corpus/d/deep.txt"},
        3);
    // Links: b/loop, c/corpus/b, c/corpus/c, c/elsewhere/loop, d. Files: b/far.txt,
    // c/corpus/a.txt, c/corpus/z/deep.txt, two in c/elsewhere, z/deep.txt.
    assert_int_equal(n_passed(&inputs, "met before", "corpus/b/loop"), 5 + 6);
    bd_inputs_release(&inputs);

    inputs = collect_one("corpus/b");  // a link that was given by name is entered
    assert_names(&inputs, (const char *[]){"b/far.txt", "b/other.txt"}, 2);
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
    assert_int_equal(n_passed(&inputs, "not a regular file", "corpus/pipe.txt"), 1);
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
    assert_int_equal(symlink("c.txt", "corpus/c.txt"), 0);
    assert_refused("corpus/b.txt", BD_ERR_IO,
                   "cannot read 'corpus/b.txt': No such file or directory");
    bd_inputs inputs = collect_one("corpus");
    assert_names(&inputs, (const char *[]){"corpus/a.txt"}, 1);
    assert_int_equal(n_passed(&inputs, "dangling link", "corpus/b.txt"), 2);
    bd_inputs_release(&inputs);
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
    write_text("corpus/d[1].txt", "");  // a file with exactly this name is no pattern
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
    bd_input_options reading = reading_of(NULL);
    add_operand(&inputs, "-");
    assert_int_equal(
        bd_inputs_add(&inputs, "-", &(bd_collect_options){.source = "again"}, &err),
        BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "standard input can be read only once");
    assert_int_equal(inputs.n, 1);
    const bd_input *input = &inputs.items[0];
    assert_true(bd_input_is_stdin(input));

    // Standard input is not examined, so only the options can tell its format.
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_ptr_equal(input->kind, &bd_jsonl_kind);
    assert_string_equal(input->entry.name, "-");
    assert_int_equal(input->entry.size_bytes, BD_UNKNOWN);
    assert_int_equal(input->entry.weight, BD_UNKNOWN);
    assert_int_equal(input->entry.extent, BD_UNKNOWN);
    assert_int_equal(input->entry.stride, UNIT);
    assert_string_equal(input->edges.hex, "");
    bd_inputs_release(&inputs);

    add_operand(&inputs, "-");
    reading = reading_of(&bd_text_kind);
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_ptr_equal(inputs.items[0].kind, &bd_text_kind);
    assert_int_equal(inputs.items[0].entry.stride, 0);  // one document, whatever its size
    assert_int_equal(inputs.items[0].entry.n_starts, 1);
    bd_inputs_release(&inputs);

    add_operand(&inputs, "-");
    reading = reading_of(NULL);
    reading.delimiter = "%";
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_ptr_equal(inputs.items[0].kind, &bd_text_kind);
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
    assert_int_equal(
        bd_inputs_add(&inputs, "web", &(bd_collect_options){.source = source}, NULL), BD_OK);
    source[0] = '?';  // it was copied
    assert_int_equal(
        bd_inputs_add(&inputs, "c.txt", &(bd_collect_options){.source = "books"}, NULL), BD_OK);
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
        const bd_input_kind *format;
    } CASES[] = {
        {"a.txt", &bd_text_kind},
        {"a.txt.gz", &bd_text_kind},
        {"a.JSONL.GZ", &bd_jsonl_kind},
        {"a.json.gzip", &bd_jsonl_kind},
        {"a.ndjson.zst", &bd_jsonl_kind},  // a wrong ending, but one of a compression
        {"a", &bd_jsonl_kind},
        {"a.gz", &bd_jsonl_kind},
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
            assert_ptr_equal(input->kind, CASES[i].format);
            assert_ptr_equal(input->compression, compressed ? &bd_gzip : NULL);
            assert_string_equal(input->entry.compression, compressed ? "gzip" : "none");
            assert_string_equal(input->entry.format, CASES[i].format->name);
            assert_int_equal(input->entry.extent, strlen(LINE));
            bd_inputs_release(&inputs);
        }
    }
}

// Up to the size of a unit a compressed input is measured; beyond, only reading tells its size.
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
        bd_inputs inputs = collect(operands, 2, NULL);
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
        bd_input_options reading = reading_of(NULL);
        reading.delimiter = delimited ? "%" : NULL;
        add_operand(&inputs, "a.txt");
        add_operand(&inputs, "b.txt");
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
    const bd_input_options reading = reading_of(NULL);
    assert_true(write_gzip("a.jsonl.gz", "{}\n", 3));
    char *data = read_file("a.jsonl.gz", &n);
    write_file("a.jsonl.gz", data, n - 5);
    free(data);
    add_operand(&inputs, "a.jsonl.gz");
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
    bd_input_options reading = reading_of(NULL);
    reading.unit_bytes = 9;
    add_folder("corpus");
    write_raw("corpus/a.ds", IDS, COUNT(IDS), ENDS, COUNT(ENDS));
    add_operand(&inputs, "corpus");  // the index is no input of its own
    assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
    assert_names(&inputs, (const char *[]){"corpus/a.ds"}, 1);
    const bd_input *input = &inputs.items[0];
    assert_ptr_equal(input->kind, &bd_tokens_kind);
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
    bd_input_options reading = reading_of(NULL);
    memcpy(file, header, sizeof header);
    write_file("a.bin", file, sizeof file);
    for (int64_t unit_bytes = 1; unit_bytes <= 9; unit_bytes++) {
        bd_inputs inputs = {0};
        reading.unit_bytes = unit_bytes;
        add_operand(&inputs, "a.bin");
        assert_int_equal(try_examine(&inputs, &reading, NULL), BD_OK);
        const bd_input *input = &inputs.items[0];
        assert_ptr_equal(input->kind, &bd_llm_c_kind);
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
    bd_digest edges = {0};
    for (size_t i = 0; i < 2; i++) {
        bd_inputs inputs = collect_one(OPERANDS[i]);
        const bd_input *input = &inputs.items[0];
        assert_ptr_equal(input->kind, &bd_megatron_kind);
        assert_string_equal(input->entry.name, "a.bin");
        assert_string_equal(input->path, "a.bin");
        assert_int_equal(input->entry.size_bytes, 6);
        assert_int_equal(input->entry.extent, 1);
        if (i == 1)
            assert_string_equal(input->edges.hex, edges.hex);
        edges = input->edges;
        bd_inputs_release(&inputs);
    }
    bd_inputs inputs = collect(OPERANDS, 2, NULL);
    assert_names(&inputs, (const char *[]){"a.bin"}, 1);
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

// Tells whether the edges of the file change when its byte `at` does.
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

static void positions_have_a_word_for_what_they_count(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"text", "byte"},       {"csv", "byte"},         {"parquet", "row"},
        {"arrow", "row"},       {"arrow-stream", "row"}, {"megatron", "document"},
        {"tokens", "document"}, {"llm.c", "token"},      {"of a later version", "byte"},
        {"", "byte"},           {"parquet2", "byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(bd_position_unit(cases[i][0]), cases[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(folders_are_read_in_byte_order_of_their_entries),
        test_inside_folder(operands_stay_in_their_order),
        test_inside_folder(every_file_is_met_once),
        test_inside_folder(a_file_cannot_be_of_two_sources),
        test_inside_folder(names_begin_with_the_operands_last_name),
        test_inside_folder(names_that_begin_with_a_dot_are_left_out),
        test_inside_folder(content_tells_what_a_file_is),
        test_inside_folder(a_lone_object_without_the_text_is_no_corpus),
        test_inside_folder(other_encodings_are_text_where_they_are_allowed),
        test_inside_folder(a_given_format_takes_every_file_of_a_folder),
        test_inside_folder(patterns_choose_among_the_files_of_folders),
        test_inside_folder(most_of_a_folder_must_be_read),
        test_inside_folder(companions_of_a_token_file_are_passed_over),
        test_inside_folder(metadata_of_tokens_is_passed_over),
        test_inside_folder(an_avoided_folder_is_not_entered),
        test_inside_folder(a_folder_without_a_usable_file_is_refused),
        test_inside_folder(the_magic_of_a_table_is_believed_before_its_name),
        test_inside_folder(links_are_followed_once),
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
        cmocka_unit_test(positions_have_a_word_for_what_they_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
