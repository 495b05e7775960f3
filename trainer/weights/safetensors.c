#include "trainer/weights/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/interrupt.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are copied without swapping bytes");

enum {
    LENGTH_BYTES = sizeof(uint64_t),
    MAX_HEADER_BYTES = 100000000,  // the reference implementation's limit
    HEADER_ALIGNMENT = 8,
};

static const char metadata_key[] = "__metadata__";

// Computes a tensor's elements and bytes; false if they are negative, overflow or do not fill
// whole bytes.
static bool measure_tensor(const bd_tensor_view *view, int64_t *n, int64_t *size_bytes)
{
    int64_t bits;
    *n = 1;
    for (int d = 0; d < view->n_dimensions; d++)
        if (view->shape[d] < 0 || !bd_int64_mul(*n, view->shape[d], n))
            return false;
    if (!bd_int64_mul(*n, bd_dtype_bits(view->dtype), &bits) || bits % 8 != 0)
        return false;
    *size_bytes = bits / 8;
    return true;
}

// ---- Reading ----------------------------------------------------------------------

typedef struct tensor {
    bd_tensor_view view;
    int64_t begin, end;          // in the data
    const unsigned char *bytes;  // into the mapping, aligned or not
} tensor;

struct bd_safetensors {
    bd_mapped_file file;  // owned
    char *path;           // owned
    bd_json *header;      // owned; names and metadata point into it
    tensor *tensors;      // [n], owned, in the order of their names
    size_t n;
};

static bd_status parse_shape(bd_tensor_view *view, const bd_json *json, bd_error *err)
{
    const bd_json *shape;
    BD_TRY(bd_json_get_array(json, "shape", &shape, err));
    const size_t n = bd_json_length(shape);
    if (n > BD_TENSOR_DIMENSIONS)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "%zu dimensions, more than %d", n,
                       BD_TENSOR_DIMENSIONS);
    view->n_dimensions = (int)n;
    for (size_t d = 0; d < n; d++) {
        const bd_status status =
            bd_json_as_integer(bd_json_at(shape, d), 0, INT64_MAX, &view->shape[d], err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'shape[%zu]'", d);
    }
    return BD_OK;
}

