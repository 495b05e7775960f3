// CSV and TSV, as RFC 4180 has them: a row is a document, whose text is in one column.
//
//   id,text                     the header, which must be there, names the columns
//   1,"a ""quote"", a comma,
//   and a newline"              a field in quotes may hold anything, a quote as two
//   2,5" disks                  a quote inside a field is a character like any other
//
// A line ends with LF or CRLF, and a blank one is no row. The record is the text, without its
// quotes; its position is the row's first byte. Other columns are passed over, however large.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packer/input/examine.h"
#include "packer/input/scanner.h"

typedef struct csv_source {
    bd_scanner scanner;      // first: see scanner.h
    const char *text_field;  // borrowed
    char separator;
    int64_t column;     // of the text
    int64_t n_columns;  // of the header; 0 before it is read
    // The row that was read last:
    int64_t n_fields;
    bool is_blank, ends_with_cr;
    const char *problem;  // NULL: none
} csv_source;

// The rest of a field after its opening quote, up to and with the closing one; *c is what follows.
static bd_status read_quoted(csv_source *csv, bool is_wanted, int *c, bd_error *err)
{
    bd_scanner *s = &csv->scanner;
    for (;;) {
        BD_TRY(bd_scanner_peek(s, c, err));
        if (*c == BD_SCAN_END) {
            csv->problem = "a quote that is never closed";
            return BD_OK;
        }
        const char *begin = s->chunk + s->at;
        const char *quote = memchr(begin, '"', s->n - s->at);
        const size_t n = quote ? (size_t)(quote - begin) : s->n - s->at;
        if (is_wanted)
            BD_TRY(bd_scanner_keep(s, begin, n, err));
        s->at += n;
        if (!quote)
            continue;
        s->at++;
        BD_TRY(bd_scanner_peek(s, c, err));
        if (*c != '"')
            return BD_OK;
        if (is_wanted)  // two quotes are one
            BD_TRY(bd_scanner_keep(s, "\"", 1, err));
        s->at++;
    }
}

// Notes a column of the header, whose name was kept.
static bd_status note_column(csv_source *csv, char *names, size_t size, bd_error *err)
{
    bd_scanner *s = &csv->scanner;
    const size_t n = strlen(names);
    snprintf(names + n, size - n, "%s'%.*s'", n > 0 ? ", " : "", (int)s->n_record,
             s->n_record > 0 ? s->record : "");
    if (s->n_record == strlen(csv->text_field) &&
        (s->n_record == 0 || memcmp(s->record, csv->text_field, s->n_record) == 0)) {
        if (csv->column >= 0)
            return bd_fail(err, BD_ERR_FORMAT,
                           "cannot read '%s': it has several columns '%s': rename all but one",
                           s->input->path, csv->text_field);
        csv->column = csv->n_fields - 1;
    }
    bd_scanner_forget(s);
    return BD_OK;
}

// Reads a row up to its newline and keeps its text. `names`, of `size` bytes, is for the header
// alone and becomes the list of its columns.
static bd_status read_csv_row(csv_source *csv, char *names, size_t size, bd_error *err)
{
    bd_scanner *s = &csv->scanner;
    int c;
    csv->n_fields = 0;
    csv->is_blank = true;
    csv->problem = NULL;
    bd_scanner_forget(s);
    do {
        const bool is_wanted = names || csv->n_fields == csv->column;
        size_t n = 0;  // bytes outside of quotes
        bool is_quoted = false;
        csv->ends_with_cr = false;
        if (csv->n_fields++ > 0)
            s->at++;  // the separator
        BD_TRY(bd_scanner_peek(s, &c, err));
        if (c == '"') {
            is_quoted = true;
            s->at++;
            BD_TRY(read_quoted(csv, is_wanted, &c, err));
        }
        while (c != csv->separator && c != '\n' && c != BD_SCAN_END) {
            const char *begin = s->chunk + s->at, *end = begin, *stop = s->chunk + s->n;
            while (end < stop && *end != csv->separator && *end != '\n')
                end++;
            csv->ends_with_cr = end[-1] == '\r';
            if (is_wanted)
                BD_TRY(bd_scanner_keep(s, begin, (size_t)(end - begin), err));
            n += (size_t)(end - begin);
            s->at += (size_t)(end - begin);
            BD_TRY(bd_scanner_peek(s, &c, err));
        }
        if (csv->ends_with_cr && c != csv->separator) {  // it belongs to the line's end
            n--;
            s->n_record -= is_wanted && !s->is_too_large;
        }
        if (is_quoted && n > 0)
            csv->problem = "text after a closing quote";
        csv->is_blank &= !is_quoted && n == 0 && c != csv->separator;
        if (names)
            BD_TRY(note_column(csv, names, size, err));
    } while (c == csv->separator);
    return BD_OK;
}

