// The generator with a model that follows a script: where documents end, and what is certain of
// their text before.
#include "trainer/generator.h"

#include "common/base/random.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/model/family.h"

// ---- A tokenizer of a few tokens ------------------------------------------------------------

// The prompt is made of the tokens of one byte. The last one is the separator.
static const char *const tokens[] = {"c",    "a",    "t",        "!",    "cat", "at!",
                                     "tcat", "\xc3", "\xa4\xe2", "\x82", ""};
enum { N_TOKENS = sizeof tokens / sizeof tokens[0], SEPARATOR = N_TOKENS - 1 };
enum { C, A, T, BANG, CAT, AT_BANG, T_CAT, HALF, OTHER_HALF, MIDDLE };

static size_t max_ids(const bd_tokenizer *tokenizer, size_t size_bytes)
{
    (void)tokenizer;
    return size_bytes;
}

static bd_status encode(bd_encoder *encoder, const char *text, size_t size_bytes, uint32_t *ids,
                        size_t *n, bd_error *err)
{
    (void)encoder;
    (void)err;
    for (*n = 0; *n < size_bytes; (*n)++)
        ids[*n] = (uint32_t)(strchr("cat!", text[*n]) - "cat!");
    return BD_OK;
}

static const char *token_bytes(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes)
{
    (void)tokenizer;
    *size_bytes = strlen(tokens[id]);
    return *size_bytes > 0 ? tokens[id] : NULL;
}

static const bd_tokenizer_kind kind = {
    .max_ids = max_ids, .encode = encode, .token_bytes = token_bytes};
static const bd_tokenizer tokenizer = {
    .kind = &kind, .name = "few", .vocab_size = N_TOKENS, .takes_text = true};

// ---- A model that draws the ids of a script -------------------------------------------------

enum { N_POSITIONS = 32, MAX_SCRIPT = 12 };

static const bd_operations *honest;
static uint32_t script[MAX_SCRIPT];
static int n_written;
static size_t free_bytes;

static bd_status stated_free_memory(bd_backend *backend, size_t *size_bytes, bd_error *err)
{
    (void)backend;
    (void)err;
    *size_bytes = free_bytes;
    return BD_OK;
}

static bd_status follow_script(bd_backend *backend, const bd_linear_by_token_args *args,
                               bd_error *err)
{
    if (args->n_out != N_TOKENS)
        return honest->linear_by_token(backend, args, err);
    assert_int_equal(args->n_tokens, 1);
    assert_true(n_written < MAX_SCRIPT);
    for (int64_t id = 0; id < N_TOKENS; id++)
        ((float *)args->out)[id] = id == script[n_written] ? 1.0f : 0.0f;
    n_written++;
    return BD_OK;
}

typedef struct world {
    bd_backend *backend;
    bd_operations table;
    bd_parameters parameters;
    bd_run_tokenizer tokenizer;
} world;

static void open_world(world *w, int64_t n_positions, int64_t bos)
{
    bd_error err;
    const bd_model_config config = {
        .family = &bd_family_gpt2,
        .n_layers = 1,
        .n_channels = 8,
        .n_heads = 1,
        .n_kv_heads = 1,
        .head_size = 8,
        .n_feed_forward = 16,
        .n_positions = n_positions,
        .n_vocabulary = N_TOKENS,
    };
    check(bd_parameters_init(&w->parameters, &config, &err), &err);
    check(bd_backend_open_cpu(&w->backend, 1, &err), &err);
    honest = w->backend->operations;
    w->table = *honest;
    w->table.linear_by_token = follow_script;
    w->backend->operations = &w->table;
    w->tokenizer = (bd_run_tokenizer){&tokenizer, SEPARATOR, bos};
}

static void close_world(world *w)
{
    w->backend->operations = honest;
    honest->close(w->backend);
    bd_parameters_release(&w->parameters);
}

