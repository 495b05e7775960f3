#include "packer/reading.h"

#include <stddef.h>

const char *const bd_utf8_policy_words[] = {"error", "keep", "replace", NULL};
const char *const bd_separator_mode_words[] = {"append", "present", NULL};
const char *const bd_bad_policy_words[] = {"error", "skip", NULL};
const char *const bd_format_choice_words[] = {"auto",     "text",  "jsonl",  "parquet", "arrow",
                                              "megatron", "llm.c", "tokens", NULL};

int64_t bd_reading_table_bytes(const bd_reading *reading)
{
    const int64_t least_bytes = INT64_C(64) << 20;
    return reading->unit_bytes > least_bytes ? reading->unit_bytes : least_bytes;
}