static bd_status parse_offsets(tensor *t, const bd_json *json, int64_t data_bytes,
                               bd_error *err)
{
    const bd_json *offsets;
    BD_TRY(bd_json_get_array(json, "data_offsets", &offsets, err));
    if (bd_json_length(offsets) != 2)
        return bd_fail(err, BD_ERR_FORMAT, "'data_offsets' are not two");
    bd_status status =
        bd_json_as_integer(bd_json_at(offsets, 0), 0, data_bytes, &t->begin, err);
    if (status == BD_OK)
        status = bd_json_as_integer(bd_json_at(offsets, 1), t->begin, data_bytes, &t->end, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'data_offsets'");
}

static bd_status parse_tensor(tensor *t, const bd_json *json, const unsigned char *data,
                              int64_t data_bytes, bd_error *err)
{
    bd_tensor_view *view = &t->view;
    const char *type;
    int64_t size_bytes;
    BD_TRY(bd_json_get_string(json, "dtype", &type, err));
    if (!bd_dtype_from_name(&view->dtype, type))
        return bd_fail(err, BD_ERR_FORMAT, "unknown type '%.20s'", type);
    BD_TRY(parse_shape(view, json, err));
    BD_TRY(parse_offsets(t, json, data_bytes, err));
    if (!measure_tensor(view, &view->n, &size_bytes))
        return bd_fail(err, BD_ERR_FORMAT, "its shape is impossible");
    if (size_bytes != t->end - t->begin)
        return bd_fail(err, BD_ERR_FORMAT, "%" PRId64 " bytes for a shape of %" PRId64,
                       t->end - t->begin, size_bytes);
    t->bytes = data + t->begin;
    const int bits = bd_dtype_bits(view->dtype);
    const uintptr_t alignment = bits < 8 ? 1 : (uintptr_t)bits / 8;
    view->data = (uintptr_t)t->bytes % alignment == 0 ? t->bytes : NULL;
    return BD_OK;
}

static bd_status check_metadata(const bd_json *header, bd_error *err)
{
    const bd_json *metadata;
    const char *value;
    BD_TRY(bd_json_get_object(header, metadata_key, &metadata, err));
    for (bd_json_member m = bd_json_first(metadata); m.key; m = bd_json_next(metadata, m)) {
        const bd_status status = bd_json_get_string(metadata, m.key, &value, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'%s'", metadata_key);
    }
    return BD_OK;
}

static bd_status parse_members(bd_safetensors *file, const unsigned char *data,
                               int64_t data_bytes, bd_error *err)
{
    size_t n = 0;
    for (bd_json_member m = bd_json_first(file->header); m.key;
         m = bd_json_next(file->header, m))
        n++;
    file->tensors = calloc(n + 1, sizeof *file->tensors);
    if (!file->tensors)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for its header");
    for (bd_json_member m = bd_json_first(file->header); m.key;
         m = bd_json_next(file->header, m)) {
        if (strcmp(m.key, metadata_key) == 0) {
            BD_TRY(check_metadata(file->header, err));
            continue;
        }
        tensor *t = &file->tensors[file->n++];
        t->view.name = m.key;
        const bd_status status = parse_tensor(t, m.value, data, data_bytes, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "tensor '%.80s'", m.key);
    }
    return BD_OK;
}

static int compare_tensor_offsets(const void *left, const void *right)
{
    const tensor *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static int compare_tensor_names(const void *left, const void *right)
{
    const tensor *a = left, *b = right;
    return strcmp(a->view.name, b->view.name);
}

static bd_status check_coverage(const bd_safetensors *file, int64_t data_bytes, bd_error *err)
{
    int64_t covered = 0;
    for (size_t i = 0; i < file->n; i++) {
        const tensor *t = &file->tensors[i];
        if (t->begin < covered)
            return bd_fail(err, BD_ERR_FORMAT, "tensor '%.80s' overlaps another", t->view.name);
        if (t->begin > covered)
            return bd_fail(err, BD_ERR_FORMAT,
                           "%" PRId64 " bytes before tensor '%.80s' belong to none",
                           t->begin - covered, t->view.name);
        covered = t->end;
    }
    if (covered != data_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "its last %" PRId64 " bytes belong to no tensor",
                       data_bytes - covered);
    return BD_OK;
}

static bd_status parse_file(bd_safetensors *file, bd_error *err)
{
    const unsigned char *bytes = file->file.data;
    const size_t size_bytes = file->file.size_bytes;
    uint64_t header_bytes;
    if (size_bytes < LENGTH_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "%zu bytes are too few for the format", size_bytes);
    memcpy(&header_bytes, bytes, LENGTH_BYTES);
    if (header_bytes > MAX_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "a header of %" PRIu64 " bytes, more than %d",
                       header_bytes, MAX_HEADER_BYTES);
    if (header_bytes > size_bytes - LENGTH_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "cut short: its header alone has %" PRIu64 " bytes",
                       header_bytes);
    const char *text = (const char *)bytes + LENGTH_BYTES;
    if (header_bytes == 0 || text[0] != '{')
        return bd_fail(err, BD_ERR_FORMAT, "its header is not a JSON object");
    const bd_status status = bd_json_parse(text, (size_t)header_bytes, &file->header, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "its header is not valid JSON");

    const unsigned char *data = bytes + LENGTH_BYTES + header_bytes;
    const int64_t data_bytes = (int64_t)(size_bytes - LENGTH_BYTES - header_bytes);
    BD_TRY(parse_members(file, data, data_bytes, err));
    qsort(file->tensors, file->n, sizeof *file->tensors, compare_tensor_offsets);
    BD_TRY(check_coverage(file, data_bytes, err));
    qsort(file->tensors, file->n, sizeof *file->tensors, compare_tensor_names);
    return BD_OK;
}

bd_status bd_safetensors_open(bd_safetensors **file, const char *path, bd_error *err)
{
    *file = NULL;
    bd_safetensors *opened = calloc(1, sizeof *opened);
    char *copy = strdup(path);
    if (!opened || !copy) {
        free(opened);
        free(copy);
        return bd_fail(err, BD_ERR_MEMORY, "no memory to open '%s'", path);
    }
    opened->path = copy;
    bd_status status = bd_mapped_file_open(&opened->file, path, err);
    if (status == BD_OK) {
        status = parse_file(opened, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "cannot use '%s'", path);
    }
    if (status == BD_OK)
        *file = opened;
    else
        bd_safetensors_close(opened);
    return status;
}

void bd_safetensors_close(bd_safetensors *file)
{
    if (!file)
        return;
    bd_mapped_file_close(&file->file);
    bd_json_free(file->header);
    free(file->tensors);
    free(file->path);
    free(file);
}

const char *bd_safetensors_path(const bd_safetensors *file)
{
    return file->path;
}

size_t bd_safetensors_count(const bd_safetensors *file)
{
    return file->n;
}

const bd_tensor_view *bd_safetensors_at(const bd_safetensors *file, size_t index)
{
    return &file->tensors[index].view;
}

static const tensor *find_tensor(const bd_safetensors *file, const char *name)
{
    const tensor wanted = {.view.name = name};
    return bsearch(&wanted, file->tensors, file->n, sizeof *file->tensors,
                   compare_tensor_names);
}

const bd_tensor_view *bd_safetensors_find(const bd_safetensors *file, const char *name)
{
    const tensor *t = find_tensor(file, name);
    return t ? &t->view : NULL;
}

// "[768, 3072]"
typedef struct shape_text {
    char text[24 * BD_TENSOR_DIMENSIONS];
} shape_text;

static shape_text print_shape(int n_dimensions, const int64_t *shape)
{
    shape_text printed = {"["};
    size_t used = 1;
    for (int d = 0; d < n_dimensions; d++)
        used += (size_t)snprintf(printed.text + used, sizeof printed.text - used, "%s%" PRId64,
                                 d > 0 ? ", " : "", shape[d]);
    snprintf(printed.text + used, sizeof printed.text - used, "]");
    return printed;
}

// Copies bytes of a tensor piece by piece and releases the file's pages after each, so that at
// most one piece is in memory twice.
static void copy_bytes(const bd_safetensors *file, const uint8_t *bytes, size_t n, void *to)
{
    enum { PIECE_BYTES = 8 << 20 };
    for (size_t done = 0; done < n; done += PIECE_BYTES) {
        const size_t piece = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        memcpy((uint8_t *)to + done, bytes + done, piece);
        bd_mapped_file_forget(&file->file, bytes + done, piece);
    }
}

// Finds a tensor by name and checks its shape, not its type.
static bd_status find_shape(const bd_safetensors *file, const bd_tensor_view *wanted,
                            const tensor **found, bd_error *err)
{
    const tensor *t = find_tensor(file, wanted->name);
    if (!t)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' has no tensor '%s'", file->path, wanted->name);
    const bd_tensor_view *view = &t->view;
    if (view->n_dimensions != wanted->n_dimensions ||
        memcmp(view->shape, wanted->shape, sizeof view->shape) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "tensor '%s' of '%s' has the shape %s instead of %s",
                       wanted->name, file->path,
                       print_shape(view->n_dimensions, view->shape).text,
                       print_shape(wanted->n_dimensions, wanted->shape).text);
    *found = t;
    return BD_OK;
}

static bd_tensor_view wanted_view(const char *name, int n_dimensions, const int64_t *shape)
{
    bd_tensor_view wanted = {.name = name, .n_dimensions = n_dimensions};
    for (int d = 0; d < n_dimensions; d++)
        wanted.shape[d] = shape[d];
    return wanted;
}

// A tensor of floats of this shape.
static bd_status find_floats(const bd_safetensors *file, const char *name, int n_dimensions,
                             const int64_t *shape, const tensor **found, bd_error *err)
{
    const bd_tensor_view wanted = wanted_view(name, n_dimensions, shape);
    BD_TRY(find_shape(file, &wanted, found, err));
    const bd_dtype dtype = (*found)->view.dtype;
    if (dtype != BD_DTYPE_F32)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "tensor '%s' of '%s' is %s, not F32", name,
                       file->path, bd_dtype_name(dtype));
    return BD_OK;
}

bd_status bd_safetensors_copy_f32(const bd_safetensors *file, const char *name,
                                  int n_dimensions, const int64_t *shape, float *to,
                                  bd_error *err)
{
    const tensor *t;
    BD_TRY(find_floats(file, name, n_dimensions, shape, &t, err));
    if (to)
        copy_bytes(file, t->bytes, (size_t)(t->end - t->begin), to);
    return BD_OK;
}

bd_status bd_safetensors_copy_some_f32(const bd_safetensors *file, const char *name,
                                       int n_dimensions, const int64_t *shape, int64_t first,
                                       int64_t n, float *to, bd_error *err)
{
    const tensor *t;
    BD_TRY(find_floats(file, name, n_dimensions, shape, &t, err));
    assert(0 <= first && 0 <= n && first + n <= t->view.n);
    copy_bytes(file, t->bytes + first * (int64_t)sizeof *to, (size_t)n * sizeof *to, to);
    return BD_OK;
}

bd_status bd_safetensors_convert(const bd_safetensors *file, const char *name, int n_dimensions,
                                 const int64_t *shape, float *to, bd_error *err)
{
    const bd_tensor_view wanted = wanted_view(name, n_dimensions, shape);
    const tensor *t;
    BD_TRY(find_shape(file, &wanted, &t, err));
    if (!bd_dtype_to_floats(t->view.dtype, t->bytes, to ? t->view.n : 0, to))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "tensor '%s' of '%s' is %s, not F32, F16 or BF16", name, file->path,
                       bd_dtype_name(t->view.dtype));
    if (to)
        bd_mapped_file_forget(&file->file, t->bytes, (size_t)(t->end - t->begin));
    return BD_OK;
}

bd_status bd_tensor_check_finite(const bd_safetensors *file, const char *name,
                                 const float *numbers, int64_t n, bd_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(numbers[i]))
            return bd_fail(err, BD_ERR_FORMAT,
                           "tensor '%s' of '%s' is not finite: number %" PRId64 " is %g", name,
                           bd_safetensors_path(file), i, (double)numbers[i]);
    return BD_OK;
}

