"""The estimates of `bindery plan` for a way to pack equal the results of packing that way."""

import gzip
import json
import random
import tempfile
from pathlib import Path

import program
from corpus import text_of_size, text_sizes, without_delimiter_lines
from corpus_files import DELIMITER, FORMATS, Format
from corruption_test import NO_PART_OF_IT, damage_anywhere
from forged_dataset import Forgery
from program import bindery, option_arguments, write_inputs
from reference_packer import VOCAB_SIZE, Input, Options, has_documents
from reference_test_case import dataset_rows
from refusals import Refusals
from schemas import validate

SEED = 20240713
ROUNDS = 20 if program.LONG else 1
CORRUPTIONS = 300 if program.LONG else 30
STRATEGIES = ["best-fit", "first-fit", "concat"]
COUNTS = ["rows", "segments", "documents", "packed", "padding", "repeated", "truncated",
          "dropped", "split_documents", "truncated_documents", "dropped_documents",
          "attention_pairs"]


def make_case(rng: random.Random, form: Format) -> tuple[Options, list[Input]]:
    """A corpus that still has documents after selection."""
    options = Options(
        seq_len=rng.choice([2, 31, 33, 64]),
        strategy=rng.choice(STRATEGIES),
        long=rng.choice(["split", "split", "truncate", "drop"]),
        bos=rng.choice([None, 7]) if form.separators_are == "append" else None,
        unit_size=rng.choice([150, 1000, 64 << 20]),
        max_documents=rng.choice([None, None, 3]),
        min_tokens=rng.choice([0, 0, 4]),
        delimiter=DELIMITER if form.is_delimited else None,
        vocab_size=VOCAB_SIZE if form.is_tokens else None,
        separators_are=form.separators_are,
    )
    sizes = [0, 1, 30, 31, 32, 33, *text_sizes(rng, options, 30)]
    texts = [text_of_size(rng, size, broken=False) for size in sizes]
    if form.is_delimited:
        texts = [without_delimiter_lines(text) for text in texts]
    if form.begins_with_text:
        texts[0] = texts[0] or b"x"
    inputs = form.write(rng, texts)
    return (options, inputs) if has_documents(inputs, options) else make_case(rng, form)


def totals_of(dataset: Path) -> dict:
    totals = json.loads((dataset / "manifest.json").read_bytes())["totals"]
    return {name: totals[name] for name in COUNTS}


def n_begun(dataset: Path) -> int:
    """Returns the documents that are split into several pieces."""
    return sum(
        offset == 0 and end - begin < length
        for rows in dataset_rows(dataset).values()
        for _, bounds, segments, _ in rows
        for begin, end, (_, _, offset, length) in zip(bounds, bounds[1:], segments)
    )


def shard_bytes(dataset: Path) -> int:
    return sum(path.stat().st_size for path in dataset.glob("*.arrow"))


def without(arguments: list, *flags: str) -> list:
    """Returns a command line without some options and their values."""
    pairs = zip(arguments[::2], arguments[1::2])
    return [part for pair in pairs if pair[0] not in flags for part in pair]


def json_lines(rng: random.Random, n: int) -> bytes:
    """Makes documents of log-normal lengths, as real ones have."""
    letters = bytes(rng.choices(b"abcdefgh ", k=40_000))
    lengths = [min(int(rng.lognormvariate(5, 0.5)), 20_000) for _ in range(n)]
    begins = [rng.randrange(20_000) for _ in lengths]
    texts = [letters[begin : begin + length] for begin, length in zip(begins, lengths)]
    return b"".join(b'{"text": "%s"}\n' % text for text in texts)


