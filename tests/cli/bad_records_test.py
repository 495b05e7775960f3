"""`--bad-records skip`: records that cannot become a document are left out, counted by kind and
named; everything else is as if they had never been there."""

import gzip
import json
import random
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import program
import reference_tokenizers as reference
from program import ProgramTest, bindery, contents

SEED = 20251118
MAX_BYTES = 3000
KINDS = ["missing_text", "json", "utf8", "too_large", "pattern"]
SKIP = ["--bad-records", "skip"]
OPTIONS = [*SKIP, "--seq-len", "64", "--unit-size", "16K", "--max-document-bytes", MAX_BYTES]

BAD_LINES = {
    "missing_text": [b'{"text": null}', b"{}", b'{"text": 7}', b'["text"]', b"17",
                     b'{"other": {"text": "a"}}'],
    "json": [b"{", b'{"text": "a"', b'{"text": "a"} x', b"{'text': 'a'}", b"\x00",
             b'{"text": "a", "text": "b"}', b'{"text": "\\x"}'],
    "utf8": [b'{"text": "\xff"}', b'{"text": "\\ud800"}', b'\xc3{"text": ""}'],
    "too_large": [b'{"text": "' + b"x" * MAX_BYTES + b'"}', b" " * (MAX_BYTES + 1),
                  b"y" * 400_000],
}


def published(dataset: Path) -> dict[str, bytes]:
    files = contents(dataset)
    return {name: files[name] for name in files if Path(name).name != "pack-log.json"}


def totals(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_bytes())["totals"]


def bad_counts(dataset: Path) -> dict[str, int]:
    return {kind: totals(dataset)[f"bad_{kind}"] for kind in KINDS}


class Corpus:
    """Good and bad lines, and the messages expected about them."""

    def __init__(self, rng: random.Random, n_good: int, n_bad: int):
        """Puts `n_bad` bad lines of each kind at random places, including the first and the
        last."""
        good = [json.dumps({"text": rng.randbytes(rng.randrange(120)).hex()}).encode()
                for _ in range(n_good)]
        bad = [(kind, rng.choice(lines)) for kind, lines in BAD_LINES.items()
               for _ in range(n_bad)]
        rng.shuffle(bad)
        self.records: list[tuple[str, bytes]] = [("", line) for line in good]
        for kind_and_line in bad[2:]:
            self.records.insert(rng.randrange(1, len(self.records)), kind_and_line)
        self.records = [bad[0], *self.records, bad[1]]
        self.counts = {kind: sum(k == kind for k, _ in bad) for kind in KINDS}
        self.data = b"\n".join(line for _, line in self.records)  # no newline at the end

    @property
    def good(self) -> bytes:
        return b"".join(line + b"\n" for kind, line in self.records if not kind)

    def bad_positions(self) -> list[int]:
        position, found = 0, []
        for kind, line in self.records:
            if kind:
                found.append(position)
            position += len(line) + 1
        return found


