// input_option_table.h - the options that `pack` and `plan` have in common: what the inputs are and
// how documents are made of them. Entries for a table of options whose settings begin with a
// bd_pack_options.
#ifndef BINDERY_PACKER_PACK_INPUT_OPTION_TABLE_H
#define BINDERY_PACKER_PACK_INPUT_OPTION_TABLE_H

#include "common/tokenizer/tokenizer.h"
#include "packer/pack/job.h"

#define BD_TOKENIZER_OPTION                                                                   \
    {                                                                                         \
        .name = "tokenizer", .value = "SPEC",                                                 \
        BD_FILE_OR(bd_pack_options, tokenizer, bd_built_in_tokenizers), .initial = "bytes",   \
        .help = "Tokenizer: 'bytes' (built in: an id per byte, and a separator), or a file "  \
                "of a byte-level BPE: tokenizer.json, vocab.json with merges.txt beside it, " \
                "a folder with either, or FILE.tiktoken:PATTERN"                              \
    }

#define BD_MIN_TOKENS_OPTION                                                               \
    {                                                                                      \
        .name = "min-tokens", .value = "N",                                                \
        BD_INTEGER(bd_pack_options, job.config.min_tokens, 0, UINT32_MAX), .initial = "0", \
        .help = "Leave out documents with fewer tokens of text"                            \
    }

#define BD_INPUT_OPTIONS                                                                       \
    {.name = "separator",                                                                      \
     .value = "HOW",                                                                           \
     BD_CHOICE(bd_pack_options, job.reading.separator, bd_separator_mode_names),               \
     .initial = "append",                                                                      \
     .help = "Whether separators are to be appended, or tokenised documents end with them "    \
             "already"},                                                                       \
        {.name = "separator-id",                                                               \
         .value = "ID",                                                                        \
         BD_INTEGER(bd_pack_options, job.config.separator, 0, UINT32_MAX),                     \
         .initial = "-1",                                                                      \
         .initial_note = "the tokenizer's",                                                    \
         .help = "Token that ends each document"},                                             \
        {.name = "separator-token",                                                            \
         .value = "TEXT",                                                                      \
         BD_TEXT(bd_pack_options, separator_token),                                            \
         .initial_note = "the tokenizer's",                                                    \
         .help = "The same, by its text"},                                                     \
        {.name = "bos",                                                                        \
         .value = "ID",                                                                        \
         BD_INTEGER(bd_pack_options, job.config.bos, 0, UINT32_MAX),                           \
         .initial = "-1",                                                                      \
         .initial_note = "none",                                                               \
         .help = "Token that begins each document"},                                           \
        {.name = "padding-id",                                                                 \
         .value = "ID",                                                                        \
         BD_INTEGER(bd_pack_options, job.config.padding, 0, UINT32_MAX),                       \
         .initial = "-1",                                                                      \
         .initial_note = "the separator",                                                      \
         .help = "Token that fills the end of a row; its value never matters"},                \
        {.name = "format",                                                                     \
         .value = "FORMAT",                                                                    \
         BD_CHOICE(bd_pack_options, format, bd_format_names),                                  \
         .initial = "auto",                                                                    \
         .help =                                                                               \
             "Format of the inputs; auto goes by their content and the ending of the name"},   \
        {.name = "source",                                                                     \
         .value = "NAME=INPUT[,KEY=VALUE...]",                                                 \
         BD_TEXTS(bd_pack_options, sources),                                                   \
         .help = "A further input, labelled NAME, perhaps with a text-field, format or "       \
                 "delimiter of "                                                               \
                 "its own; may be repeated"},                                                  \
        {.name = "text-field",                                                                 \
         .value = "FIELD",                                                                     \
         BD_TEXT(bd_pack_options, job.reading.text_field),                                     \
         BD_GIVEN(bd_pack_options, text_field_given),                                          \
         .initial = "text",                                                                    \
         .help = "Field of a JSON record, or column of a table, that holds the text; a.b is "  \
                 "field "                                                                      \
                 "b of field a"},                                                              \
        {.name = "prompt-field",                                                               \
         .value = "FIELD",                                                                     \
         BD_TEXT(bd_pack_options, prompt_field),                                               \
         .initial_note = "none",                                                               \
         .help = "Field of a prompt, which is not trained, with --completion-field"},          \
        {.name = "completion-field",                                                           \
         .value = "FIELD",                                                                     \
         BD_TEXT(bd_pack_options, completion_field),                                           \
         .initial_note = "none",                                                               \
         .help = "Field of the text that follows the prompt, and is trained with the end of "  \
                 "the document"},                                                              \
        {.name = "segments-field",                                                             \
         .value = "FIELD",                                                                     \
         BD_TEXT(bd_pack_options, segments_field),                                             \
         .initial_note = "none",                                                               \
         .help = "Field of a list of {text, train}, or {token, train} for a special token"},   \
        {.name = "messages-field",                                                             \
         .value = "FIELD",                                                                     \
         BD_TEXT(bd_pack_options, messages_field),                                             \
         .initial_note = "messages, with --chat-format",                                       \
         .help = "Field of a chat, a list of {role, content}"},                                \
        {.name = "chat-format",                                                                \
         .value = "NAME|FILE",                                                                 \
         BD_FILE_OR(bd_pack_options, chat_format, bd_built_in_chat_formats),                   \
         .initial_note = "none",                                                               \
         .help = "What stands around the messages of a chat, and which roles are trained; or " \
                 "a file that says it"},                                                       \
        {.name = "train-roles",                                                                \
         .value = "ROLE,ROLE...",                                                              \
         BD_TEXT(bd_pack_options, train_roles),                                                \
         .initial_note = "the chat format's",                                                  \
         .help = "Roles whose messages are trained"},                                          \
        {.name = "train-turn-end",                                                             \
         .value = "WHICH",                                                                     \
         BD_CHOICE(bd_pack_options, job.reading.turn_ends, bd_turn_ends_names),                \
         BD_GIVEN(bd_pack_options, turn_ends_given),                                           \
         .initial = "all",                                                                     \
         .help = "Trained messages whose end is trained, too"},                                \
        {.name = "delimiter",                                                                  \
         .value = "LINE",                                                                      \
         BD_TEXT(bd_pack_options, job.reading.delimiter),                                      \
         .initial_note = "a text file is one document",                                        \
         .help = "Text: a line that equals LINE separates documents"},                         \
        {.name = "invalid-utf8",                                                               \
         .value = "HOW",                                                                       \
         BD_CHOICE(bd_pack_options, job.reading.utf8_policy, bd_utf8_policy_names),            \
         .initial = "error",                                                                   \
         .help = "What to do with text that is not UTF-8"},                                    \
        {.name = "bad-records",                                                                \
         .value = "HOW",                                                                       \
         BD_CHOICE(bd_pack_options, job.reading.bad_records, bd_bad_policy_names),             \
         .initial = "error",                                                                   \
         .help = "What to do with a record of which no document can be made: no text, broken " \
                 "JSON or CSV, not UTF-8, too large, or too hard for a tokenizer's pattern"},  \
        {.name = "special-tokens",                                                             \
         .value = "HOW",                                                                       \
         BD_CHOICE(bd_pack_options, job.reading.special_tokens, bd_special_tokens_names),      \
         .initial = "text",                                                                    \
         .help = "What a special token such as <|endoftext|> is that a document spells out: "  \
                 "text like any other, the token, or an error"},                               \
        {.name = "vocab-size",                                                                 \
         .value = "N",                                                                         \
         BD_INTEGER(bd_pack_options, job.config.vocab_size, 1, BD_MAX_IDS_VOCABULARY),         \
         .initial = "-1",                                                                      \
         .initial_note = "the tokenizer's",                                                    \
         .help = "Ids of tokenised inputs are below N; takes the place of a tokenizer"},       \
    {                                                                                          \
        .name = "id-bytes", .value = "2|4", BD_INTEGER(bd_pack_options, id_bytes, 2, 4),       \
        .initial = "-1", .initial_note = "2 if the vocabulary fits",                           \
        .help = "Bytes of an id in files of nothing but ids"                                   \
    }

