#include "trainer/weights/pretrained_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const bd_model_config opt = {.family = &bd_family_opt,
                                    .n_layers = 11,
                                    .n_channels = 6,
                                    .n_heads = 3,
                                    .n_feed_forward = 5,
                                    .n_positions = 7,
                                    .n_vocabulary = 9};
static const bd_model_config gpt2 = {.family = &bd_family_gpt2,
                                     .n_layers = 11,
                                     .n_channels = 6,
                                     .n_heads = 3,
                                     .n_feed_forward = 5,
                                     .n_positions = 7,
                                     .n_vocabulary = 9};

typedef struct subject {
    bd_parameters parameters;
    bd_pretrained_names names;
} subject;

static void open_names(subject *s, const bd_model_config *config)
{
    assert_int_equal(bd_parameters_init(&s->parameters, config, NULL), BD_OK);
    assert_int_equal(bd_pretrained_names_init(&s->names, &s->parameters, NULL), BD_OK);
}

static void close_names(subject *s)
{
    bd_pretrained_names_release(&s->names);
    bd_pretrained_names_release(&s->names);
    bd_parameters_release(&s->parameters);
}

static bd_tensor_meaning meaning(const subject *s, const char *name)
{
    size_t index;
    return bd_pretrained_meaning(&s->names, name, &index);
}

static void every_parameter_is_found_with_and_without_its_prefix(void **state)
{
    (void)state;
    static const struct {
        const bd_model_config *config;
        const char *ours, *others[2];
    } cases[] = {{&opt, "model.decoder.", {"decoder.", ""}},
                 {&gpt2, "transformer.", {"", "transformer."}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        subject s;
        open_names(&s, cases[c].config);
        for (size_t i = 0; i < s.parameters.n; i++) {
            const char *name = s.parameters.items[i].name;
            size_t index = SIZE_MAX;
            assert_int_equal(bd_pretrained_meaning(&s.names, name, &index),
                             BD_TENSOR_PARAMETER);
            assert_int_equal(index, i);
            assert_int_equal(strncmp(name, cases[c].ours, strlen(cases[c].ours)), 0);
            for (int o = 0; o < 2; o++) {
                char other[100];
                snprintf(other, sizeof other, "%s%s", cases[c].others[o],
                         name + strlen(cases[c].ours));
                index = SIZE_MAX;
                assert_int_equal(bd_pretrained_meaning(&s.names, other, &index),
                                 BD_TENSOR_PARAMETER);
                assert_int_equal(index, i);
            }
        }
        close_names(&s);
    }
}

static void head_and_stored_masks_are_known(void **state)
{
    (void)state;
    subject s;
    open_names(&s, &gpt2);
    assert_int_equal(meaning(&s, "lm_head.weight"), BD_TENSOR_TIED_HEAD);
    static const char *const buffers[] = {"h.0.attn.bias", "transformer.h.10.attn.bias",
                                          "h.9.attn.masked_bias",
                                          "transformer.h.0.attn.masked_bias"};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        assert_int_equal(meaning(&s, buffers[i]), BD_TENSOR_BUFFER);
    close_names(&s);
}

static void anything_else_is_unknown(void **state)
{
    (void)state;
    static const char *const neither[] = {
        "",
        "transformer.",
        "model.decoder.",
        "lm_head.bias",
        "transformer.lm_head.weight",
        "wte",
        "transformer.transformer.wte.weight",
        "model.decoder.decoder.embed_tokens.weight",
        "model.embed_tokens.weight",
        "h.11.ln_1.weight",
        "layers.11.fc1.bias",
        "h.11.attn.bias",
        "h.-1.attn.bias",
        "h..attn.bias",
        "h.99999999999999999999.attn.bias",
        "h.0.attn.bias.",
        "h.0.crossattention.bias",
        "transformer.h.0.ln_1.weight\n",
        "h.00.ln_1.weight",
    };
    const bd_model_config *const configs[] = {&opt, &gpt2};
    for (int c = 0; c < 2; c++) {
        subject s;
        open_names(&s, configs[c]);
        for (size_t i = 0; i < sizeof neither / sizeof neither[0]; i++)
            if (meaning(&s, neither[i]) != BD_TENSOR_UNKNOWN)
                fail_msg("'%s' is taken for something", neither[i]);
        char endless[5000];
        memset(endless, 'x', sizeof endless - 1);
        endless[sizeof endless - 1] = '\0';
        assert_int_equal(meaning(&s, endless), BD_TENSOR_UNKNOWN);
        close_names(&s);
    }
}

static void one_family_does_not_know_the_others_names(void **state)
{
    (void)state;
    subject left, right;
    open_names(&left, &opt);
    open_names(&right, &gpt2);
    for (size_t i = 0; i < left.parameters.n; i++)
        assert_int_equal(meaning(&right, left.parameters.items[i].name), BD_TENSOR_UNKNOWN);
    for (size_t i = 0; i < right.parameters.n; i++)
        assert_int_equal(meaning(&left, right.parameters.items[i].name), BD_TENSOR_UNKNOWN);
    assert_int_equal(meaning(&left, "h.0.attn.bias"), BD_TENSOR_UNKNOWN);
    close_names(&left);
    close_names(&right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_is_found_with_and_without_its_prefix),
        cmocka_unit_test(head_and_stored_masks_are_known),
        cmocka_unit_test(anything_else_is_unknown),
        cmocka_unit_test(one_family_does_not_know_the_others_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