static bd_generator make_generator(world *w, const char *prompt, int64_t max_tokens,
                                   bd_texts stops)
{
    bd_error err;
    bd_generator generator;
    const bd_generator_options options = {.max_tokens = max_tokens, .stops = stops};
    check(bd_generator_init(&generator, w->backend, &w->parameters, &w->tokenizer, &prompt, 1,
                            &options, &err),
          &err);
    return generator;
}

// ---- What must come out ---------------------------------------------------------------------

static bool begins_stop(const char *text, size_t n, bd_texts stops)
{
    for (size_t i = 0; i < stops.n; i++)
        if (n < strlen(stops.items[i]) && memcmp(text, stops.items[i], n) == 0)
            return true;
    return n == 0;
}

// Where the first of the stops begins in the text; n if there is none.
static size_t first_stop(const char *text, size_t n, bd_texts stops)
{
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < stops.n; i++) {
            const size_t size = strlen(stops.items[i]);
            if (size <= n - at && memcmp(text + at, stops.items[i], size) == 0)
                return at;
        }
    return n;
}

// Generates from the prompt "c" and the script, and compares text and ending with what a search
// of the whole new text finds after every token. What is certain is as much as can be.
static void expect_as_searched(world *w, int64_t max_tokens, bd_texts stops, bd_ending wanted)
{
    bd_error err;
    bd_generator generator = make_generator(w, "c", max_tokens, stops);
    const bd_continuation *document = &generator.documents[0];
    char text[64] = "";
    size_t n_text = 0, n_certain = 1;
    bool ended = false;
    bd_ending ending = BD_ENDING_NONE;
    n_written = 0;
    while (!ended) {
        check(bd_generator_step(&generator, &ended, &err), &err);
        const uint32_t id = script[n_written - 1];
        memcpy(text + n_text, tokens[id], strlen(tokens[id]));
        n_text += strlen(tokens[id]);
        if (id == SEPARATOR)
            ending = BD_ENDING_SEPARATOR;
        else if (n_written == max_tokens)
            ending = BD_ENDING_TOKENS;
        else if (1 + n_written == w->parameters.config.n_positions)
            ending = BD_ENDING_POSITIONS;
        const size_t stop = first_stop(text, n_text, stops);
        if (stop < n_text)
            ending = BD_ENDING_STOP;
        n_text = stop;
        assert_int_equal(document->ending, ending);
        assert_int_equal(document->n_prompt_text, 1);
        assert_int_equal(document->n_text, 1 + n_text);
        assert_memory_equal(document->text + 1, text, n_text);
        assert_in_range(document->n_certain, n_certain, document->n_text);
        n_certain = document->n_certain;
        if (ended)
            assert_int_equal(n_certain, document->n_text);
        else
            assert_true(
                begins_stop(document->text + n_certain, document->n_text - n_certain, stops));
        for (size_t i = 1; i < n_certain && !ended; i++)
            assert_false(begins_stop(document->text + i, document->n_text - i, stops));
        assert_int_equal(ended, ending != BD_ENDING_NONE);
    }
    if (wanted != BD_ENDING_NONE)
        assert_int_equal(ending, wanted);
    bd_generator_release(&generator);
    bd_generator_release(&generator);
}

// ---- Cases ----------------------------------------------------------------------------------

static void set_script(const uint32_t *ids, int n)
{
    for (int i = 0; i < MAX_SCRIPT; i++)
        script[i] = i < n ? ids[i] : SEPARATOR;
}

// "cat" contains the stop "at" while it may still become "cat!".
static void a_stop_inside_the_beginning_of_another_ends_the_text(void **state)
{
    (void)state;
    world w;
    const char *items[] = {"cat!", "at", "t\xc3\xa4t"};
    const bd_texts stops = {items, 2}, none = {NULL, 0};
    open_world(&w, N_POSITIONS, BD_NO_BOS);
    set_script((const uint32_t[]){C, A, T}, 3);
    expect_as_searched(&w, 3, stops, BD_ENDING_STOP);   // tokens end it at the same time
    expect_as_searched(&w, 10, stops, BD_ENDING_STOP);  // the separator would come next
    set_script((const uint32_t[]){BANG, CAT, BANG}, 3);
    expect_as_searched(&w, 10, stops, BD_ENDING_STOP);
    set_script((const uint32_t[]){C, A, C, A}, 4);  // half a stop is text when it ends
    expect_as_searched(&w, 4, stops, BD_ENDING_TOKENS);
    expect_as_searched(&w, 10, stops, BD_ENDING_SEPARATOR);
    set_script((const uint32_t[]){CAT, CAT}, 2);
    expect_as_searched(&w, 10, none, BD_ENDING_SEPARATOR);
    close_world(&w);
}

