"""Other programs' readers open Bindery's datasets, and see their contents."""

import contextlib
import glob
import json
import os
import re
import tempfile
from pathlib import Path

CACHE = tempfile.TemporaryDirectory(prefix="bindery-test-")  # instead of the user's own
os.environ["HF_HOME"] = CACHE.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import datasets  # noqa: E402
import duckdb  # noqa: E402
import pandas  # noqa: E402
import polars  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyarrow.parquet  # noqa: E402
import tokenizers  # noqa: E402

import program  # noqa: E402
from program import ROOT, ProgramTest, bindery, write_inputs  # noqa: E402
from reference_packer import SEPARATOR, VOCAB_SIZE, Input  # noqa: E402
from schemas import validate  # noqa: E402

TEXTS = ["First, plain.", "Straße 語 🧵\n\ttabs and\x00controls", "", " leading and trailing ",
         "text with <|endoftext|>'s letters"]


class Readers(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
        inputs = [Input("a.jsonl", lines.encode()), Input("b.txt", b"a text\nof its own\n" * 9)]
        self.files = write_inputs(self.folder / "corpus", inputs)
        arguments = ["--seq-len", 64, "--unit-size", 150]
        self.dataset = self.pack(self.folder / "dataset", self.files, *arguments)
        self.shards = sorted(self.dataset.glob("*.arrow"))
        self.assertGreater(len(self.shards), 1)

    def rows(self, shards: list[Path]) -> list[dict]:
        return [row for path in shards for row in pa.ipc.open_file(path).read_all().to_pylist()]

    def loaded(self, shards: list[Path]) -> list[dict]:
        files = [str(path) for path in shards]
        return list(datasets.load_dataset("arrow", data_files=files, split="train"))

    def test_datasets_and_pyarrow_read_equal_rows(self) -> None:
        rows = self.rows(self.shards)
        self.assertGreater(len(rows), 2)
        self.assertEqual(self.loaded(self.shards), rows)

    def test_datasets_polars_and_pyarrow_read_equal_masks(self) -> None:
        """As lists of booleans, also where rows begin inside a byte."""
        ids = [[i, *range(i % 20)] for i in range(60)]
        masks = [[(i + k) % 3 > 0 for k in range(len(row))] for i, row in enumerate(ids)]
        table = self.folder / "masked.parquet"
        pyarrow.parquet.write_table(pa.table({"input_ids": ids, "loss_mask": masks}), table)
        for options in ([], ["--compress", "zstd"]):
            name = f"masked-{len(options)}"
            dataset = self.pack(self.folder / name, [table], "--seq-len", 9, *options)
            shards = sorted(dataset.glob("*.arrow"))
            rows = self.rows(shards)
            self.assertIn({True, False}, [set(row["loss_mask"]) for row in rows])
            self.assertTrue(all(len(row["loss_mask"]) == 9 for row in rows))
            self.assertEqual(self.loaded(shards), rows)
            read = polars.read_ipc(shards[0]).to_dicts()
            self.assertEqual(in_order(read), in_order(rows))

    def test_datasets_and_pyarrow_read_compressed_shards_alike(self) -> None:
        arguments = ["--seq-len", 64, "--unit-size", 150, "--compress", "zstd"]
        dataset = self.pack(self.folder / "compressed", self.files, *arguments)
        shards = sorted(dataset.glob("*.arrow"))
        self.assertNotEqual(shards[0].read_bytes(), self.shards[0].read_bytes())
        self.assertEqual(self.rows(shards), self.rows(self.shards))
        self.assertEqual(self.loaded(shards), self.rows(self.shards))

    def test_tokenizers_gives_the_ids_that_the_shard_holds(self) -> None:
        tokenizer = tokenizers.Tokenizer.from_file(str(self.dataset / "tokenizer.json"))
        self.assertEqual(tokenizer.get_vocab_size(), VOCAB_SIZE)
        self.assertEqual(tokenizer.token_to_id("<|endoftext|>"), SEPARATOR)

        documents = {}
        for row in self.rows(self.shards[:1]):
            bounds = row["cu_seqlens"]
            for document, begin, end in zip(row["documents"], bounds, bounds[1:]):
                documents[document["input"], document["position"]] = row["input_ids"][begin:end]
        stored = [documents[key] for key in sorted(documents)]
        self.assertGreater(len(stored), 1)
        for text, ids in zip(TEXTS, stored):
            plain = text.replace("<|endoftext|>", "")  # tokenizers would make it one token
            encoded = tokenizer.encode(plain, add_special_tokens=False).ids
            self.assertEqual(encoded, list(plain.encode()))
            self.assertEqual(tokenizer.decode(encoded, skip_special_tokens=False), plain)
            self.assertEqual(ids, [*text.encode(), SEPARATOR])

    def test_every_byte_has_its_id_and_comes_back(self) -> None:
        tokenizer = tokenizers.Tokenizer.from_file(str(self.dataset / "tokenizer.json"))
        text = "".join(map(chr, [*range(0x00, 0x250), 0x2028, 0xFFFD, 0xFFFF, 0x10FFFF]))
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        self.assertEqual(encoded, list(text.encode()))
        self.assertEqual(tokenizer.decode(encoded, skip_special_tokens=False), text)

    def test_verdicts_obey_their_schema_good_or_bad(self) -> None:
        for good in (True, False):
            if not good:
                (self.dataset / "plan.json").write_text("{}")
            result = bindery("verify", "--json", self.dataset)
            self.assertEqual(result.status, 0 if good else 1, result)
            verdict = json.loads(result.stdout)
            validate(verdict, "verdict")
            self.assertEqual(verdict["good"], good)
            self.assertEqual(verdict["problems"] == [], good)

    def test_all_printed_json_parses(self) -> None:
        arguments = ["-o", self.folder / "again", "--seq-len", 64, *self.files]
        packed = self.succeeds("pack", "-q", "--json", *arguments)
        inspected = self.succeeds("inspect", "--json", self.dataset)
        verified = self.succeeds("verify", "--json", self.dataset)
        for result in [packed, inspected, verified]:
            self.assertIsInstance(json.loads(result.stdout), dict, result)


def documented_calls() -> list[str]:
    """Returns the calls of the table in docs/format.md, except those of transformers, which has a
    Python of its own (tests/cli/interchange_test.py)."""
    text = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    section = text.split("## Opening a dataset elsewhere\n")[1].split("\n#")[0]
    calls = re.findall(r"^\| .* \| `([^`]*)` \|$", section, re.MULTILINE)
    return [call for call in calls if not call.startswith("transformers.")]


def records(opened: object) -> list[dict] | dict[str, list[dict]]:
    """Returns the rows of a call's result as plain values; for splits, the rows of each."""
    match opened:
        case dict():
            return {split: list(rows) for split, rows in opened.items()}
        case pyarrow.dataset.Dataset():
            return opened.to_table().to_pylist()
        case pa.Table():
            return opened.to_pylist()
        case polars.LazyFrame():
            return opened.collect().to_dicts()
        case pandas.DataFrame():
            return pa.Table.from_pandas(opened).to_pylist()
        case duckdb.DuckDBPyRelation():
            names = opened.columns
            return [dict(zip(names, values)) for values in opened.fetchall()]
    raise TypeError(type(opened))


def in_order(rows: list[dict]) -> list[dict]:
    return sorted(({**row, "input_ids": list(row["input_ids"])} for row in rows), key=repr)


class Documented(ProgramTest):
    """Runs every call of docs/format.md, word for word."""

    def setUp(self) -> None:
        super().setUp()
        corpus = self.folder / "corpus.jsonl"
        lines = [json.dumps({"text": f"{n} " * (n % 30)}) for n in range(200)]
        corpus.write_text("\n".join(lines))
        options = ["--seq-len", 64, "--unit-size", "4K", "--holdout", "20%"]
        self.shards = self.pack(self.folder / "shards", [corpus], *options)
        for name, form in [("tables", "parquet"), ("streams", "stream")]:
            self.succeeds("export", "-q", "-o", self.folder / name, "--format", form, self.shards)

    def rows(self, pattern: str) -> list[dict]:
        files = sorted(self.folder.glob(pattern))
        return [row for path in files for row in pa.ipc.open_file(path).read_all().to_pylist()]

    def expected(self, call: str) -> list[dict] | dict[str, list[dict]]:
        """Returns the files that the call's arguments name, read by pyarrow."""
        if "shards" not in call:
            files = sorted(self.folder.glob("tables/*.parquet"))
            rows = pyarrow.dataset.dataset(files).to_table().to_pylist()
            return {"train": rows} if "load_dataset" in call else rows
        if "load_dataset" in call:
            return {"train": self.rows("shards/*.arrow"), "holdout": self.rows("*/*/*.arrow")}
        return self.rows("shards/00000-00000.arrow" if "00000" in call else "shards/*.arrow")

    def test_every_call_opens_the_rows(self) -> None:
        calls = documented_calls()
        self.assertGreater(len(calls), 10)
        for call in calls:
            if call.startswith("tokenizers."):
                continue
            with self.subTest(call), contextlib.chdir(self.folder):
                found, expected = records(eval(call)), self.expected(call)
                if isinstance(expected, dict):
                    self.assertEqual(list(found), list(expected))
                    for split, rows in expected.items():
                        self.assertEqual(in_order(found[split]), in_order(rows))
                else:
                    self.assertEqual(in_order(found), in_order(expected))

    def test_the_tokenizer_opens(self) -> None:
        (call,) = (call for call in documented_calls() if call.startswith("tokenizers."))
        with contextlib.chdir(self.folder):
            self.assertEqual(eval(call).token_to_id("<|endoftext|>"), SEPARATOR)

    def test_duckdb_needs_pyarrow_as_the_table_says(self) -> None:
        with contextlib.chdir(self.folder), self.assertRaises(duckdb.Error):
            duckdb.sql("FROM 'shards/*.arrow'").fetchall()

    def test_a_dataset_of_one_shard_or_of_compressed_ones_loads(self) -> None:
        """If there are more JSON files than shards, `datasets` would take those for the data."""
        for name, options in [("one", []), ("compressed", ["--compress", "zstd"])]:
            with self.subTest(name):
                corpus = self.folder / "corpus.jsonl"
                dataset = self.pack(self.folder / name, [corpus], "--seq-len", 64, *options)
                loaded = records(datasets.load_dataset(str(dataset)))
                self.assertEqual(loaded, {"train": self.rows(f"{name}/*.arrow")})


if __name__ == "__main__":
    program.main()
