// layer_rules.h - fields of config.json that say which layers have a window or no rotation.
#ifndef BINDERY_TRAINER_MODEL_LAYER_RULES_H
#define BINDERY_TRAINER_MODEL_LAYER_RULES_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "trainer/model/model_config.h"

// Sets window, windowed and unrotated of a config whose other members are read.
bd_status bd_layer_rules_read(bd_model_config *config, const bd_json *json, bd_error *err);

// Adds the same fields to `json`.
void bd_layer_rules_write(bd_json *json, const bd_model_config *config);

// Whether `key` is a field of these rules in the family's files. (transformers write some that
// they do not read.)
bool bd_layer_rules_know(const bd_family *family, const char *key);

#endif
