#include "packer/input/recognise.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/utf8.h"
#include "packer/input/token_file.h"

enum { HEAD_BYTES = 1 << 12 };

// The beginning of an input, decompressed.
typedef struct input_head {
    char bytes[HEAD_BYTES];
    size_t n;  // less than HEAD_BYTES: it is all of it
} input_head;

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
    [BD_PASS_CSV] = {"CSV or TSV", "convert it to JSONL or Parquet first, or take it as one "
                                   "text with --format text"},
    [BD_PASS_JSON_ARRAY] = {"JSON array",
                            "make one line of each element first: jq -c '.[]' FILE > "
                            "FILE.jsonl"},
    [BD_PASS_JSON_SPREAD] =
        {"JSON over several lines",
         "make one line of each object first: jq -c . FILE > FILE.jsonl; "
         "if it is JSONL and its first line is broken, give --format jsonl"},
    [BD_PASS_JSON_CONFIG] = {"JSON without its text", "see --text-field"},
    [BD_PASS_BZIP2] = {"bzip2", "decompress it first: bunzip2 FILE"},
    [BD_PASS_XZ] = {"xz", "decompress it first: unxz FILE"},
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

// ---- Names ---------------------------------------------------------------------------------

typedef enum ending_kind {
    ENDING_TEXT,
    ENDING_JSONL,
    ENDING_JSON,  // JSONL, or what is better not read
    ENDING_CSV,
    ENDING_TABLE,
    ENDING_TOKENS,  // perhaps: other programs' files end like this, too
    ENDING_UNKNOWN,
} ending_kind;

static const struct {
    const char *ending;
    ending_kind kind;
} known_endings[] = {
    {".txt", ENDING_TEXT},     {".text", ENDING_TEXT},     {".jsonl", ENDING_JSONL},
    {".ndjson", ENDING_JSONL}, {".json", ENDING_JSON},     {".csv", ENDING_CSV},
    {".tsv", ENDING_CSV},      {".parquet", ENDING_TABLE}, {".arrow", ENDING_TABLE},
    {".arrows", ENDING_TABLE}, {".bin", ENDING_TOKENS},    {".ds", ENDING_TOKENS},
    {".npy", ENDING_TOKENS},
};

static bool ends_in(const char *name, size_t n, const char *ending)
{
    const size_t m = strlen(ending);
    return n > m && strncasecmp(name + n - m, ending, m) == 0;
}

// The length of a name without an ending that tells of compression.
static size_t length_uncompressed(const char *name)
{
    static const char *const endings[] = {".gz", ".gzip", ".zst", ".zstd"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_in(name, n, endings[i]))
            return n - strlen(endings[i]);
    return n;
}

static ending_kind ending_of(const char *name)
{
    const size_t n = length_uncompressed(name);
    for (size_t i = 0; i < sizeof known_endings / sizeof known_endings[0]; i++)
        if (ends_in(name, n, known_endings[i].ending))
            return known_endings[i].kind;
    return ENDING_UNKNOWN;
}

// ---- Marks ---------------------------------------------------------------------------------

static bool holds_at(const input_head *head, size_t at, const char *mark, size_t n)
{
    return head->n >= at + n && memcmp(head->bytes + at, mark, n) == 0;
}

static bool begins_with(const input_head *head, const char *mark, size_t n)
{
    return holds_at(head, 0, mark, n);
}

static uint32_t uint32_at(const input_head *head, size_t at)
{
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++)
        value |= (uint32_t)(unsigned char)head->bytes[at + i] << (8 * i);
    return value;
}

// FF FF FF FF, the bytes of the first message's metadata, and where its root lies in there.
// Text after the mark would be lengths of half a gigabyte and more.
static bool is_arrow_stream(const input_head *head)
{
    enum { MAX_METADATA_BYTES = 1 << 28 };
    if (!begins_with(head, "\xFF\xFF\xFF\xFF", 4) || head->n < 12)
        return false;
    const uint32_t n = uint32_at(head, 4);
    return n > 0 && n % 8 == 0 && n <= MAX_METADATA_BYTES && uint32_at(head, 8) < n;
}

static bool is_table(const input_head *head, bd_input_format *format)
{
    if (begins_with(head, "PAR1", 4))
        *format = BD_INPUT_PARQUET;
    else if (begins_with(head, "ARROW1\0\0", 8))
        *format = BD_INPUT_ARROW;
    else if (is_arrow_stream(head))
        *format = BD_INPUT_ARROW_STREAM;
    else
        return false;
    return true;
}

