"""`bindery inspect`: its output describes the rows, and the text for people does not change.

To write the texts of `tests/golden/inspect` again after an intended change, run this with
BINDERY_GOLDEN=write and read the difference.
"""

import json
import os
import random
import re
import shutil
from pathlib import Path

import program
import pyarrow as pa
import pyarrow.parquet as pq
from dataset_statistics import (
    duplicates_of,
    frequent_of,
    lengths_of,
    padding_of,
    rows_of,
    tiles_of,
)
from program import ROOT, ProgramTest, Result, bindery
from schemas import validate
from shard_checker import ADDED_FIGURES, NOT_ALWAYS_COUNTED

FORMAT_1 = ROOT / "tests" / "golden" / "format-1"
GOLDEN = ROOT / "tests" / "golden" / "inspect"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
PLAIN = {**os.environ, "LC_ALL": "C"}
UTF_8 = {**os.environ, "LC_ALL": "C.UTF-8"}

SAMPLED_ROWS = 256
SAMPLED_SHARDS = 64


def texts(seed: int, n: int) -> list[str]:
    """Makes documents: some are empty, some occur several times, and one is long."""
    rng = random.Random(seed)
    distinct = ["", "x", "long " * 150] + [
        " ".join(rng.choices(["seven", "of", "ships", "é", "語", "\n"], k=rng.randint(1, 60)))
        for _ in range(n // 2)
    ]
    return [rng.choice(distinct) for _ in range(n)]


def json_lines(items: list[str]) -> bytes:
    return "".join(json.dumps({"text": item}) + "\n" for item in items).encode()


def write_token_lists(path: Path, seed: int, n: int, vocab_size: int) -> None:
    """Makes tokenised documents, some of them equal."""
    rng = random.Random(seed)
    distinct = [rng.choices(range(vocab_size - 1), k=rng.randint(1, 90)) for _ in range(n // 2)]
    lists = pa.array([rng.choice(distinct) for _ in range(n)], pa.list_(pa.uint32()))
    pq.write_table(pa.table({"input_ids": lists}), path)


class InspectTest(ProgramTest):
    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def inspection(self, *arguments: object) -> dict:
        """Returns the output of --json, which must follow the schema."""
        found = json.loads(self.succeeds("inspect", "--json", *arguments).stdout)
        validate(found, "inspection")
        return found

    def assert_80_columns(self, result: Result) -> None:
        widths = [len(ESCAPE.sub("", line)) for line in result.stdout.splitlines()]
        self.assertLessEqual(max(widths), 80, result)


class Counts(InspectTest):
    def datasets(self) -> dict[str, Path]:
        corpus = self.write("a.jsonl", json_lines(texts(1, 150)))
        other = self.write("b.jsonl", json_lines(texts(2, 31)))
        made = {
            "best-fit": ["--seq-len", 129, corpus, other],
            "sources": ["--seq-len", 33, "--source", f"x={corpus}", "--source", f"y={other}"],
            "concat": ["--seq-len", 64, "--strategy", "concat", "--bos", 256, corpus],
            "truncate": ["--seq-len", 65, "--long", "truncate", corpus],
            "drop": ["--seq-len", 65, "--long", "drop", corpus],
            "shards": ["--seq-len", 200, "--unit-size", "1K", "--shuffle", 3, corpus, other],
            "compressed": ["--seq-len", 100, "--compress", "zstd", "--unit-size", "2K", corpus],
            "one-document": ["--seq-len", 31, self.write("c.jsonl", json_lines(["hello"]))],
        }
        for vocab_size in (65_536, 65_537):
            path = self.folder / f"ids-{vocab_size}.parquet"
            write_token_lists(path, 3, 90, vocab_size)
            made[f"ids-{vocab_size}"] = [
                *["--seq-len", 70, "--vocab-size", vocab_size],
                *["--separator-id", vocab_size - 1, path],
            ]
        packed = {name: self.pack(self.folder / name, [], *a) for name, a in made.items()}
        golden = {f"golden {path.name}": path for path in FORMAT_1.iterdir()}
        del golden["golden corpus"]
        return packed | golden

    def check_exact(self, found: dict, dataset: Path) -> None:
        rows = rows_of(dataset)
        self.assertEqual(found["lengths"], lengths_of(rows))
        self.assertEqual(
            found["padding_per_row"],
            {"exact": True, "rows": len(rows), "histogram": padding_of(rows)},
        )
        for tile, expected in zip(
            found["attention"]["tiles"], tiles_of(rows), strict=True
        ):
            self.assertEqual({key: tile[key] for key in expected}, expected)
            self.assertTrue(tile["exact"])
            self.assertAlmostEqual(tile["saved"], 1 - tile["visited"] / tile["causal"])
        self.assertEqual(
            [(token["id"], token["count"]) for token in found["tokens"]["frequent"]],
            frequent_of(rows),
        )

    def check_manifest(self, found: dict, dataset: Path) -> None:
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        known = {k: v for k, v in ADDED_FIGURES.items() if k not in NOT_ALWAYS_COUNTED}
        figures = known | manifest["totals"]
        self.assertEqual(found["figures"], figures)
        for shard, entry in zip(found["shards"], manifest["shards"], strict=True):
            for key in ("file", "bytes", "checksum"):
                self.assertEqual(shard[key], entry[key])
            self.assertEqual(shard["rows"], entry["figures"]["rows"])
        self.assertAlmostEqual(sum(source["share"] for source in found["sources"]), 1)
        self.assertEqual(
            [item["name"] for item in found["inputs"]],
            [item["name"] for item in manifest["inputs"]],
        )

    def test_scan_says_what_the_rows_hold(self) -> None:
        for name, dataset in self.datasets().items():
            with self.subTest(name):
                one = self.inspection("--scan", "--duplicates", "--threads", 1, dataset)
                self.assertEqual(one["reading"]["how"], "scan")
                self.check_manifest(one, dataset)
                self.check_exact(one, dataset)
                self.assertEqual(one["duplicates"], duplicates_of(dataset))
                many = self.inspection("--scan", "--duplicates", "--threads", 3, dataset)
                self.assertEqual(one, many)

    def test_a_small_dataset_is_told_exactly_without_a_scan(self) -> None:
        for name in ("best-fit", "concat", "truncate"):
            with self.subTest(name):
                found = self.inspection(FORMAT_1 / name)
                self.assertEqual(found["reading"]["how"], "all")
                self.assertIsNone(found["duplicates"])
                self.check_exact(found, FORMAT_1 / name)

    def test_a_shard_alone_tells_its_own_figures(self) -> None:
        dataset = FORMAT_1 / "best-fit"
        whole = self.inspection("--scan", "--duplicates", dataset)
        alone = self.folder / "alone.arrow"
        shutil.copy(dataset / "00000-00000.arrow", alone)
        found = self.inspection("--scan", "--duplicates", alone)
        self.assertEqual(found["of"], "shard")
        self.assertEqual((found["sources"], found["inputs"]), ([], []))
        self.assertIsNone(found["shards"][0]["checksum"])
        self.assertEqual(found["shards"][0]["file"], "alone.arrow")
        for document in found["duplicates"]["most_repeated"]:
            self.assertEqual(document["shard"], "alone.arrow")
            document["shard"] = "00000-00000.arrow"
        for key in ("figures", "lengths", "padding_per_row", "attention", "tokens",
                    "duplicates"):
            self.assertEqual(found[key], whole[key], key)
        for path in (alone, "alone.arrow"):
            row = self.succeeds("inspect", "--row", 1, path, cwd=self.folder).stdout
            self.assertIn("input 0 position 38", row)

    def test_scan_refuses_a_shard_alone_whose_figures_are_not_its_rows(self) -> None:
        alone = self.folder / "alone.arrow"
        data = (FORMAT_1 / "best-fit" / "00000-00000.arrow").read_bytes()
        self.assertEqual(data.count(b'"attention_pairs":4209'), 2)  # schema and footer
        alone.write_bytes(data.replace(b'"attention_pairs":4209', b'"attention_pairs":4208'))
        self.succeeds("inspect", alone)
        result = bindery("inspect", "--scan", alone)
        self.assertEqual(result.status, 1, result)
        self.assertIn("attention_pairs", result.stderr)

    def test_compressed_batches_are_counted_as_others_are(self) -> None:
        # More than a record batch, with split documents: their tokens are read again.
        path = self.write("a.jsonl", json_lines([f"{i:7}" * 300 for i in range(1500)] * 2))
        found = []
        for codec in ("none", "zstd"):
            options = ["--seq-len", 512, "--compress", codec]
            dataset = self.pack(self.folder / codec, [path], *options)
            found.append(self.inspection("--scan", "--duplicates", dataset))
        for key in ("figures", "lengths", "tokens", "duplicates"):
            self.assertEqual(found[0][key], found[1][key], key)
        self.assertEqual(found[0]["duplicates"]["distinct"], 1500)

    def test_a_sketch_counts_what_does_not_fit_into_memory(self) -> None:
        documents = [f"document {i % 20_000}" for i in range(30_000)]
        path = self.write("many.jsonl", json_lines(documents))
        options = ["--seq-len", 512, "--unit-size", "64K"]
        dataset = self.pack(self.folder / "many", [path], *options)
        for memory, exact in ((30_000 * 16, True), (30_000 * 16 - 1, False), (0, False)):
            with self.subTest(memory):
                whole = self.inspection("--duplicates", "--memory", memory, dataset)
                found = whole["duplicates"]
                self.assertEqual(found["exact"], exact)
                self.assertEqual(found["documents"], 30_000)
                self.assertLessEqual(abs(found["distinct"] - 20_000), 20_000 * found["error"])
                self.assertLess(found["error"], 0.02)
                self.assertEqual(found["repeated_tokens"] is None, not exact)


class Samples(InspectTest):
    def sampled_places(self, rows: int) -> list[int]:
        """Returns the first row of every run of the sample: evenly spread, as promised by
        packer/inspect/inspection.h."""
        return [rows * (2 * i + 1) // (2 * SAMPLED_SHARDS) for i in range(SAMPLED_SHARDS)]

    def test_a_thousand_shards_are_told_from_a_few(self) -> None:
        lines = json_lines([f"document {i}" * 4 for i in range(2000)])
        path = self.write("many.jsonl", lines)
        dataset = self.pack(self.folder / "many", [path], "--seq-len", 64, "--unit-size", 100)
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        shards = manifest["shards"]
        self.assertGreater(len(shards), 1000)
        owners = [shard["file"] for shard in shards for _ in range(shard["figures"]["rows"])]
        wanted = {owners[place] for place in self.sampled_places(len(owners))}
        before = self.inspection(dataset)
        self.assertEqual(before["reading"]["how"], "sample")
        self.assertEqual(before["reading"]["shards"], len(wanted))
        for shard in shards:
            if shard["file"] not in wanted:
                (dataset / shard["file"]).unlink()
        self.assertEqual(self.inspection(dataset), before)

        missing = sorted(wanted)[len(wanted) // 2]
        (dataset / missing).unlink()
        result = bindery("inspect", dataset)
        self.assertEqual(result.status, 2, result)
        self.assertIn(missing, result.stderr)

    def test_estimates_are_marked_and_near(self) -> None:
        path = self.write("a.jsonl", json_lines(texts(5, 3000)))
        dataset = self.pack(self.folder / "a", [path], "--seq-len", 129, "--unit-size", "20K")
        sample, scan = self.inspection(dataset), self.inspection("--scan", dataset)
        rows = sample["reading"]["rows"]
        self.assertIn(rows, range(SAMPLED_ROWS // 2, SAMPLED_ROWS + 1))
        self.assertEqual(sample["figures"], scan["figures"])
        for key in ("lengths", "padding_per_row", "tokens"):
            self.assertEqual((sample[key]["exact"], scan[key]["exact"]), (False, True), key)
        for key in ("p1", "p10", "p50", "p90", "p99"):  # in the same power of two
            about, exact = sample["lengths"][key], scan["lengths"][key]
            self.assertEqual(about.bit_length(), exact.bit_length(), key)
        for about, exact in zip(sample["attention"]["tiles"], scan["attention"]["tiles"]):
            self.assertFalse(about["exact"])
            self.assertLess(abs(about["visited"] / exact["visited"] - 1), 0.2)
        most = [token["id"] for token in scan["tokens"]["frequent"][:3]]
        self.assertLessEqual(set(most), {token["id"] for token in sample["tokens"]["frequent"]})
        shown = self.succeeds("inspect", dataset).stdout
        self.assertIn("Document lengths about p1", shown)
        self.assertRegex(shown, r"tiles of 64 +about ")
        self.assertIn(f"from {rows} rows", shown)
        self.assertNotIn("about", self.succeeds("inspect", "--scan", dataset).stdout)

    def test_rows_are_drawn_by_the_seed(self) -> None:
        path = self.write("a.jsonl", json_lines(texts(6, 300)))
        dataset = self.pack(self.folder / "a", [path], "--seq-len", 65)
        rows = json.loads((dataset / "manifest.json").read_bytes())["totals"]["rows"]

        def drawn(n: int, *seed: object) -> list[int]:
            shown = self.succeeds("inspect", "--sample", n, *seed, dataset).stdout
            return [int(row) for row in re.findall(r"^Row (\d+): ", shown, re.MULTILINE)]

        self.assertEqual(drawn(7), drawn(7, "--seed", 0))
        self.assertNotEqual(drawn(7), drawn(7, "--seed", 1))
        self.assertEqual(drawn(8)[:7], drawn(7))
        self.assertEqual(len({*drawn(rows - 1, "--seed", 3)}), rows - 1)
        self.assertEqual(drawn(rows + 1), list(range(rows)))


class Rows(InspectTest):
    def test_a_row_is_named_by_number_or_by_shard(self) -> None:
        path = self.write("a.jsonl", json_lines(texts(7, 60)))
        dataset = self.pack(self.folder / "a", [path], "--seq-len", 65, "--unit-size", "2K")
        shards = json.loads((dataset / "manifest.json").read_bytes())["shards"]
        self.assertGreater(len(shards), 2)
        number = shards[0]["figures"]["rows"] + 1
        expected = self.succeeds("inspect", "--row", number, dataset).stdout
        for name in ("00000-00001", "00000-00001.arrow"):
            shown = self.succeeds("inspect", "--row", f"{name}:1", dataset).stdout
            self.assertEqual(shown, expected)

    def test_masked_text_is_dimmed_or_else_trained_text_marked(self) -> None:
        lines = self.write("a.jsonl", b'{"prompt": "Why? ", "completion": "So!"}\n')
        fields = ["--prompt-field", "prompt", "--completion-field", "completion"]
        dataset = self.pack(self.folder / "a", [lines], "--seq-len", 16, *fields)
        dimmed, marked = "\x1b[36m\x1b[2mWhy? \x1b[22mSo!<256>\x1b[0m\n", "Why? {+So!<256>+}\n"
        for options, environment, expected in (
            (["--color=always"], {}, dimmed),
            (["--color=never"], {}, marked),
            ([], {}, marked),
            (["--color=auto"], {"NO_COLOR": "1"}, marked),
        ):
            for shown in (["--row", 0], ["--sample", 1]):
                result = self.succeeds("inspect", *options, *shown, dataset,
                                       env={**PLAIN, **environment})
                self.assertIn(expected, result.stdout)
                self.assertIn("    positions 0 to 8, 4 targets, 4 masked\n", result.stdout)
                self.assertEqual("Dimmed text is masked" in result.stdout, expected == dimmed)
                self.assert_80_columns(result)

    def test_a_row_that_is_not_there_is_refused(self) -> None:
        for row in ("9", "x", "", ":", ":0", "00000-00000:", "00000-00000:9", "00001-00000:0",
                    "00000:0", "00000-00000.arro:0", "0x1", " 1", "+1", f"{2**63}"):
            with self.subTest(row):
                result = bindery("inspect", "--row", row, FORMAT_1 / "best-fit")
                self.assertEqual(result.status, 2, result)
                self.assertIn("--row", result.stderr)

    def test_contradictory_options_are_refused(self) -> None:
        for arguments in (["--row", 0, "--scan"], ["--sample", 1, "--json"],
                          ["--row", 0, "--json"],
                          ["--diff", FORMAT_1 / "concat", "--duplicates"],
                          ["--row", 0, "--sample", 1]):
            with self.subTest(arguments):
                result = bindery("inspect", *arguments, FORMAT_1 / "best-fit")
                self.assertEqual(result.status, 2, result)
                self.assertIn("together", result.stderr)


class Differences(InspectTest):
    def compare(self, a: Path, b: Path, *options: object) -> tuple[int, str]:
        result = bindery("inspect", *options, "--diff", a, b)
        return result.status, result.output

    def difference(self, a: Path, b: Path, *options: object) -> dict:
        """Returns the output of --json, which must follow the schema and fit the exit status."""
        result = bindery("inspect", "--json", *options, "--diff", a, b)
        self.assertEqual(result.stderr, "")
        found = json.loads(result.stdout)
        validate(found, "difference")
        self.assertEqual((found["a"], found["b"]), (str(a), str(b)))
        self.assertEqual(result.status, 0 if found["same"] else 1)
        return found

    def counts(self, output: str) -> list[int]:
        """Returns documents that are equal, changed, only in A, only in B."""
        part = output[output.index("Documents and their tokens"):]
        found = re.findall(r"^  \D+ ([\d,]+)$", part, re.MULTILINE)
        return [int(n.replace(",", "")) for n in found]

    def test_a_dataset_is_the_same_as_itself_packed_again(self) -> None:
        path = self.write("a.jsonl", json_lines(texts(8, 90)))
        a, b = (self.pack(self.folder / name, [path], "--seq-len", 65) for name in "ab")
        status, output = self.compare(a, b)
        self.assertEqual(status, 0, output)
        self.assertIn("The datasets are the same", output)
        found = self.difference(a, b)
        self.assertEqual(
            [found[key]["same"] for key in ("packing", "inputs", "figures", "documents")],
            [True] * 4,
        )
        self.assertFalse(found["documents"]["rows_read"])
        self.assertEqual(found["documents"]["counts"],
                         {"in_both": 90, "changed": 0, "only_in_a": 0, "only_in_b": 0})

    def test_repacked_rows_hold_the_same_documents(self) -> None:
        path = self.write("a.jsonl", json_lines(texts(9, 90)))
        a = self.pack(self.folder / "a", [path], "--seq-len", 65)
        self.succeeds("repack", "-q", "-o", self.folder / "b", "--seq-len", 129, a)
        for memory in ("256M", 0):
            status, output = self.compare(a, self.folder / "b", "--memory", memory)
            self.assertEqual(status, 1, output)
            self.assertIn("Documents and their tokens: the same", output)
            self.assertIn("seq_len               65, then 129", output)
            if memory:
                self.assertEqual(self.counts(output), [90, 0, 0, 0])
            found = self.difference(a, self.folder / "b", "--memory", memory)
            self.assertTrue(found["documents"]["same"])
            self.assertFalse(found["packing"]["same"])
            lengths = [found["packing"][side]["seq_len"] for side in "ab"]
            self.assertEqual(lengths, [65, 129])
            self.assertEqual(found["documents"]["counts"] is None, not memory)

    def test_documents_of_one_alone_are_counted(self) -> None:
        lines = json_lines(["one document", "two documents", "three"] * 11)
        changed = lines.replace(b"two documents", b"TWO documents", 3)
        datasets = []
        for name, data in (("a", lines), ("b", changed + json_lines(["four", "five"]))):
            (self.folder / name).mkdir()
            path = self.write(f"{name}/x.jsonl", data)
            datasets.append(self.pack(self.folder / f"of-{name}", [path], "--seq-len", 31))
        status, output = self.compare(*datasets)
        self.assertEqual(status, 1)
        self.assertEqual(self.counts(output), [30, 3, 0, 2], output)
        self.assertEqual(self.counts(self.compare(*reversed(datasets))[1]), [30, 3, 2, 0])
        found = self.difference(*datasets)
        self.assertEqual(list(found["documents"]["counts"].values()), [30, 3, 0, 2])
        self.assertEqual(list(found["inputs"].values()), [True, 1, 0, 0])
        for side, dataset in zip("ab", datasets):
            self.assertEqual(found["figures"][side], self.inspection(dataset)["figures"])
        status, output = self.compare(*datasets, "--memory", 0)
        self.assertEqual(status, 1)
        self.assertIn("Documents and their tokens: different", output)

    def test_datasets_that_cannot_be_compared_are_refused(self) -> None:
        shard = FORMAT_1 / "best-fit" / "00000-00000.arrow"
        for pair in ((shard, FORMAT_1 / "best-fit"), (FORMAT_1 / "best-fit", shard),
                     (self.folder / "none", FORMAT_1 / "best-fit")):
            status, output = self.compare(*pair)
            self.assertEqual(status, 2, output)


class Screens(InspectTest):
    def test_text_for_people_does_not_change(self) -> None:
        shutil.copytree(FORMAT_1, self.folder / "golden")
        corpus = self.folder / "golden" / "corpus"
        sources = [f"verse={corpus}/poems.txt", f"lists={corpus}/records.jsonl"]
        options = ["--seq-len", 33, "--source", sources[0], "--source", sources[1]]
        self.pack(self.folder / "sources", [], *options)
        lines = json_lines([f"{i} ships " * (i % 13) for i in range(700)])
        many = self.write("many.jsonl", lines)
        self.pack(self.folder / "many", [many], "--seq-len", 65, "--unit-size", "4K")
        for name, environment, status, arguments in [
            ("about", PLAIN, 0, ["--duplicates", "--memory", 0, "many"]),
            ("sources", PLAIN, 0, ["sources"]),
            ("screen", PLAIN, 0, ["golden/best-fit"]),
            ("screen-blocks", UTF_8, 0, ["golden/best-fit"]),
            ("screen-colour", UTF_8, 0, ["--color=always", "golden/concat"]),
            ("scan", PLAIN, 0, ["--scan", "--duplicates", "golden/selected"]),
            ("scan-1.0", PLAIN, 0, ["--scan", "golden/truncate"]),
            ("shard", PLAIN, 0, ["golden/concat/00000-00000.arrow"]),
            ("sample", PLAIN, 0, ["--sample", 2, "--seed", 3, "golden/concat"]),
            ("diff", PLAIN, 1, ["--diff", "golden/best-fit", "golden/concat"]),
            ("diff-same", PLAIN, 0, ["--diff", "golden/concat", "golden/concat"]),
        ]:
            with self.subTest(name):
                result = bindery("inspect", *arguments, cwd=self.folder, env=environment)
                self.assertEqual(result.status, status, result)
                golden = GOLDEN / f"{name}.txt"
                if os.environ.get("BINDERY_GOLDEN") == "write":
                    golden.parent.mkdir(exist_ok=True)
                    golden.write_text(result.output, encoding="utf-8")
                self.assertEqual(result.output, golden.read_text(encoding="utf-8"))

    def test_a_screen_is_80_columns_wide(self) -> None:
        lines = self.write("a.jsonl", json_lines(texts(10, 2000)))
        dataset = self.pack(self.folder / "a", [lines], "--seq-len", 65)
        for environment in (PLAIN, UTF_8):
            for options in ([], ["--scan", "--duplicates"], ["--color=always"]):
                result = self.succeeds("inspect", *options, dataset, env=environment)
                self.assert_80_columns(result)

    def test_awkward_names_and_numbers_fit_it_too(self) -> None:
        """The longest names, of which the end is shown, and lengths of many digits."""
        long = "é" * 90 + "the-end.jsonl"
        (self.folder / "deep").mkdir()
        for name in (f"deep/{long}", "short.jsonl"):
            # A line of text has at most 30 characters, so that no text is wider than the screen.
            texts = ["\n".join(["word " * 6] * n) for n in (1, 1, 9, 90, 900, 4000, 9000)]
            self.write(name, json_lines(texts * 3))
        dataset = self.folder / "dataset"
        self.pack(dataset, [], "--seq-len", "1m",
                  "--source", f"{'a-very-long-source' * 5}={self.folder / 'deep'}",
                  "--source", f"short={self.folder / 'short.jsonl'}")
        shown = self.succeeds("inspect", "--scan", "--duplicates", dataset, env=UTF_8)
        self.assert_80_columns(shown)
        self.assertIn("...", shown.stdout)
        self.assertIn("the-end.jsonl byte", shown.stdout)
        self.assertRegex(shown.stdout, r"Document lengths .*\d\n  max 279000\n")
        for options in (["--row", 0], ["--row", 1], ["--sample", 2]):
            self.assert_80_columns(self.succeeds("inspect", *options, dataset, env=UTF_8))

    def test_blocks_are_for_utf_8_alone(self) -> None:
        for variables, blocks in (
            ({"LANG": "de_DE.UTF-8"}, True),
            ({"LANG": "de_DE.utf8"}, True),
            ({"LANG": "C.UTF-8", "LC_ALL": "C"}, False),
            ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
            ({"LANG": "de_DE.UTF-8", "LC_ALL": ""}, True),
            ({"LANG": "de_DE.ISO-8859-1"}, False),
            ({}, False),
        ):
            with self.subTest(variables):
                result = self.succeeds("inspect", FORMAT_1 / "best-fit", env=variables)
                self.assertEqual("█" in result.stdout, blocks)
                self.assertEqual("###" in result.stdout, not blocks)


if __name__ == "__main__":
    program.main()