class Plan(Refusals):
    def planned(self, *arguments: object) -> dict:
        found = json.loads(self.succeeds("plan", "--json", "-q", *arguments).stdout)
        validate(found, "estimate")
        return found

    def way(self, found: dict, seq_len: int, strategy: str) -> dict:
        [way] = [way for way in found["estimates"]
                 if (way["seq_len"], way["strategy"]) == (seq_len, strategy)]
        return way

    def assert_agrees(self, way: dict, dataset: Path) -> None:
        """All counts are equal; the size of the shards agrees within a few hundred bytes each."""
        totals = totals_of(dataset)
        self.assertEqual({name: way[name] for name in COUNTS}, totals)
        n_cells = totals["packed"] + totals["padding"]
        causal = totals["rows"] * way["seq_len"] * (way["seq_len"] + 1) / 2
        n_read = totals["documents"] + totals["dropped_documents"]
        cut = totals["dropped_documents"] + n_begun(dataset)
        self.assertAlmostEqual(way["padding_share"], totals["padding"] / n_cells)
        self.assertAlmostEqual(way["attention_saved"], 1 - totals["attention_pairs"] / causal)
        self.assertAlmostEqual(way["cut_share"], cut / n_read)
        n_shards = len(list(dataset.glob("*.arrow")))
        self.assertAlmostEqual(way["disk_bytes"], shard_bytes(dataset), delta=700 * n_shards)

    def place(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    # ---- Datasets ----

    def check_dataset(self, rng: random.Random, form: Format) -> None:
        options, inputs = make_case(rng, form)
        place = self.place()
        files = write_inputs(place / "corpus", inputs)
        dataset = self.pack(place / "dataset", files, *option_arguments(options),
                            *rng.choice([[], ["--shuffle", "5"]]))
        found = self.planned(dataset, "--seq-len", f"{options.seq_len},99")
        self.assertEqual((found["of"], found["exact"]), ("dataset", True))
        ways = [(n, strategy) for n in (options.seq_len, 99) for strategy in STRATEGIES]
        told = [(way["seq_len"], way["strategy"]) for way in found["estimates"]]
        self.assertEqual(told, ways)
        own = self.way(found, options.seq_len, options.strategy)
        if options.long != "drop":  # dropped documents are not in the dataset any more
            self.assert_agrees(own, dataset)
        if options.long == "split":
            again = self.place() / "again"
            strategy = rng.choice(STRATEGIES)
            self.succeeds("repack", "-q", dataset, "-o", again, "--seq-len", "99",
                          "--strategy", strategy)
            self.assert_agrees(self.way(found, 99, strategy), again)

    def test_a_dataset_gives_what_packing_and_repacking_give(self) -> None:
        for name in ("jsonl", "jsonl, gzip", "text files", "parquet", "megatron, append"):
            for n in range(2 * ROUNDS):
                seed = f"{SEED}-dataset-{name}-{n}"
                with self.subTest(seed=seed):
                    self.check_dataset(random.Random(seed), FORMATS[name])

    def test_other_policies_are_what_repacking_with_them_gives(self) -> None:
        file = self.write("a.jsonl", json_lines(random.Random(SEED), 300))
        dataset = self.pack(self.folder / "dataset", [file], "--seq-len", "700",
                            "--unit-size", "9K")
        for policy in ("split", "truncate", "drop"):
            changes = ["--long", policy, "--max-documents", "2"]
            found = self.planned(dataset, "--seq-len", "101", *changes)
            again = self.folder / policy
            self.succeeds("repack", "-q", dataset, "-o", again, "--seq-len", "101", *changes)
            self.assertEqual((found["long"], found["max_documents"]), (policy, 2))
            self.assert_agrees(self.way(found, 101, "best-fit"), again)

    def test_dropped_documents_are_said_not_to_count(self) -> None:
        file = self.write("a.txt", b"x" * 99)
        short = self.write("b.txt", b"y" * 5)
        dataset = self.pack(self.folder / "dataset", [file, short], "--seq-len", "8",
                            "--long", "drop")
        found = self.planned(dataset)
        self.assertEqual(found["left_out_documents"], 1)
        self.assertEqual({way["documents"] for way in found["estimates"]}, {1})
        self.assertIn("1 documents that were dropped", self.succeeds("plan", dataset).stdout)

    def test_a_dataset_of_long_error_is_planned_as_split(self) -> None:
        file = self.write("a.txt", b"x" * 30)
        dataset = self.pack(self.folder / "dataset", [file], "--seq-len", "31",
                            "--long", "error")
        found = self.planned(dataset, "--seq-len", "16,31")
        self.assertEqual(found["long"], "split")
        self.assert_agrees(self.way(found, 31, "best-fit"), dataset)

    # ---- Inputs ----

    def check_inputs(self, rng: random.Random, form: Format) -> None:
        options, inputs = make_case(rng, form)
        place = self.place()
        files = write_inputs(place / "corpus", inputs)
        given = option_arguments(options)
        found = self.planned(*without(given, "--seq-len", "--strategy"), *files,
                             "--seq-len", options.seq_len)
        self.assertEqual((found["of"], found["exact"]), ("inputs", True))
        dataset = self.pack(place / "dataset", files, *given)
        self.assertEqual(found["units"], len(list(dataset.glob("*.arrow"))))
        self.assert_agrees(self.way(found, options.seq_len, options.strategy), dataset)

    def test_inputs_that_are_read_completely_give_what_packing_gives(self) -> None:
        for name, form in FORMATS.items():
            for n in range(ROUNDS):
                seed = f"{SEED}-inputs-{name}-{n}"
                with self.subTest(seed=seed):
                    self.check_inputs(random.Random(seed), form)

    def check_sample(self, files: list[Path], *options: object) -> None:
        """A sample of a tenth of the corpus estimates the whole within a few percent."""
        dataset = self.pack(self.place() / "dataset", files, "--seq-len", "256", *options)
        size = sum(totals_of(dataset)[name] for name in ("packed", "repeated")) // 10
        asked = [*files, *options, "--seq-len", "256", "--sample", size]
        found = self.planned(*asked)
        again = self.planned(*asked, "--threads=3")
        for way, same in zip(found["estimates"], again["estimates"], strict=True):
            self.assertEqual({**way, "seconds": 0}, {**same, "seconds": 0})
        self.assertFalse(found["exact"])
        self.assertLess(found["sample"]["read_bytes"], 2 * size)
        self.assertGreater(found["sample"]["windows"], 0)
        way = self.way(found, 256, "best-fit")
        for name, value in totals_of(dataset).items():
            if name in ("rows", "packed", "segments", "attention_pairs"):
                self.assertAlmostEqual(way[name], value, delta=0.12 * value, msg=name)
        self.assertAlmostEqual(way["disk_bytes"], shard_bytes(dataset),
                               delta=0.12 * shard_bytes(dataset))

    def test_a_sample_tells_the_whole(self) -> None:
        rng = random.Random(SEED)
        lines = json_lines(rng, 6000)
        plain = self.write("plain.jsonl", lines)
        packed = self.write("packed.jsonl.gz", gzip.compress(lines))
        texts = [line[10:-2] for line in json_lines(rng, 400).splitlines()]
        delimited = self.write("delimited.txt", b"\n%\n".join(texts * 6))
        small = write_inputs(self.folder / "small",
                             [Input(f"{i:03d}.txt", text) for i, text in enumerate(texts)])
        rows = [line[10:-2] for line in json_lines(rng, 1600).splitlines()]
        [table] = write_inputs(self.folder / "table", FORMATS["parquet"].write(rng, rows))
        for name, files, options in [
            ("plain", [plain], []), ("compressed", [packed], ["--unit-size", "100K"]),
            ("delimited", [delimited], ["--delimiter", "%"]), ("small", small, []),
            ("table", [table], ["--unit-size", "20K"]), ("mixed", [plain, packed, table], []),
        ]:
            with self.subTest(name):
                self.check_sample(files, *options)

    def test_no_document_is_in_the_sample_twice(self) -> None:
        texts = [b"x" * (1 << i % 12) for i in range(40)]
        plain = write_inputs(self.folder / "plain",
                             [Input(f"{i:02d}.txt", text) for i, text in enumerate(texts)])
        packed = [self.write(f"{i:02d}.txt.gz", gzip.compress(text))
                  for i, text in enumerate(texts)]
        n_bytes = sum(map(len, texts))
        for files in (plain, packed):
            for size in (1, 100, n_bytes // 2, n_bytes - 1):
                found = self.planned(*files, "--sample", size)
                self.assertLessEqual(found["sample"]["documents"], 40)
                self.assertLessEqual(found["sample"]["read_bytes"], n_bytes)

    # ---- Printed output ----

    def test_row_lengths_are_chosen_around_the_documents(self) -> None:
        for n_bytes, lengths in [(10, [64, 128, 256, 512]), (999, [256, 512, 1024, 2048]),
                                 (1023, [512, 1024, 2048, 4096])]:
            file = self.write("a.jsonl", b'{"text": "%s"}\n' % (b"x" * n_bytes) * 20)
            found = self.planned(file)
            self.assertEqual([way["seq_len"] for way in found["estimates"][::3]], lengths)
            dataset = self.pack(self.place() / "dataset", [file], "--seq-len", "77")
            found = self.planned(dataset)
            self.assertEqual([way["seq_len"] for way in found["estimates"][::3]],
                             sorted([*lengths, 77]))

    def test_the_shortest_rows_that_keep_documents_whole_are_recommended(self) -> None:
        texts = [b"x" * 99] * 99 + [b"x" * 500]  # 100 tokens with the separator
        file = self.write("a.jsonl", b"".join(b'{"text": "%s"}\n' % text for text in texts))
        for lengths, seq_len in [("99,100,101", 100), ("20,100", 100), ("1000,100", 100)]:
            advice = self.planned(file, "--seq-len", lengths)["recommendation"]
            self.assertEqual((advice["seq_len"], advice["strategy"]), (seq_len, "best-fit"))
        # Two documents of 60 do not share a row of 100, unless they may be cut.
        file = self.write("b.jsonl", b'{"text": "%s"}\n' % (b"x" * 59) * 50)
        advice = self.planned(file, "--seq-len", "100")["recommendation"]
        self.assertEqual(advice["strategy"], "concat")

    def test_without_the_models_context_nothing_is_recommended(self) -> None:
        file = self.write("a.jsonl", b'{"text": "%s"}\n' % (b"x" * 999) * 20)
        self.assertIsNone(self.planned(file)["recommendation"])
        said = self.succeeds("plan", file).stdout
        self.assertIn("--context N", said)
        self.assertNotIn("*", said)
        self.assertLessEqual(max(map(len, said.split("\n"))), 80)

    def test_no_longer_rows_than_the_models_context_are_recommended(self) -> None:
        """Documents have 1000 tokens, so none is whole in shorter rows."""
        file = self.write("a.jsonl", b'{"text": "%s"}\n' % (b"x" * 999) * 20)
        dataset = self.pack(self.place() / "dataset", [file], "--seq-len", "2k")
        for options, lengths, seq_len in [
            (["--context", "600"], [256, 512, 600], 600),
            (["--context", "2k"], [256, 512, 1024, 2048], 1024),
            (["--context", "1000"], [256, 512, 1000], 1000),
            (["--context", "999", "--seq-len", "64,1000,3k"], [64, 1000, 3072], 64),
        ]:
            for given in (file, dataset):
                with self.subTest(options):
                    found = self.planned(given, *options)
                    shown = {way["seq_len"] for way in found["estimates"]}
                    self.assertEqual(sorted(shown - {2048}), sorted({*lengths} - {2048}))
                    self.assertEqual(found["recommendation"]["seq_len"], seq_len)
        result = bindery("plan", file, "--context", "64", "--seq-len", "65,128")
        self.assertEqual(result.status, 2)
        self.assertIn("none of the lengths is at most --context 64", result.stderr)

    def test_people_see_the_same_in_80_columns(self) -> None:
        file = self.write("a.jsonl", json_lines(random.Random(SEED), 50))
        found = self.planned(file, "--seq-len", "128,1024")
        said = self.succeeds("plan", file, "--seq-len", "128,1024").stdout
        self.assertLessEqual(max(map(len, said.split("\n"))), 80)
        for way in found["estimates"]:
            shares = f"{100 * way['padding_share']:.2f} %", f"{100 * way['cut_share']:.2f} %"
            [line] = [line for line in said.split("\n")
                      if line[1:].split()[:2] == [str(way["seq_len"]), way["strategy"]]]
            self.assertIn(f"{way['rows']:,}", line)
            for share in shares:
                self.assertIn(share, line)
        self.assertIn(f"* --seq-len {found['recommendation']['seq_len']} ", said)

    # ---- Refusals ----

    def test_nonsense_is_refused(self) -> None:
        file = self.write("a.txt", b"text")
        for lengths in ("", ",", "1", "0", "-5", "8,", ",8", "8 9", "x", "8x", "1073741825",
                        "99999999999999999999", ",".join(map(str, range(2, 35)))):
            self.assert_refusal(bindery("plan", f"--seq-len={lengths}", file), "--seq-len")
        self.assert_refusal(bindery("plan"), "no input")
        self.assert_refusal(bindery("plan", self.folder / "absent"), "absent")
        self.assert_refusal(bindery("plan", "-", input=b'{"text": "x"}\n'), "standard input")
        self.assert_refusal(bindery("plan", "--long", "error", file), "--long")
        self.assert_refusal(bindery("plan", "--sample", "0", file), "--sample")
        self.assert_refusal(bindery("plan", "--min-tokens", "9", file), "no document")
        bad = self.write("b.jsonl", b'{"text": "one"}\n{"text": 2}\n')
        self.assert_refusal(bindery("plan", bad), "b.jsonl', line 2")

    def test_an_unfinished_dataset_is_refused(self) -> None:
        file = self.write("a.txt", b"text")
        dataset = self.pack(self.folder / "dataset", [file])
        (dataset / "manifest.json").unlink()
        self.assert_refusal(bindery("plan", dataset), "not a finished dataset")

    def test_lengths_that_lie_are_refused(self) -> None:
        """A document of 4 G tokens would be two billion rows of 2."""
        dataset = self.pack(self.folder / "dataset", [self.write("a.txt", b"abc")])
        for n, length in enumerate([5, 2**32 - 1]):
            forgery = Forgery.load(dataset)
            forgery.shards[0].rows[0].documents[0]["length"] = length
            forgery.write(self.folder / str(n))
            self.assert_refusal(bindery("plan", "--seq-len=2", self.folder / str(n)), "S3")

    def test_a_damaged_dataset_is_an_error_and_no_crash(self) -> None:
        file = self.write("a.jsonl", json_lines(random.Random(SEED), 40))
        dataset = self.pack(self.folder / "dataset", [file], "--seq-len", "33",
                            "--unit-size", "2K")
        names = sorted({path.name for path in dataset.glob("*.*[nw]")} - {*NO_PART_OF_IT})
        for n in range(CORRUPTIONS):
            rng = random.Random(f"{SEED}-damage-{n}")
            path = dataset / rng.choice(names)
            whole = path.read_bytes()
            data = bytearray(whole)
            damage_anywhere(rng, data)
            path.write_bytes(data)
            with self.subTest(n=n, name=path.name):
                result = bindery("plan", dataset, timeout=20)
                self.assertIn(result.status, (0, 2), result)
                if result.status == 0:  # nothing in the output comes from the changed bytes
                    self.assertIn("exact", result.stdout)
            path.write_bytes(whole)


if __name__ == "__main__":
    program.main()
