// tokenizer_file.h - the name of a tokenizer's file, and its largest size.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_TOKENIZER_FILE_H
#define BINDERY_COMMON_TOKENIZER_MODEL_TOKENIZER_FILE_H

#define BD_TOKENIZER_NAME "tokenizer.json"
enum { BD_MAX_TOKENIZER_FILE = 1 << 28 };  // bytes

#endif
