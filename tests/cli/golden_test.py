"""Datasets of earlier versions can still be opened, and text for people does not change unnoticed.

`tests/golden/format-1` holds a corpus and datasets of format 1 made from it, `format-2` the same with
loss masks. To write the texts of
`tests/golden/terminal` again after an intended change, run this with BINDERY_GOLDEN=write and read
the difference.
"""

import json
import os
import re
import shutil
from pathlib import Path

import program
import pyarrow as pa
from dataset_checker import check_dataset
from program import ROOT, ProgramTest, bindery, changed, contents

FORMAT_1 = ROOT / "tests" / "golden" / "format-1"
FORMAT_2 = ROOT / "tests" / "golden" / "format-2"
TERMINAL = ROOT / "tests" / "golden" / "terminal"
CORPUS = FORMAT_1 / "corpus"
TIME = re.compile(r"done in \d+ m?s, [\d.]+ [KM]?i?B \w+, [\d.]+ [KMG]?i?B/s$", re.MULTILINE)

# Name of the dataset -> the options that made it.
DATASETS = {
    "best-fit": ["--seq-len", "33", "--delimiter", "%"],
    "concat": ["--seq-len", "33", "--delimiter", "%", "--strategy", "concat", "--bos", "256"],
    "truncate": ["--seq-len", "31", "--long", "truncate", "--separator-id", "10", "--padding-id", "0"],
    # This one has format 1.1; the others have 1.0.
    "selected": [
        *["--seq-len", "33", "--delimiter", "%", "--strategy", "first-fit", "--unit-size", "1K"],
        *["--shuffle", "7", "--holdout", "25%", "--max-documents", "3", "--min-tokens", "2"],
        *["--compress", "zstd"],
    ],
}

# Datasets of format 1.2, each with its corpus: with documents left out, and joined.
WORLD = ROOT / "tests" / "golden" / "world"
WORLD_OPTIONS = [
    *["--tokenizer", WORLD / "tokenizer.json", "--separator-token", "<|endoftext|>"],
    *["--seq-len", "33", "--holdout", "25%", "--bad-records", "skip", "--max-bad", "20%"],
    *["--source", f"web={WORLD / 'web'}"],
    *["--source", f"code={WORLD / 'code'},text-field=content"],
]
NEWER = {"left-out": WORLD, "joined": CORPUS}


# Datasets of format 2.0, all of one corpus, in which three inputs say by three columns which tokens
# are trained, and the fourth says nothing.
MASKED_CORPUS = FORMAT_2 / "corpus"
MASKED = {
    "masked": ["--seq-len", "33"],
    "selected": [
        *["--seq-len", "9", "--strategy", "concat", "--bos", "256", "--unit-size", "1K"],
        *["--shuffle", "7", "--holdout", "25%", "--min-tokens", "2", "--compress", "zstd"],
    ],
}


def rows(dataset: Path) -> list[dict]:
    """Returns every row of a dataset, shard by shard."""
    return [
        row
        for shard in sorted(dataset.glob("*.arrow"))
        for row in pa.ipc.open_file(shard).read_all().to_pylist()
    ]


