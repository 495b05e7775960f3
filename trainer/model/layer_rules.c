#include "trainer/model/layer_rules.h"

#include <inttypes.h>
#include <string.h>

// What transformers take for fields that a file leaves out.
enum {
    USUAL_WINDOW = 4096,
    USUAL_FIRST_WINDOW = 28,
    USUAL_PATTERN = 6,
    USUAL_UNROTATED_INTERVAL = 4,
};

static const char SLIDING[] = "sliding_attention", FULL[] = "full_attention";

#define RULE(name) (1u << BD_WINDOWS_##name)
static const struct {
    const char *key;
    unsigned windows;  // families with one of these rules read it
    bool rotations;    // families with unrotated layers read it
} rule_fields[] = {
    {"sliding_window", RULE(ALL) | RULE(LATER) | RULE(MOST) | RULE(UNROTATED), false},
    {"layer_types", RULE(LATER) | RULE(MOST) | RULE(UNROTATED), false},
    {"use_sliding_window", RULE(LATER) | RULE(UNROTATED), false},
    {"max_window_layers", RULE(LATER) | RULE(UNROTATED), false},
    {"sliding_window_pattern", RULE(MOST), false},
    {"_sliding_window_pattern", RULE(MOST), false},
    {"no_rope_layers", 0, true},
    {"no_rope_layer_interval", 0, true},
};

bool bd_layer_rules_know(const bd_family *family, const char *key)
{
    for (size_t i = 0; i < sizeof rule_fields / sizeof rule_fields[0]; i++)
        if (strcmp(key, rule_fields[i].key) == 0)
            return (rule_fields[i].windows & 1u << family->windows) != 0 ||
                   (rule_fields[i].rotations && family->has_unrotated_layers);
    return false;
}

// ---- Reading ----------------------------------------------------------------------------

static bd_status optional_integer(const bd_json *json, const char *key, int64_t min,
                                  int64_t *value, bd_error *err)
{
    return bd_json_is_null(json, key)
               ? BD_OK
               : bd_json_get_integer(json, key, min, INT64_C(1) << 32, value, err);
}

// A list with an entry for each layer; there may be more.
static bd_status read_list(const bd_json *json, const char *key, int64_t n_layers,
                           const bd_json **list, bd_error *err)
{
    BD_TRY(bd_json_get_array(json, key, list, err));
    if (bd_json_length(*list) < (size_t)n_layers)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' has only %zu entries for %" PRId64 " layers",
                       key, bd_json_length(*list), n_layers);
    return BD_OK;
}

// "layer_types", which newer files have, says of each layer what the rule of the family says
// otherwise.
static bd_status read_layer_types(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const bd_json *list;
    BD_TRY(read_list(json, "layer_types", config->n_layers, &list, err));
    config->windowed = (bd_layer_set){{0}};
    for (int64_t l = 0; l < config->n_layers; l++) {
        const char *type;
        BD_TRY(bd_json_as_string(bd_json_at(list, (size_t)l), &type, err));
        if (strcmp(type, SLIDING) == 0)
            bd_layer_set_add(&config->windowed, l);
        else if (strcmp(type, FULL) != 0)
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "layer %" PRId64 " is of type '%.40s', not %s or %s", l, type, FULL,
                           SLIDING);
    }
    return BD_OK;
}

static bool is_left_out(const bd_json *json, const char *key)
{
    for (bd_json_member m = bd_json_first(json); m.key; m = bd_json_next(json, m))
        if (strcmp(m.key, key) == 0)
            return false;
    return true;
}