// The marks of what cannot be read. Some of them could begin a text: they are asked for only
// where there is none.
static bd_pass_reason recognise_mark(const input_head *head)
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
        MARK(0, "BZh", BD_PASS_BZIP2),
        MARK(0,
             "\xFD"
             "7zXZ\0",
             BD_PASS_XZ),
        MARK(0, "\x5D\0\0", BD_PASS_XZ),  // lzma, as xz has it
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

static bool has_nul(const input_head *head)
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

static bool is_clean_text(const input_head *head)
{
    const size_t n_valid = bd_utf8_valid_prefix(head->bytes, head->n);
    return !has_nul(head) && (n_valid == head->n ||
                              is_part_of_character(head->bytes + n_valid, head->n - n_valid));
}

// What is not UTF-8 may be text in another encoding, which has line ends and tabs but hardly
// any other control characters (ISO-2022 has escapes).
static bool is_foreign_text(const input_head *head)
{
    for (size_t i = 0; i < head->n; i++) {
        const unsigned char c = (unsigned char)head->bytes[i];
        if (c < ' ' && (c < '\b' || c > '\r') && c != '\x1B')
            return false;
    }
    return true;
}

// ---- JSON ----------------------------------------------------------------------------------

typedef enum json_shape {
    JSON_NOT,
    JSON_LINES,   // the first line is an object, or goes on past the head
    JSON_SPREAD,  // an object that its first line does not end
    JSON_ARRAY,
} json_shape;

static size_t skip_space(const input_head *head, size_t at)
{
    while (at < head->n && head->bytes[at] != '\0' && strchr(" \t\r\n", head->bytes[at]))
        at++;
    return at;
}

static char char_at(const input_head *head, size_t at)
{
    return at < head->n ? head->bytes[at] : '\0';
}

// Whether the object that begins at `at` ends on the line on which it begins, *end being past
// its last brace. Otherwise *end is at the end of that line, or of the head.
static bool find_end(const input_head *head, size_t at, size_t *end)
{
    int depth = 0;
    bool in_string = false;
    for (; at < head->n && head->bytes[at] != '\n'; at++) {
        const char c = head->bytes[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            break;
    }
    const bool ends = at < head->n && head->bytes[at] != '\n';
    *end = ends ? at + 1 : at < head->n ? at : head->n;
    return ends;
}

// `is_json`: its name says that it is JSON; any other text may begin with a bracket.
static json_shape shape_of(const input_head *head, bool is_json)
{
    const size_t begin = skip_space(head, begins_with(head, "\xEF\xBB\xBF", 3) ? 3 : 0);
    const size_t second = skip_space(head, begin + 1);
    const char first = char_at(head, begin), next = char_at(head, second);
    const char third = char_at(head, skip_space(head, second + 1));
    size_t end;
    if (first == '[')
        return is_json || (next == '{' && third == '"') ? JSON_ARRAY : JSON_NOT;
    if (first != '{')
        return is_json && begin == head->n ? JSON_LINES : JSON_NOT;  // an empty file
    if (next != '"' && next != '}')
        return is_json ? JSON_SPREAD : JSON_NOT;
    if (!find_end(head, begin, &end))
        return end == head->n ? JSON_LINES : JSON_SPREAD;
    while (end < head->n && head->bytes[end] != '\n' && skip_space(head, end) > end)
        end++;
    return is_json || end == head->n || head->bytes[end] == '\n' ? JSON_LINES : JSON_NOT;
}

// Whether all of it is one object that lacks the text: a file of settings, of which a folder of
// sources has many, and no corpus.
static bool lacks_text(const char *bytes, size_t n_bytes, const char *text_field)
{
    bd_json *json;
    if (bd_json_parse(bytes, n_bytes, &json, NULL) != BD_OK)
        return false;
    const size_t n = strcspn(text_field, ".");
    bool has_field = false;
    for (bd_json_member m = bd_json_first(json); m.key && !has_field; m = bd_json_next(json, m))
        has_field = strcmp(m.key, text_field) == 0 ||
                    (strlen(m.key) == n && strncmp(m.key, text_field, n) == 0);
    bd_json_free(json);
    return !has_field;
}

// Reads a file that is one line of at most CONFIG_BYTES; *is_line says whether it is, and if so
// the caller frees *text. Of one that has more lines little more than the first is read.
static bd_status read_line(bd_byte_stream *stream, char **text, size_t *n, bool *is_line,
                           bd_error *err)
{
    enum { CONFIG_BYTES = 1 << 22, STEP = 1 << 16 };
    size_t n_read = STEP, capacity = 0;
    bool ended = false;
    *is_line = true;
    while (*is_line && n_read == STEP) {
        BD_TRY(bd_array_reserve((void **)text, &capacity, *n + STEP, 1, err));
        BD_TRY(bd_byte_stream_read(stream, *text + *n, STEP, &n_read, err));
        const char *end = n_read > 0 ? memchr(*text + *n, '\n', n_read) : NULL;
        *is_line = (!ended || n_read == 0) && (!end || end == *text + *n + n_read - 1) &&
                   *n + n_read <= CONFIG_BYTES;
        ended = ended || end;
        *n += n_read;
    }
    return BD_OK;
}

static bd_status is_config(const char *path, const input_head *head, const char *text_field,
                           bool *yes, bd_error *err)
{
    char *text = NULL;
    size_t n = 0;
    bool is_line = false;
    *yes = false;
    if (head->n < HEAD_BYTES) {
        *yes = lacks_text(head->bytes, head->n, text_field);
        return BD_OK;
    }
    if (memchr(head->bytes, '\n', head->n - 1))  // which is not the end
        return BD_OK;
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, path, err));
    const bd_status status = read_line(stream, &text, &n, &is_line, err);
    bd_byte_stream_close(stream);
    *yes = status == BD_OK && is_line && lacks_text(text, n, text_field);
    free(text);
    return status;
}

