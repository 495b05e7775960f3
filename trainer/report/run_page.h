// run_page.h - runs as one HTML page: their curves over steps, evaluations, samples, and the
// settings in which they differ.
//
// The page is made of common/page and of run_page*.{html,css,js}. Its data is {"runs": […]}; each
// run has
//
//   name, path        the folder's last name, and its path as it was given
//   steps, last_step  the number of steps in the log, and the last one
//   tokens, seconds   of all of them; tokens without padding
//   last_loss, last_smoothed_loss   null if no step had targets
//   loss, …           curves: bd_curve_to_json()
//   evals             [{dataset, loss}], a curve each; more_evals if there were others
//   samples           [{step, prompt, text, cut}], latest first; n_samples are in the log
//   checkpoint_step   of the latest checkpoint, or null
//   settings          {model, training, data} of it, or null
#ifndef BINDERY_TRAINER_REPORT_RUN_PAGE_H
#define BINDERY_TRAINER_REPORT_RUN_PAGE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "trainer/metrics/run_summary.h"

enum { BD_PAGE_RUNS = 16 };  // more could not be told apart

// Writes the page of 1 to BD_PAGE_RUNS runs to `path` (bd_page_publish()). *size_bytes becomes its
// size: usually less than 300 kB for each run, and always less than 20 MB. Memory: about ten times
// that.
bd_status bd_run_page_publish(bd_run_summary *const *runs, size_t n_runs, const char *path,
                              bool overwrite, size_t *size_bytes, bd_error *err);

#endif
