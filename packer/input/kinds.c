#include "packer/input/kinds.h"

#include <string.h>
#include <strings.h>

#define DEFINE_NAME(id, word) const char bd_##id##_name[] = word;
BD_FOR_EACH_INPUT_KIND(DEFINE_NAME)

#define ADDRESS(id, word) &bd_##id##_kind,
const bd_input_kind *const bd_input_kinds[] = {BD_FOR_EACH_INPUT_KIND(ADDRESS) NULL};

#define NAME(id, word) bd_##id##_name,
const char *const bd_format_names[] = {"auto", BD_FOR_EACH_INPUT_KIND(NAME) NULL};

const bd_input_kind *bd_input_kind_chosen(int format)
{
    return format == 0 ? NULL : bd_input_kinds[format - 1];
}

const bd_input_kind *bd_input_kind_named(const char *name)
{
    size_t i = 0;
    while (bd_input_kinds[i] && strcmp(bd_input_kinds[i]->name, name) != 0)
        i++;
    return bd_input_kinds[i];
}

const char *bd_position_unit(const char *name)
{
    const bd_input_kind *kind = bd_input_kind_named(name);
    const char *space = kind ? strrchr(kind->place, ' ') : NULL;
    return space ? space + 1 : kind ? kind->place : "byte";
}

bool bd_name_has_ending(const char *name, const char *ending)
{
    const size_t n = bd_uncompressed_length(name), m = strlen(ending);
    return n > m && strncasecmp(name + n - m, ending, m) == 0;
}

const bd_input_kind *bd_input_kind_by_ending(const char *name)
{
    for (size_t i = 0; bd_input_kinds[i]; i++)
        for (const char *const *ending = bd_input_kinds[i]->endings; ending && *ending;
             ending++)
            if (bd_name_has_ending(name, *ending))
                return bd_input_kinds[i];
    return NULL;
}
