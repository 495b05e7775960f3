#include "packer/pack/dataset_card.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/text_stream.h"
#include "common/cli/human.h"
#include "packer/pack/output.h"

enum { MAX_CARD_BYTES = 1 << 20 };  // a longer one is not ours

// One column of the table of figures, and one of datasets' splits.
typedef struct split {
    const char *name, *path;
    const bd_manifest *manifest;
} split;

typedef struct card {
    const bd_dataset_config *config;
    split splits[2];
    int n_splits;
} card;

static card make_card(const bd_manifest *manifest, const bd_manifest *held_out)
{
    const bool alone = manifest->config.part == BD_PART_HELD_OUT;
    card c = {.config = &manifest->config, .n_splits = 1};
    c.splits[0] = (split){alone ? "holdout" : "train", "*.arrow", manifest};
    // With a split without rows, the library datasets would refuse to load the other one as well.
    if (held_out && held_out->totals.rows > 0)
        c.splits[c.n_splits++] = (split){"holdout", BD_HOLDOUT_NAME "/*.arrow", held_out};
    return c;
}

// ---- The text ------------------------------------------------------------------------------

static void put_front_matter(FILE *out, const card *c)
{
    fputs("---\nconfigs:\n- config_name: default\n  data_files:\n", out);
    for (int i = 0; i < c->n_splits; i++)
        fprintf(out, "  - split: %s\n    path: \"%s\"\n", c->splits[i].name, c->splits[i].path);
    fputs("---\n\n", out);
}

static void put_figures(FILE *out, const card *c)
{
    static const struct {
        const char *words;
        size_t offset;  // in bd_figures
    } figures[] = {
        {"rows", offsetof(bd_figures, rows)},
        {"documents", offsetof(bd_figures, documents)},
        {"tokens of documents", offsetof(bd_figures, packed)},
        {"tokens of padding", offsetof(bd_figures, padding)},
        {"tokens that are predicted", offsetof(bd_figures, targets)},
    };
    fputs("| |", out);
    for (int i = 0; i < c->n_splits; i++)
        fprintf(out, " %s |", c->splits[i].name);
    fputs("\n| --- |", out);
    for (int i = 0; i < c->n_splits; i++)
        fputs(" ---: |", out);
    fputs("\n", out);
    for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
        fprintf(out, "| %s |", figures[k].words);
        for (int i = 0; i < c->n_splits; i++) {
            const char *totals = (const char *)&c->splits[i].manifest->totals;
            int64_t n;
            memcpy(&n, totals + figures[k].offset, sizeof n);
            fprintf(out, " %s |", bd_format_exact(n).text);
        }
        fputs("\n", out);
    }
    fputs("\n", out);
}

static void put_config(FILE *out, const bd_dataset_config *config)
{
    fprintf(out,
            "A row has %" PRId64 " tokens: whole documents or pieces of them (strategy %s; a "
            "document longer than a row: %s), then padding. Ids are below %" PRId64
            ", those of the tokenizer in `" BD_TOKENIZER_NAME "` (%s). ",
            config->seq_len, bd_strategy_names[config->strategy],
            bd_long_policy_names[config->long_policy], config->vocab_size,
            bd_dataset_tokenizer(config).text);
    if (config->bos != BD_NO_BOS)
        fprintf(out, "Id %" PRId64 " begins a document. ", config->bos);
    fprintf(out, "Id %" PRId64 " ends a document; padding is id %" PRId64 ".\n\n",
            config->separator, config->padding);
}

static void put_added_tokens(FILE *out, const card *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_splits; i++)
        n += c->splits[i].manifest->totals.added.n;
    if (n > 0)
        fputs("Documents spelled out added tokens of the tokenizer, which became those tokens: "
              "`" BD_MANIFEST_NAME "` counts them (`added_tokens`).\n\n",
              out);
}

static void put_columns(FILE *out, const bd_dataset_config *config)
{
    fprintf(out,
            "| column | type | what it is |\n"
            "| --- | --- | --- |\n"
            "| `input_ids` | uint%d[%" PRId64 "] | the row's tokens |\n"
            "| `cu_seqlens` | list of int32 | where its documents begin and end: 0 = b0 < b1 < "
            "… < bn, the number of tokens before the padding. No token attends, and nothing is "
            "predicted, across a boundary; positions restart at each |\n"
            "| `documents` | list of struct | where each piece comes from: `input` and "
            "`position` of its document in the corpus, its `offset` in the document, the "
            "document's `length` |\n",
            8 * bd_dataset_id_bytes(config), config->seq_len);
    if (config->loss_mask)
        fprintf(out,
                "| `loss_mask` | bool[%" PRId64 "] | which tokens are trained: only they are "
                "predicted |\n",
                config->seq_len);
    fputs("| `checksum` | uint64 | of the row |\n\n", out);
}

