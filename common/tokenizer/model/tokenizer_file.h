// tokenizer_file.h - what a tokenizer's file is called, and how large it may be.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_TOKENIZER_FILE_H
#define BINDERY_COMMON_TOKENIZER_MODEL_TOKENIZER_FILE_H

#define BD_TOKENIZER_NAME "tokenizer.json"
enum { BD_MAX_TOKENIZER_FILE = 1 << 28 };  // bytes

#endif
