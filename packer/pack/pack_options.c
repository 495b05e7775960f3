#include "packer/pack/pack_options.h"

#include "common/tokenizer/tokenizer.h"
#include "packer/commands.h"
#include "packer/pack/input_option_table.h"

static const bd_option pack_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(bd_pack_options, out),
     .required = true,
     .help = "Write the dataset into DIR; an unfinished one is continued"},
    {.name = "seq-len",
     .aliases = (const char *const[]){"sequence-length", NULL},
     .value = "N",
     BD_LENGTH(bd_pack_options, seq_len, BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN),
     .initial = "2048",
     .help = "Tokens in a row; 2k is 2048"},
    BD_TOKENIZER_OPTION,
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(bd_pack_options, strategy, bd_strategy_words),
     .initial = "best-fit",
     .help = "How rows are filled"},
    {.name = "long",
     .value = "HOW",
     BD_CHOICE(bd_pack_options, long_policy, bd_long_policy_words),
     .initial = "split",
     .help = "What to do with documents longer than a row"},
    {.name = "max-documents",
     .value = "N",
     BD_INTEGER(bd_pack_options, max_documents, 1, BD_MAX_SEQ_LEN),
     .initial = "0",
     .initial_note = "no limit",
     .help = "Most documents, or pieces of them, in a row"},
    BD_MIN_TOKENS_OPTION,
    {.name = "shuffle",
     .value = "SEED",
     BD_INTEGER(bd_pack_options, shuffle, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "input order",
     .help = "Shuffle the documents of each unit"},
    {.name = "holdout",
     .value = "SHARE%",
     BD_TEXT(bd_pack_options, holdout),
     .initial_note = "none",
     .help = "Hold out that share of the documents, into a second dataset in DIR/holdout"},
    {.name = "limit",
     .value = "N",
     BD_INTEGER(bd_pack_options, limit, 1, INT64_MAX),
     .initial = "-1",
     .initial_note = "all",
     .help = "Take the first N documents of the inputs"},
    BD_INPUT_OPTIONS,
    BD_FOLDER_OPTIONS,
    {.name = "max-bad",
     .value = "SHARE%",
     BD_TEXT(bd_pack_options, max_bad),
     .initial_note = "0.1% with --bad-records skip",
     .help = "Largest share of the records that may be bad; with more there is no manifest"},
    {.name = "compress",
     .value = "CODEC",
     BD_CHOICE(bd_pack_options, codec, bd_shard_codec_words),
     .initial = "none",
     .help = "Compress the shards, for archives: training reads them more slowly"},
    BD_UNIT_OPTIONS,
    BD_SETTINGS_OPTION(bd_pack_options, settings_file, "seq-len: 1024"),
    BD_THREADS_OPTION(bd_pack_options, n_threads,
                      "Units to pack at the same time; the result does not depend on it"),
    {.name = "rank",
     .value = "R",
     BD_INTEGER(bd_pack_options, rank, 0, INT32_MAX),
     .initial = "-1",
     .initial_note = "what mpirun or srun says",
     .help = "This is process R of those that pack the same inputs into DIR"},
    {.name = "ranks",
     .value = "N",
     BD_INTEGER(bd_pack_options, n_ranks, 1, INT32_MAX),
     .initial = "-1",
     .initial_note = "what mpirun or srun says",
     .help = "Number of those processes"},
    {.name = "finish",
     BD_FLAG(bd_pack_options, finish),
     .help = "Pack nothing: publish the manifest of what several processes have packed, or "
             "say what is missing"},
    {.name = "no-space-check",
     BD_FLAG(bd_pack_options, no_space_check),
     .help = "Begin even if the disk seems too small"},
    {.name = "dry-run",
     .letter = 'n',
     BD_FLAG(bd_pack_options, dry_run),
     .help = "Say what would be done, write nothing"},
    {.name = "overwrite",
     BD_FLAG(bd_pack_options, overwrite),
     .help = "Replace a dataset that is in DIR already"},
    {.name = "update",
     BD_FLAG(bd_pack_options, update),
     .help = "The inputs have changed since they were packed into DIR: pack again what differs "
             "(with --limit also all that follows it) and nothing else"},
    {.name = "json",
     BD_FLAG(bd_pack_options, json),
     .help = "Print the manifest as JSON (schemas/manifest-v1.schema.json)"},
};

