#include "packer/inputs.h"

#include <fcntl.h>

#include "tests/unit/temporary_folder.h"

enum { MIB = 1 << 20 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bd_inputs collect(const char *const *operands, size_t n, bd_format_choice choice)
{
    bd_inputs inputs;
    bd_error err = {0};
    if (bd_inputs_collect(&inputs, operands, n, choice, &err) != BD_OK)
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
        assert_string_equal(inputs->items[i].name, names[i]);
}

static void assert_refused(const char *operand, bd_status status, const char *message)
{
    bd_inputs inputs;
    bd_error err = {0};
    assert_int_equal(bd_inputs_collect(&inputs, &operand, 1, BD_FORMAT_AUTO, &err), status);
    assert_string_equal(err.message, message);
    assert_null(inputs.items);
    assert_int_equal(inputs.n, 0);
    bd_inputs_release(&inputs);
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
        assert_int_equal(inputs.items[i].size_bytes, i);
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

static void a_folder_without_a_usable_file_is_refused(void **state)
{
    (void)state;
    add_folder("corpus");
    assert_refused("corpus", BD_ERR_ARGUMENT, "no .txt or .jsonl file in 'corpus'");
    write_text("corpus/a.csv", "");
    assert_refused("corpus", BD_ERR_ARGUMENT, "no .txt or .jsonl file in 'corpus'");
}

static void an_unknown_ending_given_by_name_is_refused(void **state)
{
    (void)state;
    write_text("a.csv", "");
    assert_refused("a.csv", BD_ERR_ARGUMENT,
                   "cannot tell the format of 'a.csv' from its name: give --format text or "
                   "jsonl");
    const char *operand = "a.csv";
    bd_inputs inputs = collect(&operand, 1, BD_FORMAT_TEXT);
    assert_names(&inputs, (const char *[]){"a.csv"}, 1);
    assert_int_equal(inputs.items[0].format, BD_INPUT_TEXT);
    bd_inputs_release(&inputs);
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
    assert_int_equal(inputs.items[0].size_bytes, 4);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(folders_are_read_in_byte_order_of_their_entries),
        test_inside_folder(operands_stay_in_their_order),
        test_inside_folder(names_begin_with_the_operands_last_name),
        test_inside_folder(names_that_begin_with_a_dot_are_left_out),
        test_inside_folder(unknown_endings_in_folders_are_skipped_and_counted),
        test_inside_folder(a_folder_without_a_usable_file_is_refused),
        test_inside_folder(an_unknown_ending_given_by_name_is_refused),
        test_inside_folder(links_to_files_are_followed_and_links_to_folders_are_not),
        test_inside_folder(pipes_are_never_opened),
        test_inside_folder(a_missing_file_is_named),
        test_inside_folder(edges_are_the_first_and_the_last_mib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