static void put_calls(FILE *out, const card *c)
{
    const bd_manifest *first = c->splits[0].manifest;
    fputs(
        "`DIR` is this folder:\n\n```python\nimport datasets, polars, pyarrow, transformers\n\n"
        "datasets.load_dataset(\"DIR\")  # splits:",
        out);
    for (int i = 0; i < c->n_splits; i++)
        fprintf(out, "%s %s", i ? "," : "", c->splits[i].name);
    fprintf(out,
            "\ntransformers.AutoTokenizer.from_pretrained(\"DIR\")\n"
            "polars.scan_ipc(\"DIR/*.arrow\")\n"
            "pyarrow.ipc.open_file(\"DIR/%s\").read_all()\n```\n\n",
            bd_unit_shard_name(&first->shards[0].unit).text);
    fputs("`bindery inspect DIR` shows more of it, `bindery verify DIR` checks every row, and "
          "`bindery train --data DIR -o RUN` trains on it.\n",
          out);
}

static void put_card(FILE *out, const card *c)
{
    put_front_matter(out, c);
    fprintf(out,
            "# Packed rows of %" PRId64 " tokens\n\n"
            "Documents as token ids, packed into rows of one length by Bindery "
            "(format %s), with the boundaries of the documents beside the tokens.\n\n",
            c->config->seq_len, bd_dataset_format(c->config));
    put_figures(out, c);
    put_config(out, c->config);
    put_added_tokens(out, c);
    put_columns(out, c->config);
    put_calls(out, c);
}

// ---- Whose it is ---------------------------------------------------------------------------

static const char before_digits[] = "\n<!-- Written by bindery, which replaces no card that "
                                    "was changed. XXH3-128 of all above: ";
static const char after_digits[] = " -->\n";

enum {
    N_DIGITS = sizeof(bd_digest) - 1,
    SEAL_BYTES = sizeof before_digits - 1 + N_DIGITS + sizeof after_digits - 1,
};

static void print_seal(char seal[SEAL_BYTES + 1], const char *text, size_t size_bytes)
{
    snprintf(seal, SEAL_BYTES + 1, "%s%s%s", before_digits, bd_digest_of(text, size_bytes).hex,
             after_digits);
}

static bool is_sealed(const char *text, size_t size_bytes)
{
    char seal[SEAL_BYTES + 1];
    if (size_bytes < SEAL_BYTES)
        return false;
    print_seal(seal, text, size_bytes - SEAL_BYTES);
    return memcmp(text + size_bytes - SEAL_BYTES, seal, SEAL_BYTES) == 0;
}

// NULL if it is absent or cannot be read; the caller frees it.
static char *read_card(const char *folder, size_t *size_bytes)
{
    char *path = bd_path_join(folder, BD_CARD_NAME), *text = NULL;
    if (path && bd_file_read(path, MAX_CARD_BYTES, &text, size_bytes, NULL) != BD_OK)
        text = NULL;
    free(path);
    return text;
}

bool bd_card_is_ours(const char *folder)
{
    size_t size_bytes;
    char *text = read_card(folder, &size_bytes);
    const bool ours = text && is_sealed(text, size_bytes);
    free(text);
    return ours;
}

// ---- All of it -----------------------------------------------------------------------------

static bd_status print_card(const card *c, char **text, bd_error *err)
{
    char *printed = NULL, seal[SEAL_BYTES + 1];
    size_t n = 0;
    bd_text_stream out;
    bool failed = true;
    *text = NULL;
    if (bd_text_stream_open(&out)) {
        put_card(out.file, c);
        printed = bd_text_stream_close(&out, &n);
    }
    if (printed) {
        print_seal(seal, printed, n);
        failed = asprintf(text, "%s%s", printed, seal) < 0;
    }
    free(printed);
    return failed ? bd_fail(err, BD_ERR_MEMORY, "no memory for the dataset's card") : BD_OK;
}

bd_status bd_card_publish(const char *folder, const bd_manifest *manifest,
                          const bd_manifest *held_out, bool *kept, bd_error *err)
{
    const card c = make_card(manifest, held_out);
    char *text;
    BD_TRY(print_card(&c, &text, err));
    *kept = false;
    // A card that we wrote is replaced. Any other file of that name stays, also one that appears
    // while we write.
    const bd_status status =
        bd_card_is_ours(folder)
            ? bd_file_publish(folder, BD_CARD_NAME, text, strlen(text), err)
            : bd_file_publish_new(folder, BD_CARD_NAME, text, strlen(text), kept, err);
    free(text);
    return status;
}
