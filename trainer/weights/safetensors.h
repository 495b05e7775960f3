// safetensors.h - Hugging Face's file format for named arrays: reading and writing.
//
//   n: uint64 | header: n bytes of JSON, spaces at its end | data
//
//   {"__metadata__": {"format": "pt"},
//    "ln_f.weight": {"dtype": "F32", "shape": [768], "data_offsets": [0, 3072]}, ...}
//
// Everything is little-endian, arrays are row-major, offsets count from the end of the header.
//
// Invariants, established by bd_safetensors_open() whoever wrote the file:
//   names are unique; a tensor has as many bytes as its type and shape say;
//   the tensors cover the data without overlap and without gap.
#ifndef BINDERY_TRAINER_WEIGHTS_SAFETENSORS_H
#define BINDERY_TRAINER_WEIGHTS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "trainer/weights/dtype.h"

enum { BD_TENSOR_DIMENSIONS = 8 };  // at most; the format itself has no limit

// A named array that lies elsewhere: nothing in it is owned.
typedef struct bd_tensor_view {
    const char *name;
    bd_dtype dtype;
    int n_dimensions;  // 0: a single number
    int64_t shape[BD_TENSOR_DIMENSIONS];
    int64_t n;         // elements; set by the reader, not looked at by the writer
    const void *data;  // from the reader: NULL where the file does not align it to its type
} bd_tensor_view;

// ---- Reading

typedef struct bd_safetensors bd_safetensors;  // an open file

// Maps the file and checks its header, not the values. Close the result. On failure *file
// is NULL. Messages name the file.
bd_status bd_safetensors_open(bd_safetensors **file, const char *path, bd_error *err);
// Every view of the file is then invalid. Safe on NULL.
void bd_safetensors_close(bd_safetensors *file);

const char *bd_safetensors_path(const bd_safetensors *file);  // as it was opened, borrowed

// The tensors in the order of their names. Views are borrowed from the file.
size_t bd_safetensors_count(const bd_safetensors *file);
const bd_tensor_view *bd_safetensors_at(const bd_safetensors *file, size_t index);
const bd_tensor_view *bd_safetensors_find(const bd_safetensors *file,
                                          const char *name);  // NULL: none

// The usual way to the values: finds the tensor, checks that it has this type and shape, and
// copies it, aligned or not; the file's pages then do not count as memory any more. `to` may be
// NULL to check alone. A missing tensor or another shape is BD_ERR_FORMAT, another type
// BD_ERR_UNSUPPORTED.
bd_status bd_safetensors_copy_f32(const bd_safetensors *file, const char *name,
                                  int n_dimensions, const int64_t *shape, float *to,
                                  bd_error *err);
// The same for its numbers [first, first + n) alone, which it must have.
bd_status bd_safetensors_copy_some_f32(const bd_safetensors *file, const char *name,
                                       int n_dimensions, const int64_t *shape, int64_t first,
                                       int64_t n, float *to, bd_error *err);
// The same for a tensor of F32, F16 or BF16, as floats.
bd_status bd_safetensors_convert(const bd_safetensors *file, const char *name, int n_dimensions,
                                 const int64_t *shape, float *to, bd_error *err);

// BD_ERR_FORMAT unless all of the numbers, which were copied from the file's tensor `name`, are
// finite.
bd_status bd_tensor_check_finite(const bd_safetensors *file, const char *name,
                                 const float *numbers, int64_t n, bd_error *err);

// ---- Writing

typedef struct bd_safetensors_pair {
    const char *key, *value;  // UTF-8
} bd_safetensors_pair;

// The contents of a file to write; all of it is borrowed for the call.
typedef struct bd_safetensors_content {
    const bd_tensor_view *tensors;  // in host memory; the file keeps their order, so that F64
                                    // is aligned if it comes before F32
    size_t n_tensors;
    const bd_safetensors_pair *metadata;
    size_t n_metadata;
} bd_safetensors_content;

// Size and checksum of a written file.
typedef struct bd_safetensors_receipt {
    int64_t size_bytes;
    bd_digest digest;  // of the whole file
} bd_safetensors_receipt;

// Writes the whole file at `path`, which is a pending file's temporary name where the file is
// to be published (common/base/file.h). Tensors are F32, F64 or BF16; others are
// BD_ERR_UNSUPPORTED. `receipt` may be NULL. On failure the file is incomplete.
bd_status bd_safetensors_write(const char *path, const bd_safetensors_content *content,
                               bd_safetensors_receipt *receipt, bd_error *err);

// The same, but an interrupt (common/base/interrupt.h) stops it.
bd_status bd_safetensors_write_unless_interrupted(const char *path,
                                                  const bd_safetensors_content *content,
                                                  bd_error *err);

#endif
