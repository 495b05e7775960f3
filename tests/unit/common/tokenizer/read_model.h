// read_model.h - reads models from small files, or fails the test.
#ifndef BINDERY_TESTS_UNIT_COMMON_TOKENIZER_READ_MODEL_H
#define BINDERY_TESTS_UNIT_COMMON_TOKENIZER_READ_MODEL_H

#include "common/tokenizer/model/bpe_model.h"
#include "tests/unit/common/tokenizer/byte_vocabulary.h"
#include "tests/unit/temporary_folder.h"

static inline bd_status parse(bd_bpe_model *model, tokenizer_text t, bd_error *err)
{
    char *text = tokenizer_json(t);
    assert_non_null(text);
    *err = (bd_error){0};
    const bd_status status = bd_bpe_model_parse_json(model, text, strlen(text), "t.json", err);
    free(text);
    return status;
}

static inline bd_bpe_model parsed(tokenizer_text t)
{
    bd_bpe_model model;
    bd_error err;
    const bd_status status = parse(&model, t, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, BD_OK);
    return model;
}

static inline bd_bpe_model loaded(const char *spec)
{
    bd_bpe_model model;
    bd_error err = {0};
    const bd_status status = bd_bpe_model_load(&model, spec, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, BD_OK);
    return model;
}

#endif
