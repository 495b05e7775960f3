#include "packer/pack/plan_difference.h"

#include <stdbool.h>
#include <string.h>

// What an input's contents decide; all else says what it is and how it is read.
static const char *const content_keys[] = {"compression", "bytes",  "weight", "extent",
                                           "stride",      "starts", "edges",  NULL};
static const char *const share_keys[] = {"max_bad", NULL};
static const char *const no_keys[] = {NULL};

// What a plan of an older format does not say, and what it is read as.
static const struct {
    const char *key, *word;
} later_readings[] = {{"bad_records", "error"}, {"special_tokens", "token"}};

static bool is_among(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

static bd_json *copy_without(const bd_json *object, const char *const *keys)
{
    bd_json *copy = bd_json_object();
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m))
        if (!is_among(m.key, keys))
            bd_json_set(copy, m.key, bd_json_share(m.value));
    return copy;
}

// How much of a plan is compared.
typedef enum scope {
    WHAT_IS_READ,        // and how
    AND_ITS_CONTENTS,    // the inputs'
    AND_THE_BAD_RECORDS  // how many there may be: everything but the format's version
} scope;

static bd_json *copy_reading(const bd_json *reading, scope how_much)
{
    bd_json *copy = how_much < AND_THE_BAD_RECORDS ? copy_without(reading, share_keys)
                                                   : copy_without(reading, no_keys);
    for (size_t i = 0; i < sizeof later_readings / sizeof *later_readings; i++)
        if (bd_json_is_null(copy, later_readings[i].key))
            bd_json_set_string(copy, later_readings[i].key, later_readings[i].word);
    if (how_much == AND_THE_BAD_RECORDS && bd_json_is_null(copy, share_keys[0]))
        bd_json_set_integer(copy, share_keys[0], 0);
    return copy;
}

// The version of the format is none of the job's.
static bd_json *simplify(const bd_json *plan, scope how_much)
{
    static const char *const replaced[] = {"format", "reading", "inputs", NULL};
    const bd_json *reading, *inputs;
    bd_json *copy = copy_without(plan, replaced);
    if (bd_json_get_object(plan, "reading", &reading, NULL) == BD_OK)
        bd_json_set(copy, "reading", copy_reading(reading, how_much));
    if (bd_json_get_array(plan, "inputs", &inputs, NULL) != BD_OK)
        return copy;
    bd_json *simple = bd_json_array();
    for (size_t i = 0; i < bd_json_length(inputs); i++)
        bd_json_append(simple, copy_without(bd_json_at(inputs, i),
                                            how_much == WHAT_IS_READ ? content_keys : no_keys));
    bd_json_set(copy, "inputs", simple);
    return copy;
}

static bool differ(const bd_json *here, const bd_json *there, scope how_much, char *where,
                   size_t where_size)
{
    bd_json *a = simplify(here, how_much), *b = simplify(there, how_much);
    const bool found = bd_json_difference(a, b, where, where_size);
    bd_json_free(a);
    bd_json_free(b);
    return found;
}

bd_plan_difference bd_plan_compare(const bd_json *here, const bd_json *there, char *where,
                                   size_t where_size)
{
    *where = '\0';
    return differ(here, there, WHAT_IS_READ, where, where_size)          ? BD_PLANS_DIFFER
           : differ(here, there, AND_ITS_CONTENTS, where, where_size)    ? BD_PLANS_READ_CHANGED
           : differ(here, there, AND_THE_BAD_RECORDS, where, where_size) ? BD_PLANS_ALLOW_OTHERS
                                                                         : BD_PLANS_ARE_SAME;
}
