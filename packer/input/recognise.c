#include "packer/input/recognise.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "packer/input/kinds.h"

// ---- Reasons -------------------------------------------------------------------------------

static const struct {
    const char *word, *advice;
} reasons[] = {
    [BD_PASS_NOT] = {"", ""},
    [BD_PASS_HIDDEN] = {"hidden", ""},
    [BD_PASS_EXCLUDED] = {"excluded", ""},
    [BD_PASS_NOT_INCLUDED] = {"not included", ""},
    [BD_PASS_MET_BEFORE] = {"met before", ""},
    [BD_PASS_INDEX] = {"index of another input", ""},
    [BD_PASS_DANGLING] = {"dangling link", ""},
    [BD_PASS_IRREGULAR] = {"not a regular file", ""},
    [BD_PASS_CSV] = {"CSV without its text", "see --text-field"},
    [BD_PASS_JSON_SPREAD] =
        {"JSON over several lines",
         "make one line of each object first: jq -c . FILE > FILE.jsonl; "
         "if it is JSONL and its first line is broken, give --format jsonl"},
    [BD_PASS_JSON_CONFIG] = {"JSON without its text", "see --text-field and --chat-format"},
    [BD_PASS_COMPRESSED] = {"unknown compression", "decompress it first"},
    [BD_PASS_ZIP] = {"zip archive", "unpack it first: unzip FILE"},
    [BD_PASS_ARCHIVE] = {"7z or RAR archive", "unpack it first"},
    [BD_PASS_TAR] = {"tar archive", "unpack it first: tar -xf FILE"},
    [BD_PASS_PDF] = {"PDF", "extract its text first: pdftotext FILE"},
    [BD_PASS_IMAGE] = {"image", "it holds no text"},
    [BD_PASS_MEDIA] = {"audio or video", "it holds no text"},
    [BD_PASS_PROGRAM] = {"program", "it holds no text"},
    [BD_PASS_NUMPY] = {"NumPy array",
                       "write its ids as raw bytes with an index beside them, or as a column "
                       "input_ids of Parquet"},
    [BD_PASS_DATA] = {"another data format", "convert it to JSONL or Parquet first"},
    [BD_PASS_UTF16] = {"UTF-16 or UTF-32",
                       "convert it first: iconv -f UTF-16 -t UTF-8 FILE > FILE.txt"},
    [BD_PASS_COMPRESSED_TABLE] = {"compressed table", "decompress it first"},
    [BD_PASS_LFS] = {"Git LFS pointer", "fetch what it stands for first: git lfs pull"},
    [BD_PASS_MISNAMED] = {"not what its name says",
                          "give --format if that is what it should be"},
    [BD_PASS_NOT_UTF8] =
        {"not UTF-8", "convert it first with iconv, or give --invalid-utf8 keep or replace"},
    [BD_PASS_BINARY] = {"binary", "give --format if it can be read"},
};

const char *bd_pass_reason_word(bd_pass_reason reason)
{
    return reasons[reason].word;
}

const char *bd_pass_reason_advice(bd_pass_reason reason)
{
    return reasons[reason].advice;
}

bd_status bd_input_refuse(const bd_input *input, bd_error *err)
{
    return bd_fail(err, BD_ERR_ARGUMENT, "cannot read '%s': %s; %s", input->path,
                   bd_pass_reason_word(input->passed), bd_pass_reason_advice(input->passed));
}

// ---- Marks ---------------------------------------------------------------------------------

static bool holds_at(const bd_input_head *head, size_t at, const char *mark, size_t n)
{
    return head->n >= at + n && memcmp(head->bytes + at, mark, n) == 0;
}

bool bd_head_begins_with(const bd_input_head *head, const char *mark, size_t n)
{
    return holds_at(head, 0, mark, n);
}

