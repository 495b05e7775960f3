// report_inspection.h - an inspection for people: one screen, 80 columns wide.
#ifndef BINDERY_PACKER_INSPECT_REPORT_INSPECTION_H
#define BINDERY_PACKER_INSPECT_REPORT_INSPECTION_H

#include <stdio.h>

#include "common/cli/terminal.h"
#include "packer/inspect/inspection.h"

// The ledger, sources, documents with their lengths, attention, frequent tokens, repeated
// documents, and how these figures were obtained. Estimates are marked "about".
void bd_report_inspection(FILE *out, const bd_inspection *inspection, bd_text_style style);

#endif
