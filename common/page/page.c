#include "common/page/page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/text_stream.h"
#include "common/base/utf8.h"

extern const bd_page_part bd_page_frame;
extern const bd_page_part bd_page_style;
extern const bd_page_part bd_page_script;
extern const bd_page_part bd_page_plots;

// ---- Text in HTML --------------------------------------------------------------------------

static void print_page_part(FILE *out, const bd_page_part *part)
{
    fwrite(part->text, 1, part->size_bytes, out);
}

// Bytes that are not UTF-8 become U+FFFD; characters with a meaning in HTML are written by
// number.
static bd_status print_escaped(FILE *out, const char *text, bd_error *err)
{
    const size_t n = strlen(text);
    char *good = malloc(bd_utf8_replaced_bound(n));
    if (!good)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the title of a page");
    const size_t m = bd_utf8_replace(text, n, good);
    for (size_t i = 0; i < m; i++) {
        if (strchr("&<>\"'", good[i]) || (unsigned char)good[i] < ' ')
            fprintf(out, "&#%d;", good[i]);
        else
            fputc(good[i], out);
    }
    free(good);
    return BD_OK;
}

// In JSON a `<` can occur only inside a string, where it may be written as an escape. Without a
// `<` nothing in the text can end the script element or begin a comment in it.
static bd_status print_data(FILE *out, const bd_json *data, bd_error *err)
{
    char *text;
    BD_TRY(bd_json_print(data, BD_JSON_COMPACT, &text, err));
    for (const char *c = text; *c; c++) {
        if (*c == '<')
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    }
    free(text);
    return BD_OK;
}

// ---- The content security policy: it allows scripts and styles by their hashes -------------

static void print_base64(FILE *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned group = (unsigned)bytes[i] << 16 |
                               (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0);
        fputc(digits[group >> 18], out);
        fputc(digits[group >> 12 & 63], out);
        fputc(left > 1 ? digits[group >> 6 & 63] : '=', out);
        fputc(left > 2 ? digits[group & 63] : '=', out);
    }
}

static void print_hash(FILE *out, const bd_page_part *part)
{
    fputs(" 'sha256-", out);
    print_base64(out, part->sha256, sizeof part->sha256);
    fputc('\'', out);
}

static void print_policy(FILE *out, const bd_page *page)
{
    fputs("default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src",
          out);
    print_hash(out, &bd_page_style);
    for (size_t i = 0; i < page->n_styles; i++)
        print_hash(out, page->styles[i]);
    fputs("; script-src", out);
    print_hash(out, &bd_page_script);
    print_hash(out, &bd_page_plots);
    for (size_t i = 0; i < page->n_scripts; i++)
        print_hash(out, page->scripts[i]);
}

// ---- The frame -----------------------------------------------------------------------------

// The hash is over everything between the tags.
static void print_element(FILE *out, const char *tag, const bd_page_part *part)
{
    fprintf(out, "<%s>", tag);
    print_page_part(out, part);
    fprintf(out, "</%s>\n", tag);
}

// Prints the text that stands for {{name}} in the frame.
static bd_status print_placeholder(FILE *out, const bd_page *page, const char *name, size_t n,
                                   bd_error *err)
{
#define NAME_IS(word) (n == sizeof(word) - 1 && memcmp(name, word, n) == 0)
    if (NAME_IS("title"))
        return print_escaped(out, page->title, err);
    if (NAME_IS("data"))
        return print_data(out, page->data, err);
    if (NAME_IS("policy")) {
        print_policy(out, page);
    } else if (NAME_IS("version")) {
        fputs(BINDERY_VERSION, out);
    } else if (NAME_IS("styles")) {
        print_element(out, "style", &bd_page_style);
        for (size_t i = 0; i < page->n_styles; i++)
            print_element(out, "style", page->styles[i]);
    } else if (NAME_IS("scripts")) {
        print_element(out, "script", &bd_page_script);
        print_element(out, "script", &bd_page_plots);
        for (size_t i = 0; i < page->n_scripts; i++)
            print_element(out, "script", page->scripts[i]);
    } else {
        assert(NAME_IS("body"));
        print_page_part(out, page->body);
    }
#undef NAME_IS
    return BD_OK;
}

static bd_status print_page(FILE *out, const bd_page *page, bd_error *err)
{
    const char *at = bd_page_frame.text, *end = at + bd_page_frame.size_bytes;
    for (;;) {
        const char *open = memmem(at, (size_t)(end - at), "{{", 2);
        const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        fwrite(at, 1, (size_t)((close ? open : end) - at), out);
        if (!close)
            return BD_OK;
        BD_TRY(print_placeholder(out, page, open + 2, (size_t)(close - open) - 2, err));
        at = close + 2;
    }
}

// ---- The file ------------------------------------------------------------------------------

static bd_status fail_there(const char *path, bd_error *err)
{
    return bd_fail(err, BD_ERR_ARGUMENT, "'%s' is there already (--overwrite replaces it)",
                   path);
}

bd_status bd_page_check_path(const char *path, bool overwrite, bd_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return BD_OK;
    if (S_ISDIR(info.st_mode))
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot write '%s': it is a folder", path);
    BD_TRY(bd_file_check_replaceable(path, err));
    // Publishing would replace the link (such as /dev/stdout), not the file that it leads to.
    if (S_ISLNK(info.st_mode))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot write '%s': it is a link; name the file that it leads to", path);
    return overwrite ? BD_OK : fail_there(path, err);
}

static bd_status publish_page(const char *path, bool overwrite, const char *text,
                              size_t size_bytes, bd_error *err)
{
    char *folder = bd_path_folder(path), *name = bd_path_last_name(path);
    bool there = false;
    int n_made = 0;
    bd_status status;
    if (!folder || !name)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    else if (*name == '\0' || path[strlen(path) - 1] == '/')
        status = bd_fail(err, BD_ERR_ARGUMENT, "cannot write '%s': it names a folder", path);
    else
        status = bd_folder_make(folder, &n_made, err);
    if (status == BD_OK && overwrite)
        status = bd_file_publish(folder, name, text, size_bytes, err);
    else if (status == BD_OK)
        status = bd_file_publish_new(folder, name, text, size_bytes, &there, err);
    if (status == BD_OK && there)
        status = fail_there(path, err);
    if (status != BD_OK && n_made > 0)
        bd_folder_withdraw(folder, n_made, -1);
    free(folder);
    free(name);
    return status;
}

bd_status bd_page_publish(const bd_page *page, const char *path, bool overwrite,
                          size_t *size_bytes, bd_error *err)
{
    bd_text_stream stream;
    BD_TRY(bd_page_check_path(path, overwrite, err));
    if (!bd_text_stream_open(&stream))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a page");
    bd_status status = print_page(stream.file, page, err);
    char *text = bd_text_stream_close(&stream, size_bytes);
    if (!text && status == BD_OK)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a page");
    if (status == BD_OK)
        status = publish_page(path, overwrite, text, *size_bytes, err);
    free(text);
    return status;
}
