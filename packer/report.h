// report.h - the figures of a dataset for people: what `pack` and `inspect` print.
#ifndef BINDERY_PACKER_REPORT_H
#define BINDERY_PACKER_REPORT_H

#include <stdio.h>

#include "common/manifest.h"

// The ledger as a table: where every token came from and where it went; and if there are
// several sources, what each has contributed.
bd_status bd_report_ledger(FILE *out, const bd_manifest *manifest, bd_error *err);

// Documents, segments, attention, and the two histograms.
void bd_report_figures(FILE *out, const bd_manifest *manifest);

#endif
