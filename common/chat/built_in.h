// built_in.h - the texts of the built-in chat formats, which CMake makes of common/chat/formats/.
#ifndef BINDERY_COMMON_CHAT_BUILT_IN_H
#define BINDERY_COMMON_CHAT_BUILT_IN_H

#include <stddef.h>

typedef struct bd_chat_format_text {
    const char *text;  // JSON, without a terminator
    size_t size_bytes;
} bd_chat_format_text;

// In the order of bd_built_in_chat_formats.
extern const bd_chat_format_text bd_built_in_chat_format_texts[];

#endif