// ---- Writing ----------------------------------------------------------------------

// Adds the tensor's entry; its data begins at *offset, which then moves past it.
static bd_status set_tensor(bd_json *header, const bd_tensor_view *view, int64_t *offset,
                            bd_error *err)
{
    int64_t n, size_bytes, end;
    if (view->dtype != BD_DTYPE_F32 && view->dtype != BD_DTYPE_F64 &&
        view->dtype != BD_DTYPE_BF16)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "cannot write tensor '%s' as %s", view->name,
                       bd_dtype_name(view->dtype));
    if (!bd_json_is_null(header, view->name) || strcmp(view->name, metadata_key) == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot write tensor '%s': the name is taken",
                       view->name);
    if (!measure_tensor(view, &n, &size_bytes) || !bd_int64_add(*offset, size_bytes, &end))
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot write tensor '%s': it is too large",
                       view->name);
    bd_json *tensor_json = bd_json_object(), *shape = bd_json_array();
    bd_json *offsets = bd_json_array();
    for (int d = 0; d < view->n_dimensions; d++)
        bd_json_append(shape, bd_json_integer(view->shape[d]));
    bd_json_append(offsets, bd_json_integer(*offset));
    bd_json_append(offsets, bd_json_integer(end));
    bd_json_set_string(tensor_json, "dtype", bd_dtype_name(view->dtype));
    bd_json_set(tensor_json, "shape", shape);
    bd_json_set(tensor_json, "data_offsets", offsets);
    bd_json_set(header, view->name, tensor_json);
    *offset = end;
    return BD_OK;
}

