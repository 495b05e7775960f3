// ledger_report.h - the ledger of a dataset for people: what `pack`, `repack` and `inspect` print.
#ifndef BINDERY_PACKER_PACK_LEDGER_REPORT_H
#define BINDERY_PACKER_PACK_LEDGER_REPORT_H

#include <stdio.h>

#include "common/dataset/manifest.h"
#include "common/tokenizer/tokenizer.h"

// The ledger of the dataset in `folder` as a table: where every token came from and where it
// went; if there are several sources, what each has contributed; and the added tokens.
bd_status bd_report_ledger(FILE *out, const char *folder, const bd_manifest *manifest,
                           bd_error *err);

// The parts of the ledger. A source has a share of `packed`. `tokenizer_file` is that of
// bd_pack_log_tokenizer().
void bd_report_tokens(FILE *out, const bd_manifest *manifest, const char *tokenizer_file);
void bd_report_bad_records(FILE *out, const bd_figures *figures);  // nothing if none was bad
void bd_report_sources(FILE *out, const bd_source_figures *sources, size_t n, int64_t packed);
// The same for targets and masked tokens, in a dataset with loss masks.
void bd_report_trained(FILE *out, const bd_source_figures *sources, size_t n);

// The added tokens that were recognised in the text, if there are any: each with its id and how
// it is written, the most frequent first. `tokenizer` may be NULL: then only ids are known.
void bd_report_added_tokens(FILE *out, const bd_added_counts *added,
                            const bd_tokenizer *tokenizer);

// Nothing if nothing was passed over.
void bd_report_passed_over(FILE *out, const bd_passed_over *passed);

enum { BD_REPORT_WIDTH = 80 };  // columns

// Columns that a name has in a line that has `n` others: some, even if there are none left.
int bd_report_room(int n);

// 100 part / whole; 0 if there is no whole.
double bd_percent(double part, double whole);

#endif
