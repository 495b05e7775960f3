// pretrained_files.h - the safetensors files of a Hugging Face folder: one, or those that an
// index names.
//
//   model.safetensors               everything, or
//   model.safetensors.index.json    {"weight_map": {"transformer.wte.weight":
//                                                    "model-00001-of-00002.safetensors", ...}}
#ifndef BINDERY_TRAINER_WEIGHTS_PRETRAINED_FILES_H
#define BINDERY_TRAINER_WEIGHTS_PRETRAINED_FILES_H

#include <stddef.h>

#include "common/base/error.h"
#include "trainer/weights/safetensors.h"

#define BD_PRETRAINED_TENSORS "model.safetensors"
#define BD_PRETRAINED_INDEX   BD_PRETRAINED_TENSORS ".index.json"
#define BD_PRETRAINED_CONFIG  "config.json"

enum { BD_PRETRAINED_MAX_FILES = 256 };

typedef struct bd_pretrained_files {
    char *path;              // of the one file, or of the index; owned, for messages
    bd_safetensors **items;  // [n], owned
    size_t n;
} bd_pretrained_files;

// Opens them all. As in transformers, an index is ignored if model.safetensors exists. With an
// index, every tensor must lie in the file that the index names, no file may hold any other
// tensor, and no file may lie outside the folder. Close the result. On failure *files is empty.
bd_status bd_pretrained_files_open(bd_pretrained_files *files, const char *folder,
                                   bd_error *err);
void bd_pretrained_files_close(bd_pretrained_files *files);  // safe if empty, safe twice

#endif
