// One line of JSONL: its text is UTF-8 and the one that another parser finds; and repairing a
// line does not change a valid one.
#include <string.h>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "packer/input/json_text.h"
#include "packer/input/records.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Makes a copy with the padding that a record has; the caller frees it.
static char *padded(const void *data, size_t size)
{
    char *record = malloc(size + BD_RECORD_PADDING);
    REQUIRE(record);
    memcpy(record, data, size);
    memset(record + size, 0, BD_RECORD_PADDING);
    return record;
}

typedef struct result {
    bd_status status;
    bd_json_problem problem;
    char *text;  // owned
    size_t n;
} result;

static result extract(const char *path, const char *record, size_t size)
{
    const char *text = NULL;
    bd_error err = {0};
    bd_json_text *parser = bd_json_text_new(path);
    REQUIRE(parser);
    result r = {0};
    r.status = bd_json_text_extract(parser, record, size, &text, &r.n, &r.problem, &err);
    REQUIRE((r.status == BD_OK) == (r.problem == BD_JSON_FINE));
    if (r.status == BD_OK) {
        REQUIRE(bd_utf8_valid_prefix(text, r.n) == r.n);
        r.text = padded(text, r.n);
    } else {
        REQUIRE(r.status == BD_ERR_FORMAT && err.message[0]);
    }
    bd_json_text_free(parser);
    return r;
}

// Jansson, which reads our own small files, accepts less than JSON allows (no NUL, no number
// beyond 64 bits): whatever it accepts must be accepted here, too, with two exceptions.
// simdjson's limit of nesting is 1000; and a NUL byte between two tokens is invalid, though
// Jansson skips it.
static bool other_parser_finds(const char *record, size_t size, bd_json **json,
                               const char **text)
{
    size_t depth = 0;
    for (size_t i = 0; i < size; i++)
        depth += record[i] == '[' || record[i] == '{';
    if (depth >= 1000 || memchr(record, '\0', size) ||
        bd_json_parse(record, size, json, NULL) != BD_OK)
        return false;
    return bd_json_get_string(*json, "text", text, NULL) == BD_OK;
}

static void check_against_other_parser(const char *record, size_t size)
{
    bd_json *json = NULL;
    const char *expected;
    result r = extract("text", record, size);
    if (other_parser_finds(record, size, &json, &expected)) {
        REQUIRE(r.status == BD_OK && r.n == strlen(expected));
        REQUIRE(memcmp(r.text, expected, r.n) == 0);
    }
    bd_json_free(json);
    free(r.text);
}

// Repairs as the packer does for --invalid-utf8 replace.
static void check_repair(const char *record, size_t size)
{
    char *repaired = malloc(bd_utf8_replaced_bound(size) + BD_RECORD_PADDING);
    REQUIRE(repaired);
    const size_t n = bd_utf8_replace(record, size, repaired);
    memset(repaired + n, 0, BD_RECORD_PADDING);
    bd_json_replace_surrogates(repaired, n);
    result before = extract("text", record, size), after = extract("text", repaired, n);
    REQUIRE(after.problem != BD_JSON_BAD_UTF8 && after.problem != BD_JSON_BAD_SURROGATE);
    if (before.status == BD_OK) {
        REQUIRE(n == size && memcmp(repaired, record, n) == 0);
        REQUIRE(after.status == BD_OK);
    }
    char *twice = padded(repaired, n);
    bd_json_replace_surrogates(twice, n);
    REQUIRE(memcmp(twice, repaired, n) == 0);
    free(twice);
    free(before.text);
    free(after.text);
    free(repaired);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *record = padded(data, size);
    check_against_other_parser(record, size);
    check_repair(record, size);
    result nested = extract("a.b", record, size);
    free(nested.text);
    free(record);
    return 0;
}
