// The records of a CSV file or a JSON array are the same in slices of any size, and lie in
// order, each in the slice in which it begins. Reading a damaged file ends, too.
//
//   byte 0      bit 0: JSON array, else CSV; the rest: largest record allowed
// byte 1      bytes of a slice, minus one
//   the rest    the file
#include <string.h>

#include "packer/input/kinds.h"
#include "packer/input/reader.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_RECORDS = 4096 };

typedef struct seen {
    bd_status status;
    size_t n;
    bd_record records[MAX_RECORDS];  // their bytes are not stored, except the first
    char first[MAX_RECORDS];
} seen;

static void read_slices(seen *s, const bd_input *input, const bd_input_options *reading,
                        int64_t slice_bytes)
{
    void *source = NULL;
    int64_t last_position = -1;
    s->n = 0;
    s->status = input->kind->open(&source, input, reading, NULL);
    bool goes_on = true;
    for (int64_t begin = 0; s->status == BD_OK && goes_on; begin += slice_bytes) {
        const bd_slice slice = {begin, begin + slice_bytes};
        bool found = true;
        input->kind->begin(source, slice);
        while (found && s->n < MAX_RECORDS) {
            bd_record record = {0};
            s->status = input->kind->next(source, slice.end, &record, &found, NULL);
            if (s->status != BD_OK || !found)
                break;
            REQUIRE(record.position > last_position && record.position < slice.end);
            REQUIRE(record.bad != BD_BAD_NONE ||
                    record.size_bytes <= (size_t)reading->max_document_bytes);
            last_position = record.position;
            s->first[s->n] = record.size_bytes > 0 ? record.data[0] : '\0';
            s->records[s->n++] = record;
        }
        if (s->status == BD_OK)
            s->status = input->kind->reaches(source, slice.end, &goes_on, NULL);
    }
    input->kind->close(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static seen whole, parts;
    if (size < 2 || bd_decompressor_of(data + 2, size - 2))
        return 0;
    const bd_input_options reading = {.text_field = "t", .max_document_bytes = 1 + data[0] / 2};
    memory_file_set(data + 2, size - 2);
    const bd_input input = {.path = (char *)memory_file_path(),
                            .kind = data[0] & 1 ? &bd_json_kind : &bd_csv_kind};
    read_slices(&whole, &input, &reading, INT32_MAX);
    read_slices(&parts, &input, &reading, 1 + data[1]);
    REQUIRE(whole.status == parts.status && whole.n == parts.n);
    for (size_t i = 0; i < whole.n; i++) {
        const bd_record *a = &whole.records[i], *b = &parts.records[i];
        REQUIRE(a->position == b->position && a->size_bytes == b->size_bytes);
        REQUIRE(a->bad == b->bad && a->problem == b->problem);
        REQUIRE(a->stored_bytes == b->stored_bytes && whole.first[i] == parts.first[i]);
    }
    return 0;
}
