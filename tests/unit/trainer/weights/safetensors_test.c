#include "trainer/weights/safetensors.h"

#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "common/base/json.h"
#include "tests/unit/temporary_folder.h"

// Writes a file with exactly this header, and `data_bytes` bytes 0, 1, 2, ...
static void write_raw(const char *path, const char *header, size_t data_bytes)
{
    const uint64_t n = strlen(header);
    const size_t size_bytes = sizeof n + n + data_bytes;
    unsigned char *bytes = malloc(size_bytes);
    assert_non_null(bytes);
    memcpy(bytes, &n, sizeof n);
    memcpy(bytes + sizeof n, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[sizeof n + n + i] = (unsigned char)i;
    write_file(path, bytes, size_bytes);
    free(bytes);
}

static void assert_refused(const char *path, bd_status status, const char *reason)
{
    bd_safetensors *file = (bd_safetensors *)&status;  // must be overwritten
    bd_error err = {0};
    const bd_status actual = bd_safetensors_open(&file, path, &err);
    if (actual != status || !strstr(err.message, reason) || !strstr(err.message, path))
        fail_msg("expected status %d and '%s', not %d and '%s'", status, reason, actual,
                 err.message);
    assert_null(file);
}

static bd_safetensors *opened(const char *path)
{
    bd_safetensors *file;
    bd_error err = {0};
    if (bd_safetensors_open(&file, path, &err) != BD_OK)
        fail_msg("%s", err.message);
    return file;
}

// ---- What we write --------------------------------------------------------------------------

static const float matrix[] = {1.5f, -0.0f, INFINITY, FLT_MIN / 4, -3.25f, 7.0f};
static const double numbers[] = {1.0 / 3, -2.0 / 3};
static const float single = 2.5f;

static const bd_tensor_view example_tensors[] = {
    {.name = "z.numbers",
     .dtype = BD_DTYPE_F64,
     .n_dimensions = 1,
     .shape = {2},
     .data = numbers},
    {.name = "a.matrix", .n_dimensions = 2, .shape = {3, 2}, .data = matrix},
    {.name = "nothing", .n_dimensions = 3, .shape = {4, 0, 9}, .data = NULL},
    {.name = "single", .n_dimensions = 0, .data = &single},
};
static const bd_safetensors_pair example_metadata[] = {{"format", "pt"},
                                                       {"who", "\"\\ \u00e9"}};
static const bd_safetensors_content example = {example_tensors, 4, example_metadata, 2};

static void written_file_is_read_back(void **state)
{
    const char *path = in(*state, "a.safetensors");
    assert_int_equal(bd_safetensors_write(path, &example, NULL, NULL), BD_OK);
    bd_safetensors *file = opened(path);
    assert_int_equal(bd_safetensors_count(file), 4);
    static const char *const names[] = {"a.matrix", "nothing", "single", "z.numbers"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(bd_safetensors_at(file, i)->name, names[i]);

    const bd_tensor_view *view = bd_safetensors_find(file, "a.matrix");
    assert_int_equal(view->dtype, BD_DTYPE_F32);
    assert_int_equal(view->n_dimensions, 2);
    assert_int_equal(view->shape[0], 3);
    assert_int_equal(view->shape[1], 2);
    assert_int_equal(view->n, 6);
    assert_memory_equal(view->data, matrix, sizeof matrix);
    view = bd_safetensors_find(file, "z.numbers");
    assert_int_equal(view->dtype, BD_DTYPE_F64);
    assert_memory_equal(view->data, numbers, sizeof numbers);
    assert_int_equal(bd_safetensors_find(file, "nothing")->n, 0);
    assert_int_equal(bd_safetensors_find(file, "single")->n, 1);
    assert_null(bd_safetensors_find(file, "a.matri"));
    assert_null(bd_safetensors_find(file, "__metadata__"));
    bd_safetensors_close(file);
    bd_safetensors_close(NULL);
}

static long peak_kilobytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void large_tensor_is_copied_whole_and_never_in_memory_twice(void **state)
{
    enum { N = (64 << 20) / sizeof(float) + 3 };
    const char *path = in(*state, "large.safetensors");
    float *values = malloc(N * sizeof *values), *copy = malloc(N * sizeof *copy);
    assert_non_null(values);
    assert_non_null(copy);
    for (int64_t i = 0; i < N; i++)
        values[i] = (float)i;
    memset(copy, 1, N * sizeof *copy);  // its memory is allocated
    const int64_t shape[] = {N};
    const bd_tensor_view view = {
        .name = "large", .n_dimensions = 1, .shape = {N}, .data = values};
    const bd_safetensors_content content = {&view, 1, NULL, 0};
    assert_int_equal(bd_safetensors_write(path, &content, NULL, NULL), BD_OK);

    bd_safetensors *file = opened(path);
    const long before = peak_kilobytes();
    assert_int_equal(bd_safetensors_copy_f32(file, "large", 1, shape, copy, NULL), BD_OK);
    // More than the piece that is copied at a time and what the system maps around it; far less
    // than the tensor.
    assert_true(peak_kilobytes() - before < 32 << 10);
    assert_memory_equal(copy, values, N * sizeof *copy);
    bd_safetensors_close(file);
    free(values);
    free(copy);
}

static void written_bytes_are_the_formats(void **state)
{
    const char *path = in(*state, "a.safetensors");
    const bd_safetensors_content content = {example_tensors + 3, 1, NULL, 0};
    assert_int_equal(bd_safetensors_write(path, &content, NULL, NULL), BD_OK);
    static const char expected[] =
        "\x40\0\0\0\0\0\0\0"
        "{\"single\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}      "
        "\x00\x00\x20\x40";
    size_t n;
    char *bytes = read_file(path, &n);
    assert_int_equal(n, sizeof expected - 1);
    assert_memory_equal(bytes, expected, n);
    free(bytes);
}

static void data_begins_at_a_multiple_of_8(void **state)
{
    const char *path = in(*state, "a.safetensors");
    for (int length = 1; length <= 16; length++) {
        char name[17] = "";
        memset(name, 'x', (size_t)length);
        const bd_tensor_view view = {.name = name,
                                     .dtype = BD_DTYPE_F64,
                                     .n_dimensions = 1,
                                     .shape = {2},
                                     .data = numbers};
        static const char text[] =
            "{\"x\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}";
        const bd_safetensors_content content = {&view, 1, NULL, 0};
        bd_safetensors_receipt receipt;
        assert_int_equal(bd_safetensors_write(path, &content, &receipt, NULL), BD_OK);
        assert_int_equal(receipt.size_bytes % 8, 0);
        const size_t unpadded = 8 + strlen(text) - 1 + (size_t)length + sizeof numbers;
        assert_in_range(receipt.size_bytes, unpadded, unpadded + 7);
        bd_safetensors *file = opened(path);
        assert_non_null(bd_safetensors_at(file, 0)->data);
        bd_safetensors_close(file);
    }
}

static void receipt_describes_the_file(void **state)
{
    const char *path = in(*state, "a.safetensors");
    enum { N = 700001 };  // more than two of the writer's pieces
    float *values = calloc(N, sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    const bd_tensor_view view = {.name = "x", .n_dimensions = 1, .shape = {N}, .data = values};
    const bd_safetensors_content content = {&view, 1, NULL, 0};
    bd_safetensors_receipt receipt;
    assert_int_equal(bd_safetensors_write(path, &content, &receipt, NULL), BD_OK);
    bd_digest digest;
    int64_t size_bytes;
    assert_int_equal(bd_digest_file(path, &digest, &size_bytes, NULL), BD_OK);
    assert_int_equal(receipt.size_bytes, size_bytes);
    assert_string_equal(receipt.digest.hex, digest.hex);
    bd_safetensors *file = opened(path);
    assert_memory_equal(bd_safetensors_at(file, 0)->data, values, N * sizeof *values);
    bd_safetensors_close(file);
    free(values);
}

static void bf16_is_written_as_it_lies(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const uint16_t halves[] = {0x3fc0, 0xc000, 0x8000};  // 1.5, -2, -0
    const bd_tensor_view view = {.name = "x",
                                 .dtype = BD_DTYPE_BF16,
                                 .n_dimensions = 2,
                                 .shape = {1, 3},
                                 .data = halves};
    const bd_safetensors_content content = {&view, 1, NULL, 0};
    assert_int_equal(bd_safetensors_write(path, &content, NULL, NULL), BD_OK);
    bd_safetensors *file = opened(path);
    assert_int_equal(bd_safetensors_at(file, 0)->dtype, BD_DTYPE_BF16);
    assert_memory_equal(bd_safetensors_at(file, 0)->data, halves, sizeof halves);
    bd_safetensors_close(file);
}

static void impossible_content_is_not_written(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const struct {
        bd_tensor_view view;
        bd_status status;
    } cases[] = {
        {{.name = "single", .data = &single}, BD_ERR_ARGUMENT},
        {{.name = "__metadata__", .data = &single}, BD_ERR_ARGUMENT},
        {{.name = "x", .n_dimensions = 1, .shape = {-1}, .data = &single}, BD_ERR_ARGUMENT},
        {{.name = "x", .n_dimensions = 2, .shape = {INT64_C(1) << 40, INT64_C(1) << 40}},
         BD_ERR_ARGUMENT},
        {{.name = "x", .dtype = BD_DTYPE_F16, .data = &single}, BD_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_tensor_view views[] = {example_tensors[3], cases[i].view};
        const bd_safetensors_content content = {views, 2, NULL, 0};
        assert_int_equal(bd_safetensors_write(path, &content, NULL, NULL), cases[i].status);
        assert_false(exists(path));
    }
}

static void write_that_fails_is_reported(void **state)
{
    const char *path = in(*state, "missing/a.safetensors");
    bd_error err;
    assert_int_equal(bd_safetensors_write(path, &example, NULL, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, path));

    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 320, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    path = in(*state, "a.safetensors");
    const bd_status status = bd_safetensors_write(path, &example, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, BD_ERR_IO);
    assert_refused(path, BD_ERR_FORMAT, "");  // a partly written file must not remain
}

// ---- What others write ----------------------------------------------------------------------

// Made by Python's safetensors 0.8.0.
static void file_of_the_reference_implementation_is_read(void **state)
{
    (void)state;
    bd_safetensors *file = opened(BINDERY_GOLDEN "/safetensors/python.safetensors");
    assert_int_equal(bd_safetensors_count(file), 9);
    float values[6];
    static const float expected_matrix[] = {-0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f};
    assert_int_equal(
        bd_safetensors_copy_f32(file, "matrix", 2, (int64_t[]){2, 3}, values, NULL), BD_OK);
    assert_memory_equal(values, expected_matrix, sizeof expected_matrix);
    static const float expected_vector[] = {INFINITY, -0.0f, 0x1p-149f, 3.5f, -1.0f};
    assert_int_equal(bd_safetensors_copy_f32(file, "vector", 1, (int64_t[]){5}, values, NULL),
                     BD_OK);
    assert_memory_equal(values, expected_vector, sizeof expected_vector);
    assert_int_equal(bd_safetensors_copy_f32(file, "scalar", 0, NULL, values, NULL), BD_OK);
    assert_true(values[0] == 2.5f);
    assert_int_equal(
        bd_safetensors_copy_f32(file, "na\u00efve", 1, (int64_t[]){1}, values, NULL), BD_OK);
    assert_true(values[0] == 7.0f);
    assert_int_equal(bd_safetensors_copy_f32(file, "empty", 2, (int64_t[]){0, 7}, values, NULL),
                     BD_OK);
    const double *doubles = bd_safetensors_find(file, "double")->data;
    assert_true(doubles[0] == 1.0 / 3 && doubles[1] == 2.0 / 3);
    assert_int_equal(bd_safetensors_find(file, "half")->dtype, BD_DTYPE_F16);
    assert_int_equal(bd_safetensors_convert(file, "half", 1, (int64_t[]){3}, values, NULL),
                     BD_OK);
    assert_true(values[0] == 1 && values[1] == 2 && values[2] == 3);
    assert_int_equal(bd_safetensors_convert(file, "vector", 1, (int64_t[]){5}, values, NULL),
                     BD_OK);
    assert_memory_equal(values, expected_vector, sizeof expected_vector);
    assert_int_equal(bd_safetensors_convert(file, "half", 1, (int64_t[]){3}, NULL, NULL),
                     BD_OK);
    assert_int_equal(bd_safetensors_convert(file, "half", 1, (int64_t[]){2}, values, NULL),
                     BD_ERR_FORMAT);
    assert_int_equal(bd_safetensors_convert(file, "double", 2, (int64_t[]){2, 1}, values, NULL),
                     BD_ERR_UNSUPPORTED);
    assert_int_equal(bd_safetensors_convert(file, "halves", 1, (int64_t[]){3}, values, NULL),
                     BD_ERR_FORMAT);
    assert_int_equal(bd_safetensors_find(file, "count")->dtype, BD_DTYPE_I64);
    assert_int_equal(bd_safetensors_find(file, "mask")->dtype, BD_DTYPE_BOOL);
    bd_safetensors_close(file);
}

static void misaligned_values_are_copied_but_not_pointed_at(void **state)
{
    const char *path = in(*state, "a.safetensors");
    const char *const headers[] = {
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}",
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"x\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[1,9]}}"};
    const unsigned char expected[] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int spaces = 0; spaces < 8; spaces++) {
        for (int i = 0; i < 2; i++) {
            char header[200];
            snprintf(header, sizeof header, "%s%*s", headers[i], spaces, "");
            write_raw(path, header, 9);
            bd_safetensors *file = opened(path);
            const bd_tensor_view *view = bd_safetensors_find(file, "x");
            const size_t start = 8 + strlen(header) + 1, size = i == 0 ? 4 : 8;
            if (start % size == 0)
                assert_memory_equal(view->data, expected, 8);
            else
                assert_null(view->data);
            assert_non_null(bd_safetensors_find(file, "b")->data);
            if (i == 0) {
                float values[2];
                assert_int_equal(
                    bd_safetensors_copy_f32(file, "x", 1, (int64_t[]){2}, values, NULL), BD_OK);
                assert_memory_equal(values, expected, 8);
            }
            bd_safetensors_close(file);
        }
    }
}

static void every_type_of_the_format_is_known_by_its_size(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const struct {
        const char *name;
        int bytes_of_4;
    } cases[] = {{"F32", 16},    {"F64", 32},    {"F16", 8},         {"BF16", 8},
                 {"I64", 32},    {"I32", 16},    {"I16", 8},         {"I8", 4},
                 {"U64", 32},    {"U32", 16},    {"U16", 8},         {"U8", 4},
                 {"BOOL", 4},    {"C64", 32},    {"F8_E4M3", 4},     {"F8_E5M2", 4},
                 {"F8_E8M0", 4}, {"F6_E2M3", 3}, {"F8_E4M3FNUZ", 4}, {"F8_E5M2FNUZ", 4},
                 {"F6_E3M2", 3}, {"F4", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int more = -1; more <= 1; more++) {
            const int n = cases[i].bytes_of_4 + more;
            char header[200];
            snprintf(header, sizeof header,
                     "{\"x\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%d]}}",
                     cases[i].name, n);
            write_raw(path, header, (size_t)n);
            if (more != 0) {
                assert_refused(path, BD_ERR_FORMAT, "tensor 'x': ");
                continue;
            }
            bd_safetensors *file = opened(path);
            assert_string_equal(bd_dtype_name(bd_safetensors_at(file, 0)->dtype),
                                cases[i].name);
            float values[4];
            const bd_status status =
                bd_safetensors_copy_f32(file, "x", 1, (int64_t[]){4}, values, NULL);
            assert_int_equal(status, i == 0 ? BD_OK : BD_ERR_UNSUPPORTED);
            bd_safetensors_close(file);
        }
    }
}

static void copy_that_does_not_fit_says_why(void **state)
{
    const char *path = in(*state, "a.safetensors");
    assert_int_equal(bd_safetensors_write(path, &example, NULL, NULL), BD_OK);
    bd_safetensors *file = opened(path);
    bd_error err;
    float values[6] = {9, 9, 9, 9, 9, 9};
    const int64_t right[] = {3, 2}, turned[] = {2, 3}, flat[] = {6}, more[] = {3, 2, 1};
    char expected[5000];

    snprintf(expected, sizeof expected, "'%s' has no tensor 'b'", path);
    assert_int_equal(bd_safetensors_copy_f32(file, "b", 2, right, values, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, expected);

    snprintf(expected, sizeof expected,
             "tensor 'a.matrix' of '%s' has the shape [3, 2] instead of [2, 3]", path);
    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 2, turned, values, &err),
                     BD_ERR_FORMAT);
    assert_string_equal(err.message, expected);
    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 1, flat, values, NULL),
                     BD_ERR_FORMAT);
    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 3, more, values, NULL),
                     BD_ERR_FORMAT);
    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 0, NULL, values, NULL),
                     BD_ERR_FORMAT);
    assert_int_equal(bd_safetensors_copy_f32(file, "single", 1, (int64_t[]){0}, values, NULL),
                     BD_ERR_FORMAT);

    snprintf(expected, sizeof expected, "tensor 'z.numbers' of '%s' is F64, not F32", path);
    assert_int_equal(
        bd_safetensors_copy_f32(file, "z.numbers", 1, (int64_t[]){2}, values, &err),
        BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, expected);
    for (int i = 0; i < 6; i++)
        assert_true(values[i] == 9);

    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 2, right, NULL, NULL), BD_OK);
    assert_int_equal(bd_safetensors_copy_f32(file, "a.matrix", 2, right, values, NULL), BD_OK);
    assert_memory_equal(values, matrix, sizeof matrix);
    bd_safetensors_close(file);
}