// The marks of what cannot be read. Some of them could begin a text: they are asked for only
// where there is none.
static bd_pass_reason recognise_mark(const bd_input_head *head)
{
#define MARK(at, text, reason)            \
    {                                     \
        at, text, sizeof text - 1, reason \
    }
    static const struct {
        size_t at;
        const char *text;
        size_t n;
        bd_pass_reason reason;
    } marks[] = {
        MARK(0, "\x5D\0\0", BD_PASS_COMPRESSED),  // lzma
        MARK(0, "\x04\x22\x4D\x18", BD_PASS_COMPRESSED),
        MARK(0, "LZIP", BD_PASS_COMPRESSED),
        MARK(0, "\x1F\x9D", BD_PASS_COMPRESSED),
        MARK(0, "PK\x03\x04", BD_PASS_ZIP),
        MARK(0, "PK\x05\x06", BD_PASS_ZIP),
        MARK(0, "7z\xBC\xAF\x27\x1C", BD_PASS_ARCHIVE),
        MARK(0, "Rar!\x1A\x07", BD_PASS_ARCHIVE),
        MARK(257, "ustar", BD_PASS_TAR),
        MARK(0, "%PDF-", BD_PASS_PDF),
        MARK(0, "\x89PNG\r\n\x1A\n", BD_PASS_IMAGE),
        MARK(0, "\xFF\xD8\xFF", BD_PASS_IMAGE),
        MARK(0, "GIF8", BD_PASS_IMAGE),
        MARK(0, "II*\0", BD_PASS_IMAGE),
        MARK(0, "MM\0*", BD_PASS_IMAGE),
        MARK(8, "WEBP", BD_PASS_IMAGE),
        MARK(0, "\0\0\1\0", BD_PASS_IMAGE),
        MARK(0, "RIFF", BD_PASS_MEDIA),
        MARK(0, "OggS", BD_PASS_MEDIA),
        MARK(0, "fLaC", BD_PASS_MEDIA),
        MARK(0, "ID3", BD_PASS_MEDIA),
        MARK(4, "ftyp", BD_PASS_MEDIA),
        MARK(0, "\x1A\x45\xDF\xA3", BD_PASS_MEDIA),
        MARK(0,
             "\x7F"
             "ELF",
             BD_PASS_PROGRAM),
        MARK(0, "MZ", BD_PASS_PROGRAM),
        MARK(0, "\xCF\xFA\xED\xFE", BD_PASS_PROGRAM),
        MARK(0, "\xCE\xFA\xED\xFE", BD_PASS_PROGRAM),
        MARK(0, "\xCA\xFE\xBA\xBE", BD_PASS_PROGRAM),
        MARK(0, "\0asm", BD_PASS_PROGRAM),
        MARK(0, "!<arch>\n", BD_PASS_PROGRAM),
        MARK(0, "\x93NUMPY", BD_PASS_NUMPY),
        MARK(0, "SQLite format 3\0", BD_PASS_DATA),
        MARK(0, "\x89HDF\r\n\x1A\n", BD_PASS_DATA),
        MARK(0, "Obj\x01", BD_PASS_DATA),
        MARK(0, "ORC", BD_PASS_DATA),
        MARK(0, "FEA1", BD_PASS_DATA),
        MARK(0, "\xFF\xFE", BD_PASS_UTF16),
        MARK(0, "\xFE\xFF", BD_PASS_UTF16),
        MARK(0, "\0\0\xFE\xFF", BD_PASS_UTF16),
    };
#undef MARK
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (holds_at(head, marks[i].at, marks[i].text, marks[i].n))
            return marks[i].reason;
    return BD_PASS_NOT;
}

// ---- Text ----------------------------------------------------------------------------------

static bool has_nul(const bd_input_head *head)
{
    return memchr(head->bytes, '\0', head->n) != NULL;
}

// Whether the `n` bytes are the beginning of a character, in which the head may end.
static bool is_part_of_character(const char *bytes, size_t n)
{
    const unsigned char lead = (unsigned char)bytes[0];
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)bytes[i] & 0xC0) != 0x80)
            return false;
    return n < length && lead <= 0xF4;
}

static bool is_clean_text(const bd_input_head *head)
{
    const size_t n_valid = bd_utf8_valid_prefix(head->bytes, head->n);
    return !has_nul(head) && (n_valid == head->n ||
                              is_part_of_character(head->bytes + n_valid, head->n - n_valid));
}

// Text in another encoding than UTF-8 has line ends and tabs, but hardly any other control
// characters (ISO-2022 has escapes).
static bool is_foreign_text(const bd_input_head *head)
{
    for (size_t i = 0; i < head->n; i++) {
        const unsigned char c = (unsigned char)head->bytes[i];
        if (c < ' ' && (c < '\b' || c > '\r') && c != '\x1B')
            return false;
    }
    return true;
}

// ---- All of it -----------------------------------------------------------------------------

