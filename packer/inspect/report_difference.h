// report_difference.h - two datasets side by side, for people.
#ifndef BINDERY_PACKER_INSPECT_REPORT_DIFFERENCE_H
#define BINDERY_PACKER_INSPECT_REPORT_DIFFERENCE_H

#include <stdio.h>

#include "common/cli/terminal.h"
#include "packer/inspect/difference.h"

bd_status bd_report_difference(FILE *out, const bd_difference *difference,
                               const bd_inspection *a, const bd_inspection *b,
                               bd_text_style style, bd_error *err);

#endif