static bd_status read_windows(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const bd_window_rule rule = config->family->windows;
    int64_t first = USUAL_FIRST_WINDOW, pattern = USUAL_PATTERN;
    bool uses = rule == BD_WINDOWS_ALL || rule == BD_WINDOWS_MOST;
    if (!uses && !bd_json_is_null(json, "use_sliding_window"))
        BD_TRY(bd_json_get_bool(json, "use_sliding_window", &uses, err));
    if (rule == BD_WINDOWS_LATER)
        BD_TRY(optional_integer(json, "max_window_layers", 0, &first, err));
    if (rule == BD_WINDOWS_MOST) {
        BD_TRY(optional_integer(json, "sliding_window_pattern", 1, &pattern, err));
    }
    if (uses) {
        if (is_left_out(json, "sliding_window") && rule != BD_WINDOWS_UNROTATED)
            config->window = USUAL_WINDOW;
        BD_TRY(optional_integer(json, "sliding_window", 1, &config->window, err));
    }
    for (int64_t l = 0; config->window > 0 && l < config->n_layers; l++) {
        const bool has_window = rule == BD_WINDOWS_LATER  ? l >= first
                                : rule == BD_WINDOWS_MOST ? (l + 1) % pattern != 0
                                : rule == BD_WINDOWS_UNROTATED
                                    ? bd_layer_set_has(&config->unrotated, l)
                                    : true;
        if (has_window)
            bd_layer_set_add(&config->windowed, l);
    }
    if (!bd_json_is_null(json, "layer_types"))
        BD_TRY(read_layer_types(config, json, err));
    int64_t n_windowed = 0;
    for (int64_t l = 0; l < config->n_layers; l++)
        n_windowed += bd_layer_set_has(&config->windowed, l);
    if (rule == BD_WINDOWS_MOST && config->window == 0 && bd_json_is_null(json, "layer_types"))
        return bd_fail(err, BD_ERR_FORMAT,
                       "'sliding_window' is null, but most layers have one");
    if (n_windowed > 0 && config->window == 0)
        return bd_fail(err, BD_ERR_FORMAT, "'layer_types' has %s, but there is no window",
                       SLIDING);
    if (n_windowed == 0)
        config->window = 0;
    return BD_OK;
}

// An entry 1 means that the layer is rotated.
static bd_status read_unrotated(bd_model_config *config, const bd_json *json, bd_error *err)
{
    int64_t interval = USUAL_UNROTATED_INTERVAL;
    if (bd_json_is_null(json, "no_rope_layers")) {
        BD_TRY(optional_integer(json, "no_rope_layer_interval", 1, &interval, err));
        for (int64_t l = interval - 1; l < config->n_layers; l += interval)
            bd_layer_set_add(&config->unrotated, l);
        return BD_OK;
    }
    const bd_json *list;
    BD_TRY(read_list(json, "no_rope_layers", config->n_layers, &list, err));
    for (int64_t l = 0; l < config->n_layers; l++) {
        int64_t is_rotated;
        BD_TRY(bd_json_as_integer(bd_json_at(list, (size_t)l), 0, 1, &is_rotated, err));
        if (!is_rotated)
            bd_layer_set_add(&config->unrotated, l);
    }
    return BD_OK;
}

bd_status bd_layer_rules_read(bd_model_config *config, const bd_json *json, bd_error *err)
{
    if (config->family->has_unrotated_layers)
        BD_TRY(read_unrotated(config, json, err));
    return config->family->windows != BD_WINDOWS_NONE ? read_windows(config, json, err) : BD_OK;
}

// ---- Writing ----------------------------------------------------------------------------

void bd_layer_rules_write(bd_json *json, const bd_model_config *config)
{
    const bd_window_rule rule = config->family->windows;
    if (rule == BD_WINDOWS_LATER || rule == BD_WINDOWS_UNROTATED)
        bd_json_set_bool(json, "use_sliding_window", config->window > 0);
    if (rule != BD_WINDOWS_NONE) {
        if (config->window > 0)
            bd_json_set_integer(json, "sliding_window", config->window);
        else
            bd_json_set_null(json, "sliding_window");
    }
    // Mistral's class in transformers knows no types of layers.
    if (rule != BD_WINDOWS_NONE && rule != BD_WINDOWS_ALL) {
        bd_json *types = bd_json_array();
        for (int64_t l = 0; l < config->n_layers; l++)
            bd_json_append(
                types, bd_json_string(bd_layer_set_has(&config->windowed, l) ? SLIDING : FULL));
        bd_json_set(json, "layer_types", types);
    }
    if (config->family->has_unrotated_layers) {
        bd_json *rotated = bd_json_array();
        for (int64_t l = 0; l < config->n_layers; l++)
            bd_json_append(rotated, bd_json_integer(!bd_layer_set_has(&config->unrotated, l)));
        bd_json_set(json, "no_rope_layers", rotated);
    }
}