static bd_status read_header(csv_source *csv, bd_error *err)
{
    char names[200] = "";
    const char *path = csv->scanner.input->path;
    csv->column = -1;
    BD_TRY(read_csv_row(csv, names, sizeof names, err));
    if (csv->is_blank)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot read '%s': its first row must name the columns", path);
    if (csv->problem)
        return bd_fail(err, BD_ERR_FORMAT, "cannot read '%s': %s in its header", path,
                       csv->problem);
    if (csv->column < 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot read '%s': it has no column '%s' (see --text-field); it has %s",
                       path, csv->text_field, names);
    csv->n_columns = csv->n_fields;
    return BD_OK;
}

static bd_status next_csv(void *source, int64_t end, bd_record *record, bool *found,
                          bd_error *err)
{
    csv_source *csv = source;
    bd_scanner *s = &csv->scanner;
    if (csv->n_columns == 0)
        BD_TRY(read_header(csv, err));
    do {
        int c;
        BD_TRY(bd_scanner_peek(s, &c, err));
        if (c == '\n')
            s->at++;
        BD_TRY(bd_scanner_peek(s, &c, err));
        const int64_t position = bd_scanner_position(s);
        *found = c != BD_SCAN_END && position < end;
        if (!*found)
            return BD_OK;
        BD_TRY(read_csv_row(csv, NULL, 0, err));
        *record = bd_scanner_record(s, position);
        record->stored_bytes -= csv->ends_with_cr;
    } while (csv->is_blank);
    if (!csv->problem && csv->n_fields != csv->n_columns)
        csv->problem = "a row with more or fewer fields than the header; are its quotes right?";
    if (csv->problem) {
        record->bad = BD_BAD_JSON;
        record->problem = csv->problem;
    }
    return BD_OK;
}

static bd_status open_csv(void **source, const bd_input *input, const bd_input_options *options,
                          bd_error *err)
{
    csv_source *csv = *source = calloc(1, sizeof *csv);
    if (!csv)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    csv->text_field = options->text_field;
    csv->separator = input->kind == &bd_tsv_kind ? '\t' : ',';
    return bd_scanner_open(&csv->scanner, input, options->max_document_bytes, err);
}

static bd_status check_header(const bd_input *input, const bd_input_options *options,
                              bd_error *err)
{
    void *source = NULL;
    bd_status status = open_csv(&source, input, options, err);
    if (status == BD_OK)
        status = read_header(source, err);
    bd_scanner_close(source);
    return status;
}

// A folder of sources may have tables of anything: they are no corpus.
static bd_status recognise_csv(bd_input *input, const bd_input_head *head,
                               const bd_input_options *options, bool *yes, bd_error *err)
{
    *yes = head->named == input->kind;
    if (!*yes || input->folder == 0)
        return BD_OK;
    const bd_status status = check_header(input, options, err);
    if (status != BD_ERR_FORMAT)
        return status;
    input->passed = BD_PASS_CSV;
    return BD_OK;
}

static bd_status cut_csv(bd_input *input, const bd_input_options *options, bd_error *err)
{
    if (!bd_input_is_stdin(input))
        BD_TRY(check_header(input, options, err));
    return bd_records_cut(input, options, err);
}

static const char *const csv_endings[] = {".csv", NULL}, *const tsv_endings[] = {".tsv", NULL};

#define CSV_KIND                                                                             \
    .place = "row at byte", .is_text = true, .is_stream = true, .has_lines = true,           \
    .recognise = recognise_csv, .cut = cut_csv, .open = open_csv, .begin = bd_scanner_begin, \
    .next = next_csv, .close = bd_scanner_close, .reaches = bd_scanner_reaches,              \
    .consumed = bd_scanner_consumed

const bd_input_kind bd_csv_kind = {.name = bd_csv_name, .endings = csv_endings, CSV_KIND};
const bd_input_kind bd_tsv_kind = {.name = bd_tsv_name, .endings = tsv_endings, CSV_KIND};
