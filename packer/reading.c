#include "packer/reading.h"

#include <stddef.h>

const char *const bd_utf8_policy_words[] = {"error", "keep", "replace", NULL};
const char *const bd_separator_mode_words[] = {"append", "present", NULL};
const char *const bd_bad_policy_words[] = {"error", "skip", NULL};
const char *const bd_format_choice_words[] = {"auto",     "text",  "jsonl",  "parquet", "arrow",
                                              "megatron", "llm.c", "tokens", NULL};
