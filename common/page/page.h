// page.h - a report as one HTML file that needs nothing else: no network, no other file.
//
// A page is its frame (common/page/page.html), the body that is particular to it, styles,
// scripts, and data as JSON, which the scripts find in the element with the id "data". Its
// content security policy lets nothing run but these scripts, so that no text in the data can:
// it enters the page as text alone.
//
//   const bd_page page = {.title = path, .body = &bd_inspection_page_html, .scripts = scripts,
//                         .n_scripts = 2, .data = json};
//   BD_TRY(bd_page_publish(&page, "report.html", false, &size_bytes, err));
//
// common/page/page.css, page.js (data, numbers, elements, tables) and plots.js come with every
// page, before its own.
#ifndef BINDERY_COMMON_PAGE_PAGE_H
#define BINDERY_COMMON_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"
#include "common/base/json.h"

// A file of the source tree that the build put into the program (common/page/embed.cmake).
typedef struct bd_page_part {
    const char *text;  // not ended by a NUL
    size_t size_bytes;
    uint8_t sha256[32];
} bd_page_part;

typedef struct bd_page {
    const char *title;         // any bytes
    const bd_page_part *body;  // HTML
    const bd_page_part *const *styles;
    size_t n_styles;
    const bd_page_part *const *scripts;
    size_t n_scripts;
    const bd_json *data;
} bd_page;

// BD_ERR_ARGUMENT if something is at `path` and may not be replaced. Call it before work that
// would be lost; bd_page_publish() checks again.
bd_status bd_page_check_path(const char *path, bool overwrite, bd_error *err);

// Writes the page to `path` as common/base/file.h publishes files: it is there whole or not at
// all. *size_bytes becomes its size. Memory: that of the page, twice.
bd_status bd_page_publish(const bd_page *page, const char *path, bool overwrite,
                          size_t *size_bytes, bd_error *err);

#endif