// ---- What is wrong --------------------------------------------------------------------------

#define X(dtype, shape, begin, end) \
    "\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define Y(begin, end) \
    "\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" begin "," end "]}"

static void hostile_header_is_refused(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *reason;
        bd_status status;
    } cases[] = {
        // Not a header.
        {"", 0, "not a JSON object", BD_ERR_FORMAT},
        {"[]", 0, "not a JSON object", BD_ERR_FORMAT},
        {" {}", 0, "not a JSON object", BD_ERR_FORMAT},
        {"{", 0, "not valid JSON", BD_ERR_FORMAT},
        {"{} x", 0, "not valid JSON", BD_ERR_FORMAT},
        {"{\"\xFF\":1}", 0, "not valid JSON", BD_ERR_FORMAT},
        {"{\"a\\u0000b\":1}", 0, "not valid JSON", BD_ERR_FORMAT},
        // Not entries.
        {"{\"x\":1}", 0, "tensor 'x': 'dtype'", BD_ERR_FORMAT},
        {"{\"x\":{}}", 0, "'dtype' is not a string", BD_ERR_FORMAT},
        {"{\"x\":{\"dtype\":\"F32\"}}", 0, "'shape' is not an array", BD_ERR_FORMAT},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "'data_offsets' is not an array",
         BD_ERR_FORMAT},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, "are not two",
         BD_ERR_FORMAT},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,4]}}", 4, "are not two",
         BD_ERR_FORMAT},
        {"{" X("F31", "[2]", "0", "8") "}", 8, "unknown type 'F31'", BD_ERR_FORMAT},
        {"{" X("f32", "[2]", "0", "8") "}", 8, "unknown type 'f32'", BD_ERR_FORMAT},
        // Shapes.
        {"{" X("F32", "[-2]", "0", "8") "}", 8, "'shape[0]'", BD_ERR_FORMAT},
        {"{" X("F32", "[-1,-2]", "0", "8") "}", 8, "'shape[0]'", BD_ERR_FORMAT},
        {"{" X("F32", "[1,2.0]", "0", "8") "}", 8, "'shape[1]'", BD_ERR_FORMAT},
        {"{" X("F32", "[\"2\"]", "0", "8") "}", 8, "'shape[0]'", BD_ERR_FORMAT},
        {"{" X("F32", "[3]", "0", "8") "}", 8, "8 bytes for a shape of 12", BD_ERR_FORMAT},
        {"{" X("F64", "[2]", "0", "8") "}", 8, "8 bytes for a shape of 16", BD_ERR_FORMAT},
        {"{" X("F32", "[9223372036854775808]", "0", "8") "}", 8, "not valid JSON",
         BD_ERR_FORMAT},
        {"{" X("F32", "[4294967296,4294967296]", "0", "0") "}", 0, "impossible", BD_ERR_FORMAT},
        {"{" X("F32", "[4611686018427387906]", "0", "8") "}", 8, "impossible", BD_ERR_FORMAT},
        {"{" X("U8", "[1152921504606846977]", "0", "1") "}", 1, "impossible", BD_ERR_FORMAT},
        {"{" X("F4", "[3]", "0", "1") "}", 1, "impossible", BD_ERR_FORMAT},
        {"{" X("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "9 dimensions",
         BD_ERR_UNSUPPORTED},
        // Offsets.
        {"{" X("F32", "[2]", "-8", "0") "}", 8, "'data_offsets'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "8", "0") "}", 8, "'data_offsets'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "4", "12") "}", 8, "'data_offsets'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "9223372036854775800", "9223372036854775807") "}", 8,
         "'data_offsets'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "0.0", "8") "}", 8, "'data_offsets'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "null", "8") "}", 8, "'data_offsets'", BD_ERR_FORMAT},
        // Coverage.
        {"{" X("F32", "[2]", "0", "8") "," Y("4", "12") "}", 12, "'y' overlaps", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "0", "8") "," Y("0", "8") "}", 8, "overlaps", BD_ERR_FORMAT},
        {"{" X("F32", "[0]", "4", "4") "," Y("0", "8") "}", 8, "'x' overlaps", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "12", "20") "," Y("0", "8") "}", 20,
         "4 bytes before tensor 'x' belong to none", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "1", "9") "}", 9, "1 bytes before tensor 'x'", BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "0", "8") "}", 9, "last 1 bytes belong to no tensor",
         BD_ERR_FORMAT},
        {"{}", 1, "last 1 bytes belong to no tensor", BD_ERR_FORMAT},
        // Names and metadata.
        {"{" X("F32", "[2]", "0", "8") "," X("F32", "[2]", "8", "16") "}", 16, "not valid JSON",
         BD_ERR_FORMAT},
        {"{" X("F32", "[2]", "0", "8") ",\"\\u0078\":{}}", 8, "not valid JSON", BD_ERR_FORMAT},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "not valid JSON", BD_ERR_FORMAT},
        {"{\"__metadata__\":[]}", 0, "'__metadata__' is not an object", BD_ERR_FORMAT},
        {"{\"__metadata__\":{\"a\":\"\",\"b\":1}}", 0, "'__metadata__': 'b'", BD_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_raw(path, cases[i].header, cases[i].data_bytes);
        assert_refused(path, cases[i].status, cases[i].reason);
    }
}