// ---- All of it -----------------------------------------------------------------------------

static const bd_input_format format_of_layout[] = {
    [BD_TOKENS_MEGATRON] = BD_INPUT_MEGATRON,
    [BD_TOKENS_LLM_C] = BD_INPUT_LLM_C,
    [BD_TOKENS_RAW] = BD_INPUT_TOKENS,
};

// Text or JSONL, by a name that says so.
static void believe_name(bd_input *input, const input_head *head, const bd_reading *reading,
                         ending_kind ending)
{
    const bool may_be_any = reading->utf8_policy != BD_UTF8_ERROR;
    input->format = ending == ENDING_TEXT ? BD_INPUT_TEXT : BD_INPUT_JSONL;
    if (!may_be_any && !is_clean_text(head))
        input->passed = recognise_mark(head);
}

static bd_status tell_text(bd_input *input, const input_head *head, const bd_reading *reading,
                           ending_kind ending, bd_error *err)
{
    const json_shape shape = shape_of(head, ending == ENDING_JSON);
    const bool promises_other = ending == ENDING_TABLE || ending == ENDING_TOKENS;
    bool without_text = false;
    input->format = shape == JSON_LINES ? BD_INPUT_JSONL : BD_INPUT_TEXT;
    if (shape == JSON_LINES && input->folder > 0)
        BD_TRY(is_config(input->path, head, reading->text_field, &without_text, err));
    if (begins_with(head, "%PDF-", 5))
        input->passed = BD_PASS_PDF;
    else if (shape == JSON_ARRAY)
        input->passed = BD_PASS_JSON_ARRAY;
    else if (shape == JSON_SPREAD)
        input->passed = BD_PASS_JSON_SPREAD;
    else if (without_text)
        input->passed = BD_PASS_JSON_CONFIG;
    else if (shape == JSON_NOT && promises_other)
        input->passed = BD_PASS_MISNAMED;
    return BD_OK;
}

static void tell_other(bd_input *input, const input_head *head, const bd_reading *reading,
                       ending_kind ending)
{
    const bool promises_other = ending == ENDING_TABLE || ending == ENDING_TOKENS;
    input->passed = recognise_mark(head);
    if (input->passed != BD_PASS_NOT)
        return;
    if (has_nul(head) || promises_other || !is_foreign_text(head))
        input->passed = BD_PASS_BINARY;
    else if (reading->utf8_policy == BD_UTF8_ERROR)
        input->passed = BD_PASS_NOT_UTF8;
    else if (shape_of(head, ending == ENDING_JSON) == JSON_LINES)
        input->format = BD_INPUT_JSONL;
    else
        input->format = BD_INPUT_TEXT;
}