class Golden(ProgramTest):
    def test_datasets_of_format_1_open_and_verify(self) -> None:
        for name in [*DATASETS, *NEWER]:
            with self.subTest(name):
                dataset = FORMAT_1 / name
                self.succeeds("verify", dataset)
                self.succeeds("inspect", "--scan", dataset)
                self.succeeds("inspect", "--row", "0", dataset)
                self.assertEqual(check_dataset(dataset), [])

    def test_the_corpus_of_a_dataset_of_format_1_is_read_as_it_was(self) -> None:
        for name, corpus in {**dict.fromkeys(DATASETS, CORPUS), **NEWER}.items():
            for dataset in [FORMAT_1 / name, *(FORMAT_1 / name).glob("holdout")]:
                with self.subTest(str(dataset.relative_to(FORMAT_1))):
                    self.succeeds("verify", dataset, "--against", corpus)

    def test_datasets_of_format_2_open_and_verify(self) -> None:
        for name in MASKED:
            for dataset in [FORMAT_2 / name, *(FORMAT_2 / name).glob("holdout")]:
                with self.subTest(str(dataset.relative_to(FORMAT_2))):
                    self.succeeds("verify", dataset)
                    self.succeeds("inspect", "--scan", dataset)
                    self.succeeds("inspect", "--row", "0", dataset)
                    self.succeeds("verify", dataset, "--against", MASKED_CORPUS)
                    self.assertEqual(check_dataset(dataset), [])
                    figures = json.loads((dataset / "manifest.json").read_bytes())["totals"]
                    for figure in ("masked", "targets", "untrained"):
                        self.assertGreater(figures[figure], 0)

    def test_packing_the_same_masks_gives_the_same_rows(self) -> None:
        for name, options in MASKED.items():
            with self.subTest(name):
                dataset = self.pack(self.folder / name, [MASKED_CORPUS], *options)
                self.assertEqual(rows(dataset), rows(FORMAT_2 / name))
        again = self.folder / "again"
        self.succeeds("repack", "-q", "-o", again, "--seq-len", "50", FORMAT_2 / "masked")
        longer = self.pack(self.folder / "longer", [MASKED_CORPUS], "--seq-len", "50")
        self.assertEqual(rows(again), rows(longer))

    def test_left_out_documents_are_still_told(self) -> None:
        manifest = json.loads((FORMAT_1 / "left-out" / "manifest.json").read_bytes())
        bad = {k: v for k, v in manifest["totals"].items() if k.startswith("bad_") and v}
        self.assertEqual(bad, {"bad_missing_text": 2, "bad_json": 1, "bad_utf8": 1})
        self.assertEqual(sum(entry["files"] for entry in manifest["passed_over"]), 1)
        plan = json.loads((FORMAT_1 / "left-out" / "plan.json").read_bytes())
        self.assertEqual(plan["reading"]["special_tokens"], "text")
        self.assertEqual([i.get("text_field") for i in plan["inputs"]], [None, "content"])
        shown = self.succeeds("inspect", FORMAT_1 / "left-out").stdout
        self.assertIn("bad records", shown)
        dataset = self.folder / "again"
        self.succeeds("pack", "-q", "-o", dataset, *WORLD_OPTIONS)
        self.assertEqual(rows(dataset), rows(FORMAT_1 / "left-out"))

    def test_a_joined_dataset_has_the_same_rows(self) -> None:
        parts = []
        for name, options in [("poems.txt", ["--delimiter", "%"]), ("records.jsonl", [])]:
            parts.append(self.pack(self.folder / name, [CORPUS / name], "--seq-len", 20, *options))
        self.succeeds("repack", "-q", *parts, "-o", self.folder / "joined", "--seq-len", 40)
        self.assertEqual(rows(self.folder / "joined"), rows(FORMAT_1 / "joined"))

    def test_packing_the_same_corpus_gives_the_same_rows(self) -> None:
        for name, options in DATASETS.items():
            with self.subTest(name):
                dataset = self.pack(self.folder / name, [CORPUS], *options)
                self.assertEqual(rows(dataset), rows(FORMAT_1 / name))

    def test_a_plan_of_format_1_1_is_that_of_the_same_command(self) -> None:
        """It reads special tokens as 1.1 did; shards of that format are not kept."""
        dataset = self.folder / "dataset"
        shutil.copytree(FORMAT_1 / "selected", dataset)
        refused = bindery("pack", "-o", dataset, *DATASETS["selected"], CORPUS)
        self.assertEqual(refused.status, 2, refused)
        self.assertIn("special_tokens", refused.stderr)
        self.assertIn("--special-tokens token goes on as that did", refused.stderr)
        options = [*DATASETS["selected"], "--special-tokens", "token"]
        before = contents(dataset)
        finished = self.succeeds("pack", "-o", dataset, *options, CORPUS)
        self.assertIn("finished already", finished.stderr)
        self.assertEqual(contents(dataset), before)
        (dataset / "manifest.json").unlink()
        self.succeeds("pack", "-q", "-o", dataset, *options, CORPUS)
        self.pack(self.folder / "fresh", [CORPUS], *options)
        for folder in [dataset, self.folder / "fresh"]:
            (folder / "pack-log.json").unlink()
        self.assertEqual(contents(dataset), contents(self.folder / "fresh"))

    def test_datasets_of_format_1_are_packed_again_as_the_corpus_is(self) -> None:
        for name in ["best-fit", "concat"]:  # the ends of truncated documents are lost
            with self.subTest(name):
                longer = ["--seq-len", "50"]
                fresh = self.pack(self.folder / name, [CORPUS],
                                  *changed(DATASETS[name], *longer))
                again = self.folder / f"{name}-again"
                self.succeeds("repack", "-q", "-o", again, *longer, FORMAT_1 / name)
                self.succeeds("verify", again)
                self.assertEqual(check_dataset(again), [])
                self.assertEqual(rows(again), rows(fresh))

    def test_text_for_people_does_not_change(self) -> None:
        shutil.copytree(FORMAT_1, self.folder / "golden")
        for name, arguments in {
            "pack": ["pack", "-o", "new", "--seq-len", "33", "--delimiter", "%", "golden/corpus"],
            "inspect-row": ["inspect", "--row", "1", "golden/best-fit"],
            "inspect-row-colour": ["inspect", "--color=always", "--row", "1", "golden/concat"],
            "verify": ["verify", "golden/concat"],
            "verify-structure": ["verify", "--structure", "golden/concat"],
            "verify-against": ["verify", "golden/concat", "--against", "golden/corpus"],
            "locate": ["locate", "golden/best-fit", "1:5", "--corpus", "golden/corpus"],
            "repack": ["repack", "-o", "longer", "--seq-len", "64", "golden/best-fit"],
            "dry-run": ["pack", "-n", "-o", "never", "--delimiter", "%", "golden/corpus"],
        }.items():
            with self.subTest(name):
                result = self.succeeds(*arguments, cwd=self.folder)
                golden = TERMINAL / f"{name}.txt"
                shown = TIME.sub("done in TIME", result.output)
                if os.environ.get("BINDERY_GOLDEN") == "write":
                    golden.write_text(shown, encoding="utf-8")
                self.assertEqual(shown, golden.read_text(encoding="utf-8"))


if __name__ == "__main__":
    program.main()