static bd_status print_header(const bd_safetensors_content *content, char **text, bd_error *err)
{
    bd_status status = BD_OK;
    int64_t offset = 0;
    bd_json *header = bd_json_object();
    if (content->n_metadata > 0) {
        bd_json *metadata = bd_json_object();
        for (size_t i = 0; i < content->n_metadata; i++)
            bd_json_set_string(metadata, content->metadata[i].key, content->metadata[i].value);
        bd_json_set(header, metadata_key, metadata);
    }
    for (size_t i = 0; status == BD_OK && i < content->n_tensors; i++)
        status = set_tensor(header, &content->tensors[i], &offset, err);
    if (status == BD_OK)
        status = bd_json_print(header, BD_JSON_COMPACT, text, err);
    bd_json_free(header);
    return status;
}

// The file being written, with its checksum and size so far.
typedef struct sink {
    int fd;
    const char *path;   // borrowed
    bd_hasher *hasher;  // owned
    int64_t size_bytes;
    bool heeds_interrupts;
} sink;

static bd_status put_bytes(sink *to, const void *data, size_t size_bytes, bd_error *err)
{
    enum { CHUNK_BYTES = 1 << 20 };  // small enough to be in the cache still when it is hashed
    const char *bytes = data;
    while (size_bytes > 0) {
        const size_t chunk = size_bytes < CHUNK_BYTES ? size_bytes : CHUNK_BYTES;
        if (to->heeds_interrupts)
            BD_TRY(bd_interrupt_check(err));
        const ssize_t n = write(to->fd, bytes, chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return bd_fail_errno(err, "cannot write '%s'", to->path);
        bd_hasher_add(to->hasher, bytes, (size_t)n);
        bytes += n;
        size_bytes -= (size_t)n;
        to->size_bytes += n;
    }
    return BD_OK;
}

static bd_status put_header(sink *to, const char *text, bd_error *err)
{
    static const char spaces[HEADER_ALIGNMENT + 1] = "        ";
    const size_t n = strlen(text);
    const size_t padding = (HEADER_ALIGNMENT - n % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    const uint64_t header_bytes = n + padding;
    if (header_bytes > MAX_HEADER_BYTES)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "cannot write '%s': a header of %" PRIu64 " bytes, more than %d",
                       to->path, header_bytes, MAX_HEADER_BYTES);
    BD_TRY(put_bytes(to, &header_bytes, sizeof header_bytes, err));
    BD_TRY(put_bytes(to, text, n, err));
    return put_bytes(to, spaces, padding, err);
}

static bd_status write_content(const char *path, const bd_safetensors_content *content,
                               bool heeds_interrupts, bd_safetensors_receipt *receipt,
                               bd_error *err)
{
    char *header = NULL;
    sink to = {.fd = -1,
               .path = path,
               .hasher = bd_hasher_new(),
               .heeds_interrupts = heeds_interrupts};
    bd_status status = to.hasher ? print_header(content, &header, err)
                                 : bd_fail(err, BD_ERR_MEMORY, "no memory to write '%s'", path);
    if (status != BD_OK)
        goto done;
    to.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (to.fd < 0) {
        status = bd_fail_errno(err, "cannot write '%s'", path);
        goto done;
    }
    status = put_header(&to, header, err);
    for (size_t i = 0; status == BD_OK && i < content->n_tensors; i++) {
        int64_t n, size_bytes = 0;
        // Cannot fail, because print_header() has done it.
        measure_tensor(&content->tensors[i], &n, &size_bytes);
        status = put_bytes(&to, content->tensors[i].data, (size_t)size_bytes, err);
    }
    if (close(to.fd) != 0 && status == BD_OK)
        status = bd_fail_errno(err, "cannot write '%s'", path);
    if (status == BD_OK && receipt)
        *receipt = (bd_safetensors_receipt){to.size_bytes, bd_hasher_take128(to.hasher)};
done:
    bd_hasher_free(to.hasher);
    free(header);
    return status;
}

bd_status bd_safetensors_write(const char *path, const bd_safetensors_content *content,
                               bd_safetensors_receipt *receipt, bd_error *err)
{
    return write_content(path, content, false, receipt, err);
}

bd_status bd_safetensors_write_unless_interrupted(const char *path,
                                                  const bd_safetensors_content *content,
                                                  bd_error *err)
{
    return write_content(path, content, true, NULL, err);
}