class Texts(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        # One record in ten thousand of each kind, as in real corpora.
        n = program.amount(brief=10_000, usual=30_000, long=500_000)
        self.corpus = Corpus(random.Random(SEED), n, n // 10_000)
        self.file = self.folder / "corpus.jsonl"
        self.file.write_bytes(self.corpus.data)
        self.expected = self.pack(self.folder / "expected", [self.file], *OPTIONS)

    def texts(self, dataset: Path) -> list[bytes]:
        """Returns every document's bytes, in the order of the input."""
        found: dict[int, dict[int, bytes]] = {}
        for shard in sorted(dataset.glob("*.arrow")):
            for row in pa.ipc.open_file(shard).read_all().to_pylist():
                ends = zip(row["documents"], row["cu_seqlens"], row["cu_seqlens"][1:])
                for document, begin, end in ends:
                    pieces = found.setdefault(document["position"], {})
                    pieces[document["offset"]] = row["input_ids"][begin:end]
        texts = []
        for position in sorted(found):
            tokens: list[int] = []
            for offset, piece in sorted(found[position].items()):
                tokens[offset:] = piece
            texts.append(bytes(tokens[:-1]))
        return texts

    def test_they_are_counted_exactly_and_all_else_is_packed(self) -> None:
        self.assertEqual(bad_counts(self.expected), self.corpus.counts)
        good = [json.loads(line)["text"].encode() for line in self.corpus.good.splitlines()]
        self.assertEqual(self.texts(self.expected), good)
        inspected = json.loads(self.succeeds("inspect", "--json", self.expected).stdout)
        for kind, n in self.corpus.counts.items():
            self.assertEqual(inspected["figures"][f"bad_{kind}"], n)

    def test_the_corpus_agrees(self) -> None:
        self.succeeds("verify", "-q", self.expected, "--against", self.file)
        with self.subTest("a bad record that has become good"):
            lines = [line for _, line in self.corpus.records]
            self.file.write_bytes(b"\n".join([*lines[:-1], b'{"text": ""}']))
            result = bindery("verify", "-q", self.expected, "--against", self.file)
            self.assertEqual(result.status, 1, result)

    def test_the_first_hundred_are_named(self) -> None:
        log = json.loads((self.expected / "pack-log.json").read_bytes())
        named = [record["position"] for record in log["bad_records"]]
        self.assertEqual(named, self.corpus.bad_positions()[:100])
        for record in log["bad_records"]:
            self.assertEqual(record["path"], str(self.file.resolve()))
            self.assertTrue(record["kind"] and record["problem"])

    def test_threads_ranks_and_kills_change_nothing(self) -> None:
        def arguments(dataset: Path) -> list:
            return ["pack", "-q", "-o", dataset, *OPTIONS, self.file]

        expected = published(self.expected)
        with self.subTest("threads"):
            dataset = self.folder / "threads"
            self.succeeds(*arguments(dataset), "--threads", 7)
            self.assertEqual(published(dataset), expected)
        with self.subTest("ranks"):
            dataset = self.folder / "ranks"
            runs = [
                subprocess.Popen([program.program(), *map(str, arguments(dataset)), "--rank",
                                  str(rank), "--ranks", "2"]) for rank in range(2)
            ]
            self.assertEqual([run.wait() for run in runs], [0, 0])
            self.assertEqual(published(dataset), expected)
        with self.subTest("kills"):
            dataset = self.folder / "kills"
            for _ in range(3):
                run = subprocess.Popen([program.program(), *map(str, arguments(dataset))])
                n_before = len(list(dataset.glob("*.arrow")))
                while run.poll() is None and len(list(dataset.glob("*.arrow"))) < n_before + 9:
                    pass
                run.kill()
                run.wait()
            self.succeeds(*arguments(dataset))
            self.assertEqual(published(dataset), expected)

    def test_compressed_inputs_are_read_on_after_them(self) -> None:
        for name, data in [
            ("gzip/corpus.jsonl", gzip.compress(self.corpus.data)),
            ("zstd/corpus.jsonl", pa.compress(self.corpus.data, "zstd", asbytes=True)),
        ]:
            with self.subTest(name):
                path = self.folder / name
                path.parent.mkdir()
                path.write_bytes(data)
                dataset = self.pack(self.folder / f"{path.parent.name}-set", [path], *OPTIONS)
                shards = {name: data for name, data in published(dataset).items()
                          if name.endswith(".arrow")}
                for shard, content in published(self.expected).items():
                    if shard.endswith(".arrow"):
                        self.assertEqual(shards[shard], content, shard)
                self.succeeds("verify", "-q", dataset, "--against", path)

    def test_a_limit_counts_documents(self) -> None:
        compressed = self.folder / "corpus.jsonl.gz"
        compressed.write_bytes(gzip.compress(self.corpus.data))
        for path in [self.file, compressed]:
            for limit in [1, 700, 9_000]:
                with self.subTest(path.name, limit=limit):
                    dataset = self.folder / f"{path.suffix}-{limit}"
                    self.pack(dataset, [path], *OPTIONS, "--max-bad", "100%", "--limit", limit)
                    n_bad, n_good = 0, 0
                    for kind, _ in self.corpus.records:
                        if n_good == limit:
                            break
                        n_bad, n_good = n_bad + bool(kind), n_good + (not kind)
                    self.assertEqual(totals(dataset)["separators"], limit)
                    self.assertEqual(sum(bad_counts(dataset).values()), n_bad)
                    self.succeeds("verify", "-q", dataset, "--against", path)
                    shutil.rmtree(dataset)

    def test_a_holdout_leaves_them_to_the_training_side(self) -> None:
        dataset = self.pack(self.folder / "both", [self.file], *OPTIONS, "--holdout", "20%")
        self.assertEqual(bad_counts(dataset), self.corpus.counts)
        self.assertEqual(set(bad_counts(dataset / "holdout").values()), {0})
        self.succeeds("verify", "-q", dataset, "--against", self.file)
        self.succeeds("verify", "-q", dataset / "holdout", "--against", self.file)

    def test_plan_and_repack_and_locate_take_them(self) -> None:
        self.succeeds("plan", "-q", *SKIP, "--max-document-bytes", MAX_BYTES, self.file)
        repacked = self.folder / "repacked"
        self.succeeds("repack", "-q", self.expected, "-o", repacked, "--seq-len", 100)
        self.assertEqual(bad_counts(repacked), self.corpus.counts)
        self.succeeds("verify", "-q", repacked, "--against", self.file)
        self.succeeds("locate", self.expected, "0:0", "--corpus", self.file)

    def test_without_skip_the_first_is_an_error(self) -> None:
        without = [option for option in OPTIONS if option not in SKIP]
        result = bindery("pack", "-o", self.folder / "no", "--threads", 1, *without, self.file)
        self.assertEqual(result.status, 2, result)
        self.assertIn("line 1 (byte 0)", result.stderr)
        self.assertFalse((self.folder / "no").exists())


class Kinds(ProgramTest):
    def test_delimited_text_goes_on_after_a_document_that_is_too_large(self) -> None:
        large = b"\n".join(b"line %d" % i for i in range(2000))
        texts = [b"a", large, b"b\n\nb", b"x" * 300_000, b"", large, b"c"]
        path = self.folder / "a.txt"
        path.write_bytes(b"\n%\n".join(texts))
        options = [*SKIP, "--max-bad", "100%", "--delimiter", "%", "--max-document-bytes", 5000]
        for unit_size in [1000, 4096, 1 << 20]:
            with self.subTest(unit_size=unit_size):
                dataset = self.pack(self.folder / f"{unit_size}", [path], *options,
                                    "--unit-size", unit_size)
                self.assertEqual(totals(dataset)["bad_too_large"], 3)
                self.assertEqual(totals(dataset)["separators"], 4)
                self.succeeds("verify", "-q", dataset, "--against", path)

    def test_files_that_are_too_large_or_not_utf8(self) -> None:
        folder = self.folder / "corpus"
        folder.mkdir()
        (folder / "a.txt").write_bytes(b"good")
        (folder / "b.txt").write_bytes(b"x" * 9000)
        (folder / "c.txt.gz").write_bytes(gzip.compress(b"x" * 2_000_000))
        (folder / "d.txt").write_bytes(b"text, but for one byte: \xff")
        (folder / "e.txt").write_bytes(b"good")
        options = [*SKIP, "--max-bad", "60%", "--max-document-bytes", 5000]
        dataset = self.pack(self.folder / "dataset", [folder], *options, "--unit-size", 5000)
        self.assertEqual(totals(dataset)["bad_too_large"], 2)
        self.assertEqual(totals(dataset)["bad_utf8"], 1)
        self.assertEqual(totals(dataset)["documents"], 2)
        self.succeeds("verify", "-q", dataset, "--against", folder)
        kept = self.pack(self.folder / "kept", [folder], *options, "--invalid-utf8", "keep")
        self.assertEqual(totals(kept)["bad_utf8"], 0)
        self.assertEqual(totals(kept)["documents"], 3)

    def test_tables_without_a_value(self) -> None:
        texts = ["a", None, "", None, "x" * 6000, "b"] * 50
        path = self.folder / "a.parquet"
        pa.parquet.write_table(pa.table({"text": texts}), path, row_group_size=40)
        dataset = self.pack(self.folder / "dataset", [path], *SKIP, "--max-bad", "50%",
                            "--max-document-bytes", 5000, "--unit-size", 5000)
        self.assertEqual(totals(dataset)["bad_missing_text"], 100)
        self.assertEqual(totals(dataset)["bad_too_large"], 50)
        self.assertEqual(totals(dataset)["separators"], 150)
        self.succeeds("verify", "-q", dataset, "--against", path)

    def test_a_pattern_over_its_limit(self) -> None:
        """The documents that follow are tokenised as if that text had never been there."""
        tokenizer = reference.trained(["some text " * 20], None, 300, ["<|endoftext|>"])
        described = json.loads(tokenizer.to_str())
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "(a+)+b| ?[a-z]+"}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False},
        ]}
        file = self.folder / "tokenizer.json"
        file.write_text(json.dumps(described))
        good = [f"some text {n} text" for n in range(30)]
        lines = [json.dumps({"text": text}) for text in good]
        bad = json.dumps({"text": "a" * 4000})
        (self.folder / "good.jsonl").write_text("\n".join(lines))
        (self.folder / "bad.jsonl").write_text("\n".join([*lines[:9], bad, *lines[9:], bad]))
        options = ["--tokenizer", file, "--seq-len", 32, *SKIP, "--max-bad", "10%"]
        ids = []
        for name, n_bad in [("good", 0), ("bad", 2)]:
            dataset = self.pack(self.folder / name, [self.folder / f"{name}.jsonl"], *options)
            self.assertEqual(totals(dataset)["bad_pattern"], n_bad)
            shard = pa.ipc.open_file(dataset / "00000-00000.arrow").read_all()
            ids.append(shard.column("input_ids").to_pylist())
        self.assertEqual(*ids)

    def test_a_damaged_file_is_an_error(self) -> None:
        data = gzip.compress(b'{"text": "a"}\n' * 1000)
        path = self.folder / "a.jsonl.gz"
        for damaged in [data[:-9], data[:-8] + b"\0" * 8]:
            path.write_bytes(damaged)
            result = bindery("pack", "-o", self.folder / "dataset", *SKIP, "--max-bad", "100%",
                             path)
            self.assertEqual(result.status, 2, result)
            self.assertIn("a.jsonl.gz", result.stderr)

    def test_tokens_outside_the_vocabulary_are_an_error(self) -> None:
        path = self.folder / "a.parquet"
        pa.parquet.write_table(pa.table({"input_ids": [[1, 2], [70]]}), path)
        result = bindery("pack", "-o", self.folder / "dataset", *SKIP, "--max-bad", "100%",
                         "--vocab-size", 50, "--separator-id", 0, path)
        self.assertEqual(result.status, 2, result)
        self.assertIn("the vocabulary 50", result.stderr)


