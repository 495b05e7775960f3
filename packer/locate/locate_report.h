// locate_report.h - located tokens for people and for scripts.
#ifndef BINDERY_PACKER_LOCATE_LOCATE_REPORT_H
#define BINDERY_PACKER_LOCATE_LOCATE_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/json.h"
#include "packer/locate/locate.h"
#include "packer/locate/locate_record.h"

// Prints what is known about the token, and the text around it with the token in reverse video if
// `color`, else in brackets. Characters that could control the terminal are shown as \xNN. `record`
// may be NULL.
void bd_location_print(FILE *out, const bd_location *location, const bd_record_place *record,
                       const bd_manifest *manifest, bool color);

// The same as an entry of `locations` of schemas/location-v1.schema.json. In texts, NUL and
// bytes that are not UTF-8 become U+FFFD.
bd_status bd_location_to_json(const bd_location *location, const bd_record_place *record,
                              const bd_manifest *manifest, bd_json **json, bd_error *err);

#endif