// Similar to the cases above but valid, so that none of those is refused for another reason.
static void unusual_header_is_accepted(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const struct {
        const char *header;
        size_t data_bytes;
        size_t n;
    } cases[] = {
        {"{}", 0, 0},
        {"{}    ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{" X("F32", "[2]", "0", "8") "}", 8, 1},
        {"{" X("F32", "[2]", "8", "16") "," Y("0", "8") "}", 16, 2},
        {"{" X("F32", "[0]", "0", "0") "," Y("0", "8") "}", 8, 2},
        {"{" X("F32", "[0]", "8", "8") "," Y("0", "8") "}", 8, 2},
        {"{" X("F32", "[0,9223372036854775807,4]", "0", "0") "}", 0, 1},
        {"{" X("F32", "[1,1,1,1,1,1,1,2]", "0", "8") "}", 8, 1},
        {"{" X("F4", "[4]", "0", "2") "}", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_raw(path, cases[i].header, cases[i].data_bytes);
        bd_safetensors *file = opened(path);
        assert_int_equal(bd_safetensors_count(file), cases[i].n);
        bd_safetensors_close(file);
    }
}

static void length_that_lies_is_refused(void **state)
{
    const char *path = in(*state, "a.safetensors");
    static const struct {
        uint64_t length;
        const char *reason;
    } cases[] = {
        {3, "cut short: its header alone has 3 bytes"},
        {100000000, "cut short: its header alone has 100000000 bytes"},
        {100000001, "a header of 100000001 bytes, more than 100000000"},
        {UINT64_MAX, "a header of 18446744073709551615 bytes"},
        {UINT64_MAX - 7, "a header of 18446744073709551608 bytes"},
        {1, "not valid JSON"},
        {0, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        memcpy(bytes, &cases[i].length, 8);
        write_file(path, bytes, sizeof bytes);
        assert_refused(path, BD_ERR_FORMAT, cases[i].reason);
    }
}

static void file_cut_anywhere_is_refused(void **state)
{
    const char *path = in(*state, "a.safetensors"), *cut = in(*state, "cut.safetensors");
    assert_int_equal(bd_safetensors_write(path, &example, NULL, NULL), BD_OK);
    size_t n;
    char *bytes = read_file(path, &n);
    write_file(cut, bytes, n);
    for (size_t size = n; size-- > 0;) {
        assert_int_equal(truncate(cut, (off_t)size), 0);
        assert_refused(cut, BD_ERR_FORMAT,
                       size < 8 ? "too few for the format" : "cannot use '");
    }
    free(bytes);
    assert_refused(*state, BD_ERR_IO, "it is a folder");
    assert_refused(in(*state, "missing"), BD_ERR_IO, "cannot open '");
}

// The promises about an open file's tensors hold, and copying them stays inside it.
static void assert_copies_fit(const bd_safetensors *file, size_t file_bytes)
{
    for (size_t t = 0; t < bd_safetensors_count(file); t++) {
        const bd_tensor_view *view = bd_safetensors_at(file, t);
        if (view->dtype != BD_DTYPE_F32)
            continue;
        assert_in_range(view->n, 0, (file_bytes - 8) / sizeof(float));
        float *values = malloc((size_t)view->n * sizeof *values + 1);
        assert_non_null(values);
        assert_int_equal(bd_safetensors_copy_f32(file, view->name, view->n_dimensions,
                                                 view->shape, values, NULL),
                         BD_OK);
        if (view->data)
            assert_memory_equal(values, view->data, (size_t)view->n * sizeof *values);
        free(values);
    }
}

// No single changed byte of a header makes the reader access invalid memory; sanitizers watch.
static void every_changed_byte_is_survived(void **state)
{
    const char *path = in(*state, "a.safetensors");
    assert_int_equal(bd_safetensors_write(path, &example, NULL, NULL), BD_OK);
    size_t n;
    char *bytes = read_file(path, &n);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    static const unsigned char flips[] = {0x01, 0x02, 0x04, 0x10, 0x20, 0x80, 0xFF};
    int n_opened = 0, n_refused = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t f = 0; f < sizeof flips; f++) {
            const char changed = (char)(bytes[i] ^ flips[f]);
            assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
            bd_safetensors *file;
            if (bd_safetensors_open(&file, path, NULL) != BD_OK) {
                n_refused++;
                continue;
            }
            n_opened++;
            assert_copies_fit(file, n);
            bd_safetensors_close(file);
        }
        assert_int_equal(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
    }
    close(fd);
    free(bytes);
    assert_true(n_refused > 500 && n_opened > 300);
}

// ---- The JSON cursor that the reader uses ---------------------------------------------------

static void members_come_in_their_order(void **state)
{
    (void)state;
    static const char text[] = "{\"b\":1,\"a\":{\"x\":2},\"\":3}";
    static const char *const keys[] = {"b", "a", ""};
    bd_json *json;
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    size_t n = 0;
    for (bd_json_member m = bd_json_first(json); m.key; m = bd_json_next(json, m), n++) {
        assert_true(n < 3);
        assert_string_equal(m.key, keys[n]);
        assert_non_null(m.value);
    }
    assert_int_equal(n, 3);
    bd_json_free(json);
    assert_int_equal(bd_json_parse("[1]", 3, &json, NULL), BD_OK);
    assert_null(bd_json_first(json).key);
    assert_null(bd_json_first(NULL).key);
    bd_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(written_file_is_read_back),
        test_in_folder(large_tensor_is_copied_whole_and_never_in_memory_twice),
        test_in_folder(written_bytes_are_the_formats),
        test_in_folder(data_begins_at_a_multiple_of_8),
        test_in_folder(receipt_describes_the_file),
        test_in_folder(bf16_is_written_as_it_lies),
        test_in_folder(impossible_content_is_not_written),
        test_in_folder(write_that_fails_is_reported),
        cmocka_unit_test(file_of_the_reference_implementation_is_read),
        test_in_folder(misaligned_values_are_copied_but_not_pointed_at),
        test_in_folder(every_type_of_the_format_is_known_by_its_size),
        test_in_folder(copy_that_does_not_fit_says_why),
        test_in_folder(hostile_header_is_refused),
        test_in_folder(unusual_header_is_accepted),
        test_in_folder(length_that_lies_is_refused),
        test_in_folder(file_cut_anywhere_is_refused),
        test_in_folder(every_changed_byte_is_survived),
        cmocka_unit_test(members_come_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