// Asks the kinds of text or all others whether the input is theirs. input->kind is NULL if none
// says so.
static bd_status ask_kinds(bd_input *input, const bd_input_head *head,
                           const bd_input_options *options, bool of_text, bd_error *err)
{
    for (size_t i = 0; bd_input_kinds[i]; i++) {
        bool yes = false;
        input->kind = bd_input_kinds[i];
        if (input->kind->is_text != of_text || !input->kind->recognise)
            continue;
        BD_TRY(input->kind->recognise(input, head, options, &yes, err));
        if (yes || input->passed != BD_PASS_NOT)
            return BD_OK;
    }
    input->kind = NULL;
    return BD_OK;
}

static bd_status tell_kind(bd_input *input, const bd_input_head *head,
                           const bd_input_options *options, bd_error *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    const bool must_be_utf8 = options->utf8_policy == BD_UTF8_ERROR;
    const bool promises_other = head->named && !head->named->is_text;
    if (bd_head_begins_with(head, pointer, sizeof pointer - 1)) {
        input->passed = BD_PASS_LFS;
        return BD_OK;
    }
    BD_TRY(ask_kinds(input, head, options, false, err));
    if (input->kind)
        return BD_OK;
    // A name that says text is believed, but not against the mark of something else.
    if (head->named && head->named->is_text) {
        input->kind = head->named;
        if (must_be_utf8 && !head->is_clean)
            input->passed = recognise_mark(head);
        bool yes = true;
        return input->passed == BD_PASS_NOT && input->kind->recognise
                   ? input->kind->recognise(input, head, options, &yes, err)
                   : BD_OK;
    }
    if (head->is_clean) {
        if (bd_head_begins_with(head, "%PDF-", 5))
            input->passed = BD_PASS_PDF;
    } else {
        input->passed = recognise_mark(head);
        if (input->passed == BD_PASS_NOT &&
            (has_nul(head) || promises_other || !is_foreign_text(head)))
            input->passed = BD_PASS_BINARY;
        else if (input->passed == BD_PASS_NOT && must_be_utf8)
            input->passed = BD_PASS_NOT_UTF8;
    }
    if (input->passed != BD_PASS_NOT)
        return BD_OK;
    BD_TRY(ask_kinds(input, head, options, true, err));
    if (input->kind)
        return BD_OK;
    input->kind = &bd_text_kind;
    if (promises_other)
        input->passed = BD_PASS_MISNAMED;
    return BD_OK;
}

// A plain file is read directly, with one small read: there may be very many of them.
static bd_status read_plain_head(const char *path, bd_input_head *head, bd_error *err)
{
    int fd;
    int64_t size_bytes;
    BD_TRY(bd_file_open(path, &fd, &size_bytes, err));
    head->n = size_bytes < BD_HEAD_BYTES ? (size_t)size_bytes : BD_HEAD_BYTES;
    const bd_status status = bd_file_read_at(fd, path, head->bytes, head->n, 0, err);
    close(fd);
    return status;
}

static bd_status read_head(bd_input *input, bd_input_head *head, bd_error *err)
{
    BD_TRY(read_plain_head(input->path, head, err));
    input->compression = bd_decompressor_of(head->bytes, head->n);
    if (!input->compression)
        return BD_OK;
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, input->path, err));
    const bd_status status =
        bd_byte_stream_read(stream, head->bytes, sizeof head->bytes, &head->n, err);
    bd_byte_stream_close(stream);
    return status;
}

bd_status bd_input_recognise(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bd_input_head head = {.n = 0};
    if (bd_input_is_stdin(input)) {
        // Its beginning cannot be read twice, so only the options tell.
        input->kind = options->delimiter ? &bd_text_kind : &bd_jsonl_kind;
        if (options->format && options->format->is_text)
            input->kind = options->format;
        return BD_OK;
    }
    BD_TRY(read_head(input, &head, err));
    head.is_clean = is_clean_text(&head);
    head.named = bd_input_kind_by_ending(input->path);
    input->kind = options->format;
    if (!input->kind)
        BD_TRY(tell_kind(input, &head, options, err));
    if (input->passed != BD_PASS_NOT || input->kind->is_text || !input->compression)
        return BD_OK;
    if (input->folder > 0 && !options->format) {
        input->passed = BD_PASS_COMPRESSED_TABLE;
        return BD_OK;
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "cannot read '%s': a compressed %s file; decompress it first", input->path,
                   input->kind->name);
}