static void a_stop_outranks_the_last_position(void **state)
{
    (void)state;
    world w;
    const char *items[] = {"a!c", "!"};
    open_world(&w, 4, BD_NO_BOS);
    set_script((const uint32_t[]){C, A, A}, 3);
    expect_as_searched(&w, 10, (bd_texts){items, 2}, BD_ENDING_POSITIONS);
    set_script((const uint32_t[]){C, A, BANG}, 3);
    expect_as_searched(&w, 10, (bd_texts){items, 2}, BD_ENDING_STOP);
    expect_as_searched(&w, 10, (bd_texts){items, 1}, BD_ENDING_POSITIONS);
    close_world(&w);
}

static void stops_may_span_tokens_and_characters(void **state)
{
    (void)state;
    world w;
    // The tokens split both characters.
    const char *items[] = {"\xc3\xa4", "\xe2\x82\xac", "t!", "tca!"};
    open_world(&w, N_POSITIONS, BD_NO_BOS);
    set_script((const uint32_t[]){A, HALF, OTHER_HALF, MIDDLE}, 4);
    expect_as_searched(&w, 10, (bd_texts){items, 4}, BD_ENDING_STOP);
    expect_as_searched(&w, 10, (bd_texts){items + 1, 3}, BD_ENDING_SEPARATOR);
    set_script((const uint32_t[]){CAT, CAT, AT_BANG}, 3);
    expect_as_searched(&w, 10, (bd_texts){items + 2, 2}, BD_ENDING_STOP);
    close_world(&w);
}

// Random scripts of tokens of up to four bytes, and random stops over the same letters.
static void every_text_is_searched_as_a_whole(void **state)
{
    (void)state;
    enum { SEED = 11, N_CASES = 3000, MAX_STOPS = 3, MAX_STOP = 4 };
    world w;
    bd_random random = {SEED};
    open_world(&w, N_POSITIONS, BD_NO_BOS);
    for (int number = 0; number < N_CASES; number++) {
        char texts[MAX_STOPS][MAX_STOP + 1] = {{0}};
        const char *items[MAX_STOPS];
        const size_t n_stops = bd_random_bounded(&random, MAX_STOPS + 1);
        for (size_t i = 0; i < n_stops; i++) {
            const size_t size = 1 + bd_random_bounded(&random, MAX_STOP);
            for (size_t k = 0; k < size; k++)
                texts[i][k] = "cat!"[bd_random_bounded(&random, 4)];
            items[i] = texts[i];
        }
        const int n = 1 + (int)bd_random_bounded(&random, MAX_SCRIPT - 1);
        uint32_t ids[MAX_SCRIPT];
        for (int i = 0; i < n; i++)
            ids[i] = bd_random_bounded(&random, HALF);
        set_script(ids, n);
        expect_as_searched(&w, 1 + bd_random_bounded(&random, MAX_SCRIPT),
                           (bd_texts){items, n_stops}, BD_ENDING_NONE);
    }
    close_world(&w);
}

enum { N_PROMPTS = 5, MOST_TOKENS = 9, MOST_TEXT = 64 };