#define BD_FOLDER_OPTIONS                                                              \
    {.name = "include",                                                                \
     .value = "PATTERN",                                                               \
     BD_TEXTS(bd_pack_options, include),                                               \
     .help = "In folders, take only files that match PATTERN; may be repeated"},       \
        {.name = "exclude",                                                            \
         .value = "PATTERN",                                                           \
         BD_TEXTS(bd_pack_options, exclude),                                           \
         .help = "In folders, leave out files and folders that match PATTERN; may be " \
                 "repeated"},                                                          \
    {                                                                                  \
        .name = "allow-skipped", BD_FLAG(bd_pack_options, allow_skipped),              \
        .help = "Go on even if more than half of a folder, by bytes, cannot be read"   \
    }

#define BD_UNIT_OPTIONS                                                          \
    {.name = "unit-size",                                                        \
     .value = "SIZE",                                                            \
     BD_SIZE(bd_pack_options, job.reading.unit_bytes, 1, BD_MAX_UNIT_BYTES),     \
     .initial = "64M",                                                           \
     .help = "Bytes of input that become one shard"},                            \
    {                                                                            \
        .name = "max-document-bytes", .value = "SIZE",                           \
        BD_SIZE(bd_pack_options, job.reading.max_document_bytes, 1, UINT32_MAX), \
        .initial = "256M", .help = "A larger record is bad (see --bad-records)"  \
    }

#endif
