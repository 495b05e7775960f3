// settings_file.h - a file of settings: one YAML mapping from names to values.
//
//   # a comment
//   data: [web:0.7, code:0.3]
//   steps: 3000
//   recompute: true
//
// Values are texts as they stand in the file; the table of options (options.h) tells their
// types. The rest of YAML is refused: mappings inside, lists of lists, anchors and aliases,
// tags, a second document. So the time and memory that reading takes are bounded by the size of
// the file.
#ifndef BINDERY_COMMON_CLI_SETTINGS_FILE_H
#define BINDERY_COMMON_CLI_SETTINGS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

enum { BD_MAX_SETTINGS_BYTES = 1 << 20 };

typedef struct bd_setting {
    char *name;     // owned, and so are the values
    char **values;  // [n]; exactly one unless is_list
    size_t n, capacity;
    bool is_list;  // "[a]" and "a" are not the same
    bool is_text;  // printed between quotation marks
    size_t line;   // of the name, from 1
} bd_setting;

typedef struct bd_settings_file {
    char *path;         // owned
    bd_setting *items;  // [n], owned, in the order of the file; a name may be there twice
    size_t n, capacity;
} bd_settings_file;

// Reads a file of at most BD_MAX_SETTINGS_BYTES. A file that is not of this form is
// BD_ERR_FORMAT with a message that begins "PATH:LINE: ". On failure *file is empty; else the
// caller releases it.
bd_status bd_settings_file_read(bd_settings_file *file, const char *path, bd_error *err);
void bd_settings_file_release(bd_settings_file *file);  // safe if empty, safe twice

// Adds a setting without values; *setting is valid until the next one is added.
bd_status bd_settings_file_add(bd_settings_file *file, const char *name, bd_setting **setting,
                               bd_error *err);
void bd_settings_file_drop_last(bd_settings_file *file);
// Adds a value, which is copied and must be UTF-8.
bd_status bd_setting_add(bd_setting *setting, const char *value, bd_error *err);

// The file's text, which bd_settings_file_read() reads as the same settings; malloc'd.
bd_status bd_settings_file_print(const bd_settings_file *file, char **text, size_t *size_bytes,
                                 bd_error *err);

#endif
