#include "trainer/weights/pretrained_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_parameters(const void *left, const void *right)
{
    const bd_parameter *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

bd_status bd_pretrained_names_init(bd_pretrained_names *names, const bd_parameters *parameters,
                                   bd_error *err)
{
    *names = (bd_pretrained_names){.parameters = parameters};
    names->sorted = malloc((parameters->n + 1) * sizeof *names->sorted);
    if (!names->sorted)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the names of %zu parameters",
                       parameters->n);
    for (size_t i = 0; i < parameters->n; i++)
        names->sorted[i] = &parameters->items[i];
    qsort(names->sorted, parameters->n, sizeof *names->sorted, compare_parameters);
    return BD_OK;
}

void bd_pretrained_names_release(bd_pretrained_names *names)
{
    free(names->sorted);
    *names = (bd_pretrained_names){0};
}

// The parameter that is called `rest` behind `prefix`; NULL if none is.
static const bd_parameter *find_parameter(const bd_pretrained_names *names, const char *prefix,
                                          const char *rest)
{
    bd_parameter wanted;
    const int n = snprintf(wanted.name, sizeof wanted.name, "%s%s", prefix, rest);
    if (n < 0 || (size_t)n >= sizeof wanted.name)
        return NULL;  // longer than any of ours
    const bd_parameter *key = &wanted;
    const bd_parameter **found = bsearch(&key, names->sorted, names->parameters->n,
                                         sizeof *names->sorted, compare_parameters);
    return found ? *found : NULL;
}

// "h.3.attn.bias", "h.3.attn.masked_bias"
static bool is_buffer(const bd_model_config *config, const char *rest)
{
    const bd_family *family = config->family;
    const size_t length = strlen(family->layers);
    if (strncmp(rest, family->layers, length) != 0 || rest[length] != '.')
        return false;
    const char *digits = rest + length + 1, *end = digits + strspn(digits, "0123456789");
    if (end == digits || end - digits > 9 || strtoll(digits, NULL, 10) >= config->n_layers ||
        *end != '.')
        return false;
    for (const char *const *buffer = family->buffers; *buffer; buffer++)
        if (strcmp(end + 1, *buffer) == 0)
            return true;
    return false;
}

bd_tensor_meaning bd_pretrained_meaning(const bd_pretrained_names *names, const char *name,
                                        size_t *index)
{
    const bd_model_config *config = &names->parameters->config;
    const char *ours = config->family->prefixes[0];
    const bd_parameter *parameter = NULL;
    if (strcmp(name, BD_HEAD_NAME) == 0) {
        if (!config->has_head)
            return BD_TENSOR_TIED_HEAD;
        parameter = find_parameter(names, "", name);
    }
    for (const char *const *prefix = config->family->prefixes; !parameter && *prefix;
         prefix++) {
        if (strncmp(name, *prefix, strlen(*prefix)) != 0)
            continue;
        const char *rest = name + strlen(*prefix);
        parameter = find_parameter(names, ours, rest);
        if (!parameter && is_buffer(config, rest))
            return BD_TENSOR_BUFFER;
    }
    if (!parameter)
        return BD_TENSOR_UNKNOWN;
    *index = (size_t)(parameter - names->parameters->items);
    return BD_TENSOR_PARAMETER;
}