static const char pack_description[] =
    "Documents are tokenised, each is ended by a separator, and they are laid end to end "
    "into rows of exactly --seq-len tokens. Every row is stored with the boundaries of its "
    "documents, so that training never looks across them. DIR gets one Arrow file per "
    "unit, plan.json, tokenizer.json, README.md, and last of all manifest.json. If the run is "
    "stopped, by whatever, the same command continues it, and ends with the same bytes.\n"
    "\n"
    "Inputs that change are noticed: by their time, size and inode, and then by reading them. "
    "If the contents of some have changed, --update packs the units that differ again, keeps "
    "the "
    "shards of all others, and ends with the bytes of a fresh run.\n"
    "\n"
    "README.md is a card with figures, columns and how to open the dataset; it also tells "
    "Hugging Face's datasets the splits, so that load_dataset(\"DIR\") gives train and "
    "holdout. One that you have changed or written is never replaced or removed.\n"
    "\n"
    "An INPUT is a file; a folder, which is read recursively in the order of names (those "
    "that begin with a dot are left out); a pattern such as 'data/*.jsonl'; @FILE, which names "
    "inputs line by line; or - for standard input. What a file is, its content tells: JSONL (a "
    "line is a document), CSV and TSV (a row), JSON arrays (an element), text (a file is a "
    "document, or see --delimiter), all of them plain, gzip, zstd, bzip2 or xz; Parquet and "
    "Arrow (a row is a document); and what is tokenised already: a "
    "column input_ids or tokens, Megatron's .bin with its .idx, llm.c's .bin, raw ids with "
    "datatrove's .index or dolma's .csv.gz beside them. --format takes every file of a folder "
    "as what it says.\n"
    "\n"
    "Every file is read once, however often and by whatever links it is met; a link to a "
    "folder is followed if that folder was not entered before. What cannot be read (archives, "
    "images, an object of JSON over several lines, …) is an error if it was named, and "
    "passed over if it was found in a folder. Whatever is passed over is counted by reason, "
    "which is printed and stored in the manifest; if that is more than half of a folder, by "
    "bytes and but for what you left out yourself, it is an error without --allow-skipped. "
    "PATTERN is for the path below the folder that was given, and * matches / as well; "
    "without a / it may match the last name alone, and a folder that it matches stands for all "
    "that is below.\n"
    "\n"
    "Options after the INPUT of --source are text-field, format and delimiter; they are looked "
    "for from the right, so that any other comma is part of the name.\n"
    "\n"
    "--delimiter LINE must be the whole line: with CRLF line ends it includes the CR. JSON is "
    "UTF-8 by definition, so --invalid-utf8 keep does not take it. Standard input is JSONL "
    "unless --format or --delimiter says otherwise.\n"
    "\n"
    "With --bad-records skip, records of which no document can be made are left out and "
    "counted by kind in the ledger, and the first hundred are listed in pack-log.json. If they "
    "are more than --max-bad of all records, the shards stay, and the same command with a "
    "larger --max-bad finishes the dataset. A damaged file is always an error.\n"
    "\n"
    "A document that spells out a special token of the tokenizer, such as <|endoftext|>, "
    "cannot "
    "plant one: it is text like any other, as with split_special_tokens in transformers and "
    "encode_ordinary in tiktoken. --special-tokens token makes it the token, error refuses the "
    "document. Added tokens that are not special, such as runs of spaces, are tokens in any "
    "case. "
    "Those that were recognised are counted one by one in the ledger and by inspect.\n"
    "\n"
    "A document longer than a row is split, and a piece after the first repeats the last "
    "token of the piece before it as context; or it is truncated, or dropped, or an error. "
    "The ledger that is printed says where every token went.\n"
    "\n"
    "Memory, for each thread, is below 4 bytes per token of a unit (2 if the vocabulary "
    "has at most 65536 ids), 70 per segment of it, 20 per byte of its largest record, and "
    "50 MiB; with a tokenizer from a file 128 MiB more. Besides: for compressed inputs the "
    "unit's bytes, 80 per record and zstd's window; "
    "for tables the column of one row group or record batch, while it is read up to four times "
    "that; with --shuffle 100 per document. Rows that take more memory in one unit than "
    "--unit-size (and 64 MiB), and more than 64 times their bytes in the file, are refused. "
    "The "
    "same inputs and options give the same bytes, whatever the number of threads and "
    "processes.\n"
    "\n"
    "Several processes share the work if each is given --rank and --ranks, or is started by "
    "mpirun or srun. Each takes units that no other has; the last to end packs what others "
    "left and publishes the manifest. A compressed input is read by one process.\n"
    "\n"
    "Exit status: 0 done, 2 it could not be done. Interrupted, it ends by that signal.\n"
    "\n"
    "Examples:\n"
    "\n"
    "  bindery pack -o shards --seq-len 1024 corpus.jsonl\n"
    "  bindery pack -o shards --delimiter '<|endoftext|>' stories.txt.gz\n"
    "  bindery pack -o shards --holdout 1% --source web=crawl/ --source wiki=wiki/\n"
    "  bindery pack -o shards --source code=src/,format=text --source web=crawl/\n"
    "  bindery pack -o shards --source web=crawl/,text-field=content\n"
    "  bindery pack -o shards --include '*.py' --include '*.md' --exclude tests src/\n"
    "  bindery pack -o shards --tokenizer gpt2/tokenizer.json corpus.jsonl\n"
    "  bindery pack -o shards --tokenizer cl100k_base.tiktoken:cl100k corpus.jsonl\n"
    "  bindery pack -o shards --vocab-size 50257 --separator-id 50256 tokens.bin\n";

const bd_command bd_pack_command = {
    .name = "pack",
    .summary = "Pack documents into training shards with stored boundaries",
    .description = pack_description,
    .operands = "[INPUT...]",
    .operand_kind = BD_OPTION_FILE,
    .options = pack_options,
    .n_options = sizeof pack_options / sizeof pack_options[0],
    .settings_size = sizeof(bd_pack_options),
    .run = bd_pack_run,
};
