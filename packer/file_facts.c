#include "packer/file_facts.h"

#include <stddef.h>

static const struct {
    const char *key;
    size_t offset;
} fields[] = {
    {"bytes", offsetof(bd_file_facts, size_bytes)},
    {"modified_ns", offsetof(bd_file_facts, modified_ns)},
    {"inode", offsetof(bd_file_facts, inode)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static int64_t value_of(const bd_file_facts *facts, int field)
{
    return *(const int64_t *)((const char *)facts + fields[field].offset);
}

bd_file_facts bd_file_facts_of(const struct stat *info)
{
    return (bd_file_facts){
        .size_bytes = info->st_size,
        .modified_ns =
            (int64_t)info->st_mtim.tv_sec * INT64_C(1000000000) + info->st_mtim.tv_nsec,
        .inode = (int64_t)info->st_ino,
    };
}

bool bd_file_has_facts(const char *path, const bd_file_facts *facts)
{
    struct stat info;
    bool same = stat(path, &info) == 0;
    const bd_file_facts now = same ? bd_file_facts_of(&info) : (bd_file_facts){0};
    for (int i = 0; i < N_FIELDS; i++)
        same = same && value_of(&now, i) == value_of(facts, i);
    return same;
}

void bd_file_facts_to_json(const bd_file_facts *facts, bd_json *json)
{
    for (int i = 0; i < N_FIELDS; i++)
        bd_json_set_integer(json, fields[i].key, value_of(facts, i));
}

bool bd_file_facts_are_in(const bd_json *json, const bd_file_facts *facts)
{
    for (int i = 0; i < N_FIELDS; i++) {
        int64_t value;
        if (bd_json_get_integer(json, fields[i].key, INT64_MIN, INT64_MAX, &value, NULL) !=
                BD_OK ||
            value != value_of(facts, i))
            return false;
    }
    return true;
}