// Continues N_PROMPTS prompts by a model of random weights, twice, with so much free memory.
// Returns the number of slots.
static size_t write_texts(world *w, size_t free_memory, char texts[N_PROMPTS][MOST_TEXT],
                          bd_ending *endings)
{
    static const char *const prompts[N_PROMPTS] = {"c", "at", "cat!", "t", "ca"};
    const bd_generator_options options = {
        .max_tokens = MOST_TOKENS, .drawing = {.temperature = 1, .top_p = 1}, .seed = 3};
    bd_error err;
    bd_generator g;
    bd_random random = {5};
    const size_t n_total = (size_t)w->parameters.n_total;
    float *weights = calloc(n_total, sizeof *weights);
    assert_non_null(weights);
    for (size_t i = 0; i < n_total; i++)
        weights[i] = (float)bd_random_normal(&random);
    free_bytes = free_memory;
    check(bd_generator_init(&g, w->backend, &w->parameters, &w->tokenizer, prompts, N_PROMPTS,
                            &options, &err),
          &err);
    check(bd_decoder_set_weights(&g.decoder, weights, &err), &err);
    for (int again = 0; again < 2; again++) {
        bool ended = false;
        int n_steps = 0;
        check(bd_generator_begin(&g, &err), &err);
        for (; !ended; n_steps++)
            check(bd_generator_step(&g, &ended, &err), &err);
        assert_in_range(n_steps, 1, MOST_TOKENS * N_PROMPTS);
        for (int i = 0; i < N_PROMPTS; i++) {
            char *text = bd_continuation_text(&g.documents[i]);
            assert_non_null(text);
            if (again)
                assert_string_equal(texts[i], text);
            assert_true(strlen(text) < MOST_TEXT);
            strcpy(texts[i], text);
            endings[i] = g.documents[i].ending;
            free(text);
        }
    }
    const size_t n_slots = g.n_slots;
    bd_generator_release(&g);
    free(weights);
    return n_slots;
}

static void fewer_slots_than_documents_change_no_text(void **state)
{
    (void)state;
    world w;
    bd_error err;
    char wanted[N_PROMPTS][MOST_TEXT], texts[N_PROMPTS][MOST_TEXT];
    bd_ending wanted_endings[N_PROMPTS], endings[N_PROMPTS];
    open_world(&w, N_POSITIONS, BD_NO_BOS);
    w.table.linear_by_token = honest->linear_by_token;
    w.table.free_memory = stated_free_memory;
    assert_int_equal(write_texts(&w, SIZE_MAX, wanted, wanted_endings), N_PROMPTS);
    assert_string_not_equal(wanted[0], wanted[3]);
    for (int64_t n = 1; n <= N_PROMPTS; n++) {
        const bd_decoder_options one = {.n_documents = 1, .max_tokens = 4 + MOST_TOKENS};
        bd_decoder_options several = one;
        size_t one_bytes, several_bytes;
        several.n_documents = n;
        check(bd_decoder_measure(&w.parameters, &one, &one_bytes, &err), &err);
        check(bd_decoder_measure(&w.parameters, &several, &several_bytes, &err), &err);
        const size_t enough = one_bytes + 2 * (several_bytes - one_bytes);
        assert_int_equal(write_texts(&w, enough, texts, endings), n);
        for (int i = 0; i < N_PROMPTS; i++) {
            assert_string_equal(texts[i], wanted[i]);
            assert_int_equal(endings[i], wanted_endings[i]);
        }
    }
    close_world(&w);
}

static void a_model_of_one_position_has_no_room_after_bos(void **state)
{
    (void)state;
    world w;
    bd_error err;
    bd_generator generator;
    const char *prompts[] = {"", "c"};
    const bd_generator_options options = {.max_tokens = 1};
    open_world(&w, 1, A);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bd_generator_init(&generator, w.backend, &w.parameters, &w.tokenizer,
                                           &prompts[i], 1, &options, &err),
                         BD_ERR_ARGUMENT);
        assert_mentions(&err, "no room");
        assert_int_equal(generator.refused, 0);
        bd_generator_release(&generator);
    }
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_inside_the_beginning_of_another_ends_the_text),
        cmocka_unit_test(a_stop_outranks_the_last_position),
        cmocka_unit_test(stops_may_span_tokens_and_characters),
        cmocka_unit_test(every_text_is_searched_as_a_whole),
        cmocka_unit_test(fewer_slots_than_documents_change_no_text),
        cmocka_unit_test(a_model_of_one_position_has_no_room_after_bos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
