// A settings file made of any bytes: either it is refused with its line, or its printed text is
// read as the same settings.
#include <string.h>

#include "common/cli/settings_file.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bd_status read_bytes(bd_settings_file *file, const void *data, size_t size)
{
    bd_error err = {0};
    memory_file_set(data, size);
    const bd_status status = bd_settings_file_read(file, memory_file_path(), &err);
    if (status != BD_OK) {
        const char *path = memory_file_path();
        REQUIRE(strncmp(err.message, path, strlen(path)) == 0);
        REQUIRE(err.message[strlen(path)] == ':' && atoi(err.message + strlen(path) + 1) > 0);
        REQUIRE(!file->items && !file->path);
    }
    return status;
}

static void require_same(const bd_setting *one, const bd_setting *other)
{
    REQUIRE(strcmp(one->name, other->name) == 0);
    REQUIRE(one->n == other->n && one->is_list == other->is_list);
    REQUIRE(one->is_list || one->n == 1);
    for (size_t i = 0; i < one->n; i++)
        REQUIRE(strcmp(one->values[i], other->values[i]) == 0);
}

// Names are printed as they are, because names of options need no quotation marks.
static bool is_plain(const char *name)
{
    return *name != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz") == strlen(name) &&
           strcmp(name, "null") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bd_settings_file file, again;
    if (read_bytes(&file, data, size) != BD_OK)
        return 0;
    bool all_plain = true;
    for (size_t i = 0; i < file.n; i++) {
        file.items[i].is_text = true;
        all_plain &= is_plain(file.items[i].name);
    }
    char *text;
    size_t size_bytes;
    if (all_plain) {
        REQUIRE(bd_settings_file_print(&file, &text, &size_bytes, NULL) == BD_OK);
        REQUIRE(read_bytes(&again, text, size_bytes) == BD_OK);
        REQUIRE(again.n == file.n);
        for (size_t i = 0; i < file.n; i++)
            require_same(&file.items[i], &again.items[i]);
        bd_settings_file_release(&again);
        free(text);
    }
    bd_settings_file_release(&file);
    return 0;
}