class Share(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.folder / "a.jsonl"
        lines = [b'{"text": "%d"}' % i for i in range(990)] + [b"{"] * 10
        random.Random(SEED).shuffle(lines)
        self.file.write_bytes(b"\n".join(lines))
        self.options = ["--unit-size", 1000, "--seq-len", 64, *SKIP]
        self.dataset = self.folder / "dataset"

    def run_with(self, *more: object) -> program.Result:
        return bindery("pack", "-o", self.dataset, *self.options, *more, self.file)

    def test_too_many_are_an_error_that_keeps_the_shards(self) -> None:
        for share in ["0.9999%", None, "0%"]:
            given = ["--max-bad", share] if share else []
            result = self.run_with(*given)
            self.assertEqual(result.status, 2, result)
            self.assertIn("10 of 1000 records are bad", result.stderr)
            self.assertIn("10 of broken JSON or CSV", result.stderr)
            self.assertIn("--max-bad", result.stderr)
            self.assertFalse((self.dataset / "manifest.json").exists())
        shards = {p.name: p.stat().st_mtime_ns for p in self.dataset.glob("*.arrow")}
        log = json.loads((self.dataset / "pack-log.json").read_bytes())
        self.assertIn("inputs", log)
        result = self.run_with("--max-bad", "1%")
        self.assertEqual(result.status, 0, result)
        self.assertEqual(
            shards, {p.name: p.stat().st_mtime_ns for p in self.dataset.glob("*.arrow")})
        # Bad records that earlier runs met are still named.
        again = json.loads((self.dataset / "pack-log.json").read_bytes())
        self.assertEqual(len(log["bad_records"]), 10)
        self.assertEqual(again["bad_records"], log["bad_records"])
        fresh = self.pack(self.folder / "fresh", [self.file], *self.options, "--max-bad", "1%")
        self.assertEqual(published(self.dataset), published(fresh))
        self.succeeds("verify", "-q", self.dataset)

    def test_an_update_still_names_those_of_inputs_that_are_the_same(self) -> None:
        def named() -> list[dict]:
            return json.loads((self.dataset / "pack-log.json").read_bytes())["bad_records"]

        self.assertEqual(self.run_with("--max-bad", "1%").status, 0)
        before = named()
        self.assertEqual(len(before), 10)
        self.assertEqual(self.run_with("--max-bad", "2%", "--update").status, 0)
        self.assertEqual(named(), before)

    def test_where_all_are_bad_nothing_is_promised(self) -> None:
        self.file.write_bytes(b'{"other": 1}\n' * 3)
        result = self.run_with()
        self.assertEqual(result.status, 2, result)
        self.assertIn("3 of 3 records are bad", result.stderr)
        self.assertNotIn("the shards stay", result.stderr)
        result = self.run_with("--max-bad", "100%")
        self.assertEqual(result.status, 2, result)
        self.assertIn("only bad records", result.stderr)

    def test_processes_that_share_must_agree_on_it(self) -> None:
        first = self.run_with("--rank", 0, "--ranks", 2, "--max-bad", "0.5%")
        self.assertEqual(first.status, 2, first)
        second = self.run_with("--rank", 1, "--ranks", 2, "--max-bad", "1%")
        self.assertEqual(second.status, 2, second)
        self.assertIn("one process alone can change that", second.stderr)
        self.assertEqual(self.run_with("--finish", "--max-bad", "1%").status, 0)
        self.succeeds("verify", "-q", self.dataset)

    def test_what_is_printed(self) -> None:
        ledger = self.run_with("--max-bad", "1%").stdout
        self.assertRegex(ledger, r"bad records +10 +1\.0000 % of the records")
        self.assertRegex(ledger, r"10 +of broken JSON or CSV")
        self.assertRegex(self.succeeds("inspect", self.dataset).stdout, r"bad: broken JSON or CSV +10")
        quiet = bindery("pack", "-q", "-o", self.folder / "quiet", *self.options, "--max-bad",
                        "1%", self.file)
        self.assertIn("left out: 10 records of broken JSON or CSV", quiet.stderr)

    def test_wrong_shares(self) -> None:
        for given, said in [
            (["--max-bad", "1"], "write 1%"), (["--max-bad", "101%"], "from 0% to 100%"),
            (["--max-bad", "x"], "not a share"), (["--max-bad", "0.5"], "not clear"),
            (["--bad-records", "error", "--max-bad", "1%"], "goes with --bad-records skip"),
        ]:
            with self.subTest(given):
                arguments = [*given] if given[0] == "--bad-records" else [*SKIP, *given]
                result = bindery("pack", "-o", self.dataset, *arguments, self.file)
                self.assertEqual(result.status, 2, result)
                self.assertIn(said, result.stderr)
                self.assertFalse(self.dataset.exists())


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