static bd_status tell_format(bd_input *input, const input_head *head, const bd_reading *reading,
                             bd_error *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    const ending_kind ending = ending_of(input->path);
    const bool told = ending == ENDING_TEXT || ending == ENDING_JSONL;
    const bool clean = is_clean_text(head);
    if (is_table(head, &input->format))
        return BD_OK;
    if (!clean && begins_with(head, "PARE", 4)) {  // encrypted: its reader says so
        input->format = BD_INPUT_PARQUET;
        return BD_OK;
    }
    if (begins_with(head, pointer, sizeof pointer - 1)) {
        input->passed = BD_PASS_LFS;
        return BD_OK;
    }
    // Files in folders are many, and those of tokens do not look like text.
    if (input->compression == BD_PLAIN && !told &&
        (ending == ENDING_TOKENS || !clean || input->folder == 0)) {
        bd_token_layout layout;
        bool known;
        BD_TRY(bd_token_file_recognise(input->path, &layout, &known, err));
        if (known) {
            input->format = format_of_layout[layout];
            return BD_OK;
        }
    }
    if (told)
        believe_name(input, head, reading, ending);
    else if (clean)
        return tell_text(input, head, reading, ending, err);
    else
        tell_other(input, head, reading, ending);
    return BD_OK;
}

static bd_status choose_format(bd_input *input, const input_head *head,
                               const bd_reading *reading, bd_error *err)
{
    static const bd_input_format chosen[] = {
        [BD_FORMAT_TEXT] = BD_INPUT_TEXT,         [BD_FORMAT_JSONL] = BD_INPUT_JSONL,
        [BD_FORMAT_PARQUET] = BD_INPUT_PARQUET,   [BD_FORMAT_ARROW] = BD_INPUT_ARROW,
        [BD_FORMAT_MEGATRON] = BD_INPUT_MEGATRON, [BD_FORMAT_LLM_C] = BD_INPUT_LLM_C,
        [BD_FORMAT_TOKENS] = BD_INPUT_TOKENS,
    };
    if (reading->format == BD_FORMAT_AUTO)
        return tell_format(input, head, reading, err);
    input->format = chosen[reading->format];
    if (input->format == BD_INPUT_ARROW && !begins_with(head, "ARROW1", 6))
        input->format = BD_INPUT_ARROW_STREAM;
    return BD_OK;
}

// A plain file is read directly, with one small read: there may be very many of them.
static bd_status read_plain_head(const char *path, input_head *head, bd_error *err)
{
    int fd;
    int64_t size_bytes;
    BD_TRY(bd_file_open(path, &fd, &size_bytes, err));
    head->n = size_bytes < HEAD_BYTES ? (size_t)size_bytes : HEAD_BYTES;
    const bd_status status = bd_file_read_at(fd, path, head->bytes, head->n, 0, err);
    close(fd);
    return status;
}

static bd_status read_head(bd_input *input, input_head *head, bd_error *err)
{
    BD_TRY(read_plain_head(input->path, head, err));
    input->compression = bd_compression_of(head->bytes, head->n);
    if (input->compression == BD_PLAIN)
        return BD_OK;
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, input->path, err));
    const bd_status status =
        bd_byte_stream_read(stream, head->bytes, sizeof head->bytes, &head->n, err);
    bd_byte_stream_close(stream);
    return status;
}

bd_status bd_input_recognise(bd_input *input, const bd_reading *reading, bd_error *err)
{
    input_head head = {.n = 0};
    if (bd_input_is_stdin(input)) {
        // Its beginning cannot be read twice.
        const bool is_text = reading->format == BD_FORMAT_TEXT || reading->delimiter;
        input->format = is_text ? BD_INPUT_TEXT : BD_INPUT_JSONL;
        return BD_OK;
    }
    if (reading->format == BD_FORMAT_AUTO && ending_of(input->path) == ENDING_CSV) {
        input->passed = BD_PASS_CSV;
        return BD_OK;
    }
    BD_TRY(read_head(input, &head, err));
    BD_TRY(choose_format(input, &head, reading, err));
    if (input->passed != BD_PASS_NOT || bd_input_is_bytes(input) ||
        input->compression == BD_PLAIN)
        return BD_OK;
    if (input->folder > 0 && reading->format == BD_FORMAT_AUTO) {
        input->passed = BD_PASS_COMPRESSED_TABLE;
        return BD_OK;
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "cannot read '%s': a compressed %s file; decompress it first", input->path,
                   bd_input_format_words[input->format]);
}
