// `bindery tokenize`: text in, ids out, and back.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "packer/commands.h"
#include "packer/tokenize/tokenize.h"

typedef struct tokenize_settings {
    const char *tokenizer, *text_field;
    bool decode, count, lines, ordinary;
    bd_special_tokens special_tokens;
    bd_id_format format;
    int64_t max_document_bytes;
} tokenize_settings;

static const bd_option tokenize_options[] = {
    {.name = "tokenizer",
     .value = "SPEC",
     BD_FILE_OR(tokenize_settings, tokenizer, bd_built_in_tokenizers),
     .initial = "bytes",
     .help = "Tokenizer: 'bytes', 'ids:N', or a file of a byte-level BPE: tokenizer.json, "
             "vocab.json with merges.txt beside it, a folder with either, or "
             "FILE.tiktoken:PATTERN"},
    {.name = "decode",
     .letter = 'd',
     BD_FLAG(tokenize_settings, decode),
     .help = "The way back: ids in, text out"},
    {.name = "count",
     .letter = 'c',
     BD_FLAG(tokenize_settings, count),
     .help = "Print how many tokens each file has, instead of the tokens"},
    {.name = "lines",
     .letter = 'l',
     BD_FLAG(tokenize_settings, lines),
     .help = "Each line is a document, without its newline; else each file is one"},
    {.name = "text-field",
     .value = "FIELD",
     BD_TEXT(tokenize_settings, text_field),
     .initial_note = "plain text",
     .help = "Each line is a JSON record, whose FIELD is a document"},
    {.name = "format",
     .value = "HOW",
     BD_CHOICE(tokenize_settings, format, bd_id_format_names),
     .initial = "text",
     .help = "Ids as text, a line for each document; or raw, little-endian, end to end"},
    {.name = "special-tokens",
     .value = "HOW",
     BD_CHOICE(tokenize_settings, special_tokens, bd_special_tokens_names),
     .initial = "token",
     .help = "What a special token such as <|endoftext|> is that a document spells out: text "
             "like any other (as pack has it), the token, or an error"},
    {.name = "ordinary",
     BD_FLAG(tokenize_settings, ordinary),
     .help = "All added tokens are text like any other, also those that are not special"},
    {.name = "max-document-bytes",
     .value = "SIZE",
     BD_SIZE(tokenize_settings, max_document_bytes, 1, UINT32_MAX),
     .initial = "256M",
     .help = "A larger document is an error"},
};

static void print_counts(const bd_tokenize_counts *counts, const char *name)
{
    printf("%" PRId64 " tokens, %" PRId64 " bytes", counts->tokens, counts->bytes);
    if (counts->bytes > 0)
        printf(", %.4f tokens per byte", (double)counts->tokens / (double)counts->bytes);
    printf(", %" PRId64 " document%s: ", counts->documents, counts->documents == 1 ? "" : "s");
    bd_print_safely(stdout, name, strlen(name), false);
    putchar('\n');
}

static bd_status encode_files(const bd_tokenize_job *job, const char *const *files, size_t n,
                              bd_encoder *encoder, bd_error *err)
{
    bd_tokenize_counts total = {0};
    for (size_t i = 0; i < n && !ferror(stdout); i++) {
        bd_tokenize_counts counts = {0};
        BD_TRY(bd_tokenize_text(job, encoder, files[i], &counts, err));
        if (!job->out)
            print_counts(&counts, files[i]);
        total.documents += counts.documents;
        total.tokens += counts.tokens;
        total.bytes += counts.bytes;
    }
    if (!job->out && n > 1)
        print_counts(&total, "total");
    return BD_OK;
}

static bd_status tokenize_files(const bd_tokenize_job *job, const tokenize_settings *settings,
                                const char *const *files, size_t n, bd_error *err)
{
    bd_encoder encoder;
    for (size_t i = 0; settings->decode && i < n && !ferror(stdout); i++)
        BD_TRY(bd_tokenize_decode(job, files[i], err));
    if (settings->decode)
        return BD_OK;
    BD_TRY(bd_encoder_init(&encoder, job->tokenizer, err));
    encoder.ordinary = settings->ordinary;
    encoder.special_tokens = settings->special_tokens;
    const bd_status status = encode_files(job, files, n, &encoder, err);
    bd_encoder_release(&encoder);
    return status;
}

static bd_status check_settings(const tokenize_settings *settings, bd_error *err)
{
    if (settings->decode && (settings->count || settings->ordinary || settings->text_field))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--count, --ordinary and --text-field do not go with --decode");
    if (settings->lines && settings->decode && settings->format != BD_IDS_AS_TEXT)
        return bd_fail(err, BD_ERR_ARGUMENT, "raw ids have no lines");
    return BD_OK;
}

static int tokenize_run(const bd_arguments *arguments)
{
    const tokenize_settings *settings = arguments->settings;
    static const char *const standard_input[] = {"-"};
    const bool has_files = arguments->n_operands > 0;
    bd_tokenize_job job = {
        .format = settings->format,
        .lines = settings->lines || settings->text_field,
        .text_field = settings->text_field,
        .max_document_bytes = settings->max_document_bytes,
        .out = settings->count ? NULL : stdout,
    };
    bd_error err;
    if (check_settings(settings, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    bd_status status = bd_tokenizer_open(&job.tokenizer, settings->tokenizer, &err);
    if (status == BD_OK && job.format == BD_IDS_U16 && job.tokenizer->vocab_size > 1 << 16)
        status = bd_fail(&err, BD_ERR_ARGUMENT,
                         "--format: a vocabulary of %" PRId64 " ids does not fit u16",
                         job.tokenizer->vocab_size);
    if (status == BD_OK)
        status =
            tokenize_files(&job, settings, has_files ? arguments->operands : standard_input,
                           has_files ? arguments->n_operands : 1, &err);
    bd_tokenizer_close(job.tokenizer);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_tokenize_command = {
    .name = "tokenize",
    .summary = "Turn text into token ids, or back",
    .description =
        "Prints the ids of each FILE's text, or of standard input (also as -); gzip and zstd "
        "are decompressed. No separator and no BOS is added. What a tokenizer's file asks for "
        "is done exactly or refused: the ids are those of tiktoken and of Hugging Face's "
        "tokenizers. Any bytes are accepted; a byte that is not part of valid UTF-8 is a "
        "character of its own. Decoding gives back every byte, but for control tokens, which "
        "stand for no text, and where the tokenizer itself changes the text (normal form, a "
        "space before it, white space that a token takes).\n"
        "\n"
        "With --decode, ids are read in the format that --format says, and the bytes that "
        "they stand for are written; with --lines a newline after each line of ids.\n"
        "\n"
        "Memory: the vocabulary, 128 MiB, and 12 bytes per byte of the largest document (36 if "
        "the tokenizer normalises it).\n"
        "\n"
        "Exit status: 0 done, 2 it could not be done.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery tokenize --tokenizer gpt2/tokenizer.json story.txt\n"
        "  bindery tokenize --tokenizer cl100k_base.tiktoken:cl100k --count *.txt\n"
        "  bindery tokenize --tokenizer gpt2 --text-field text corpus.jsonl.gz\n"
        "  bindery tokenize --tokenizer gpt2 < story.txt |\n"
        "      bindery tokenize --tokenizer gpt2 -d\n",
    .operands = "[FILE...]",
    .operand_kind = BD_OPTION_FILE,
    .options = tokenize_options,
    .n_options = sizeof tokenize_options / sizeof tokenize_options[0],
    .settings_size = sizeof(tokenize_settings),
    .run = tokenize_run,
};
