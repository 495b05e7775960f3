"""Every format of input gives the documents that were put into it, and every way to name the
inputs gives the same rows."""

import dataclasses
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import program
from corpus import text_of_size, text_sizes, without_delimiter_lines
from corpus_files import (
    COMPRESSIONS,
    DELIMITER,
    FORMATS,
    MASKED_FORMATS,
    TABLES,
    Format,
    compressed,
    sliced,
)
from dataset_checker import check_dataset, rebuild_documents
from program import bindery, contents, option_arguments, write_inputs
from reference_packer import SEPARATOR, VOCAB_SIZE, Cut, Input, Options
from reference_test_case import ReferenceTestCase, StoredRow, dataset_rows

SEED = 20240612
ROUNDS = 40 if program.LONG else 1


def make_texts(rng: random.Random, options: Options, form: Format) -> list[bytes]:
    """Makes valid UTF-8 text, as awkward as the format can hold it."""
    texts = [
        text_of_size(rng, size, broken=False)
        for size in text_sizes(rng, options, rng.randint(6, 40))
    ]
    if form.is_delimited:
        texts = [without_delimiter_lines(text) for text in texts]
    if form.begins_with_text:
        texts[0] = texts[0] or b"x"
    return texts


def random_options(rng: random.Random, form: Format) -> Options:
    has_bos = form.separators_are == "append" and rng.random() < 0.3
    return Options(
        seq_len=rng.choice([2, 31, 33, 64]),
        strategy=rng.choice(["best-fit", "first-fit", "concat"]),
        long=rng.choice(["split", "truncate", "drop"]),
        bos=7 if has_bos else None,
        unit_size=rng.choice([150, 1000, 64 << 20]),
        max_documents=rng.choice([None, 3]),
        min_tokens=rng.choice([0, 4]),
        shuffle=rng.choice([None, rng.randrange(2**32)]),
        holdout=rng.choice([0, 250_000]),
        limit=rng.choice([None, None, rng.randint(1, 20)]),
        codec=rng.choice(["none", "zstd"]),
        **form_options(form),
    )


def form_options(form: Format) -> dict:
    """Returns the options that are needed to read a format."""
    return {
        "delimiter": DELIMITER if form.is_delimited else None,
        "vocab_size": VOCAB_SIZE if form.is_tokens else None,
        "separators_are": form.separators_are,
    }


def group_starts(path: Path, name: str) -> list[int]:
    """Returns the first rows of a table's row groups or record batches."""
    if name.startswith("parquet"):
        metadata = pq.ParquetFile(path).metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    elif name.startswith("arrow stream"):
        sizes = [batch.num_rows for batch in pa.ipc.open_stream(path.read_bytes())]
    else:
        reader = pa.ipc.open_file(path)
        sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def documents_of(dataset: Path) -> Counter:
    """Counts how often each document is in a dataset."""
    return Counter(map(tuple, rebuild_documents(dataset).values()))


class Formats(ReferenceTestCase):
    def with_stated_cut(self, item: Input, path: Path, dataset: Path, name: str) -> Input:
        """A table that the dataset cuts between row groups."""
        [stated] = json.loads((dataset / "manifest.json").read_bytes())["inputs"]
        self.assertEqual(stated["extent"], item.cut.extent)
        self.assertLessEqual(set(stated["starts"]), {0, *group_starts(path, name)})
        cut = Cut(stated["weight"], stated["extent"], tuple(stated["starts"]))
        return dataclasses.replace(item, cut=cut)

    def check_format(
        self, rng: random.Random, name: str, form: Format, **settings: object
    ) -> None:
        options = dataclasses.replace(random_options(rng, form), **settings)
        texts = make_texts(rng, options, form)
        inputs = form.write(rng, texts)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            files = write_inputs(Path(folder, "corpus"), inputs)
            whole_folder = rng.random() < 0.5
            given = [Path(folder, "corpus")] if whole_folder else files
            dataset = Path(folder, "dataset")
            if not self.packs(dataset, given, inputs, options):
                return
            if name.startswith(tuple(TABLES)):
                inputs = [self.with_stated_cut(inputs[0], files[0], dataset, name)]
            elif form.is_tokens:
                inputs = [sliced(item, options.unit_size) for item in inputs]
            self.check_packed(dataset, inputs, texts, options)

    def test_every_format_gives_its_documents(self) -> None:
        for name, form in FORMATS.items():
            for n in range(ROUNDS):
                seed = f"{SEED}-{name}-{n}"
                with self.subTest(seed=seed):
                    self.check_format(random.Random(seed), name, form)

    def test_every_table_with_masks_gives_its_documents_and_masks(self) -> None:
        """Rows of 7, 9 and 1001 tokens begin inside the bytes of the mask."""
        for n, seq_len in enumerate([7, 9, 1001, 2, 64] * ROUNDS):
            for name, form in MASKED_FORMATS.items():
                seed = f"{SEED}-{name}-{n}"
                with self.subTest(seed=seed, seq_len=seq_len):
                    self.check_format(random.Random(seed), name, form, seq_len=seq_len)

    # ---- The same corpus in another form ----

    def packed(self, inputs: list[Input], options: Options) -> Path:
        """Packs into a new dataset."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        files = write_inputs(place / "corpus", inputs)
        return self.pack(place / "dataset", files, *option_arguments(options))

    def rows_of(self, inputs: list[Input], options: Options) -> dict[str, list[StoredRow]]:
        return dataset_rows(self.packed(inputs, options))

    def corpus(
        self, form: Format, seed: str, **settings: object
    ) -> tuple[list[bytes], Options]:
        options = Options(seq_len=33, **{**form_options(form), **settings})
        return make_texts(random.Random(seed), options, form), options

    def test_compression_changes_no_row(self) -> None:
        for name in ["jsonl", "csv", "json", "text", "text files"]:
            for unit_size in [150, 1000, 64 << 20]:
                seed = f"{SEED}-{name}-{unit_size}"
                form = FORMATS[name]
                texts, options = self.corpus(form, seed, unit_size=unit_size)
                inputs = form.write(random.Random(seed), texts)
                plain = self.rows_of(inputs, options)
                self.assertGreater(sum(map(len, plain.values())), 10)
                for compression in COMPRESSIONS:
                    with self.subTest(seed=seed, compression=compression):
                        rng = random.Random(seed)
                        packed = [compressed(rng, item, compression) for item in inputs]
                        self.assertEqual(self.rows_of(packed, options), plain)

    def test_all_tables_give_the_same_rows_of_one_unit(self) -> None:
        """For text and for tokens: in both, a position is a row of the table."""
        texts, options = self.corpus(FORMATS["parquet"], f"{SEED}-tables")
        expected = self.rows_of(FORMATS["parquet"].write(random.Random(SEED), texts), options)
        self.assertEqual(len(expected), 1)
        for name, form in FORMATS.items():
            if name.startswith(tuple(TABLES)):
                with self.subTest(name):
                    options = dataclasses.replace(options, **form_options(form))
                    inputs = form.write(random.Random(name), texts)
                    self.assertEqual(self.rows_of(inputs, options), expected)

    def test_all_formats_give_the_same_documents(self) -> None:
        """The documents are the same however the inputs are cut into units."""
        texts, _ = self.corpus(FORMATS["text"], f"{SEED}-documents")
        texts[0] = texts[0] or b"x"
        expected = Counter((*text, SEPARATOR) for text in texts)
        for name, form in FORMATS.items():
            with self.subTest(name):
                options = Options(seq_len=31, unit_size=400, **form_options(form))
                dataset = self.packed(form.write(random.Random(name), texts), options)
                self.assertEqual(documents_of(dataset), expected)

    # ---- Ways to name the inputs ----

    def test_standard_input_gives_the_rows_of_the_file(self) -> None:
        for name in ["jsonl", "text", "jsonl, gzip", "jsonl, zstd"]:
            form = FORMATS[name]
            for unit_size in [150, 64 << 20]:
                with self.subTest(name, unit_size=unit_size):
                    seed = f"{SEED}-stdin-{unit_size}"
                    texts, options = self.corpus(form, seed, unit_size=unit_size)
                    [item] = inputs = form.write(random.Random(seed), texts)
                    dataset = Path(tempfile.mkdtemp(dir=self.folder), "dataset")
                    [data] = (item.stored or {item.name: item.data}).values()
                    kind = "jsonl" if item.is_jsonl else "text"
                    arguments = ["--format", kind, *option_arguments(options), "-"]
                    self.succeeds("pack", "-q", "-o", dataset, *arguments, input=data)
                    self.assertEqual(check_dataset(dataset), [])
                    self.assertEqual(dataset_rows(dataset), self.rows_of(inputs, options))

    def write_tree(self, names: list[str]) -> Path:
        """Makes a folder of files with one document each, which is the file's name."""
        corpus = self.folder / "corpus"
        for name in names:
            path = corpus / name
            path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"text": name}).encode()
            path.write_bytes(line if name.endswith(".jsonl") else name.encode())
        return corpus

    def assert_texts_in_order(self, dataset: Path, names: list[str]) -> None:
        rebuilt = rebuild_documents(dataset)
        self.assertEqual(
            [bytes(rebuilt[key][:-1]).decode() for key in sorted(rebuilt)], names
        )

    def test_a_folder_is_read_recursively_and_in_order(self) -> None:
        names = ["1.jsonl", "b/2.txt", "b/c/4.txt", "b/c/d/3.jsonl", "e.txt"]
        corpus = self.write_tree([*names, ".hidden.txt", "b/.hidden/5.txt"])
        dataset = self.pack(self.folder / "dataset", [corpus], "--seq-len", 32)
        self.assert_texts_in_order(dataset, names)

    def test_a_pattern_in_quotes_gives_the_files_in_order(self) -> None:
        corpus = self.write_tree(["b.txt", "a.txt", "c.jsonl", "ba/x.txt", "[d].txt"])
        for n, (pattern, names) in enumerate([
            ("*.txt", ["[d].txt", "a.txt", "b.txt"]),
            ("?.jsonl", ["c.jsonl"]),
            ("[bc].*", ["b.txt", "c.jsonl"]),
            ("*/x.txt", ["ba/x.txt"]),
        ]):
            with self.subTest(pattern):
                dataset = self.folder / f"dataset-{n}"
                self.pack(dataset, [f"{corpus}/{pattern}"], "--seq-len", 32)
                self.assert_texts_in_order(dataset, names)

    def test_a_name_that_looks_like_a_pattern_is_a_name_first(self) -> None:
        corpus = self.write_tree(["[a].txt", "a.txt"])
        dataset = self.pack(self.folder / "dataset", [corpus / "[a].txt"], "--seq-len", 32)
        self.assert_texts_in_order(dataset, ["[a].txt"])

    def test_a_list_names_the_inputs_from_the_current_folder(self) -> None:
        names = ["b.txt", "a.txt", "deep/c.jsonl"]
        corpus = self.write_tree([*names, "d.txt"])
        lines = ["# first", "", *names[:2], "#d.txt", *names[2:]]
        elsewhere = self.folder / "lists"
        elsewhere.mkdir()
        for n, end in enumerate(["\n", ""]):
            path = elsewhere / f"list-{n}.txt"
            path.write_text("\n".join(lines) + end)
            dataset = self.folder / f"dataset-{n}"
            arguments = ["-q", "-o", dataset, "--seq-len", 32, f"@{path}"]
            self.succeeds("pack", *arguments, cwd=corpus)
            self.assert_texts_in_order(dataset, names)

    def test_sources_come_after_the_operands_in_the_order_given(self) -> None:
        corpus = self.write_tree(["a.txt", "b.txt", "c.txt", "d.txt"])
        dataset = self.folder / "dataset"
        arguments = ["--source", f"web={corpus}/c.txt", corpus / "b.txt"]
        arguments += ["--source", f"web={corpus}/a.txt", "--source", f"code={corpus}/d.txt"]
        self.pack(dataset, arguments, "--seq-len", 32)
        self.assertEqual(check_dataset(dataset), [])
        self.assert_texts_in_order(dataset, ["b.txt", "c.txt", "a.txt", "d.txt"])
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        told = [(source["name"], source["inputs"]) for source in manifest["sources"]]
        self.assertEqual(told, [("default", 1), ("web", 2), ("code", 1)])
        units = [shard["unit"] for shard in manifest["shards"]]
        spans = [(unit["input"], unit["inputs"]) for unit in units]
        self.assertEqual(spans, [(0, 1), (1, 2), (3, 1)])

    def test_a_source_may_be_a_folder_or_a_pattern(self) -> None:
        corpus = self.write_tree(["a.txt", "b.txt", "c.txt"])
        for n, path in enumerate([f"{corpus}", f"{corpus}/*.txt"]):
            dataset = self.folder / f"dataset-{n}"
            self.pack(dataset, ["--source", f"web={path}"], "--seq-len", 32)
            self.assert_texts_in_order(dataset, ["a.txt", "b.txt", "c.txt"])
            manifest = json.loads((dataset / "manifest.json").read_bytes())
            self.assertEqual({item["source"] for item in manifest["inputs"]}, {"web"})

    # ---- Contents of a file ----

    def test_content_tells_what_a_name_does_not_decide(self) -> None:
        """A name that says text or JSONL decides only between these two."""
        anything = ["", ".dat", ".md"]
        for name, endings in {
            "jsonl": [*anything, ".json", ".ndjson"],
            "jsonl, gzip": [*anything, ".gz", ".jsonl", ".zst"],
            "jsonl, zstd": [*anything, ".zst", ".json", ".gz"],
            **{name: [*anything, ".txt", ".jsonl"] for name in TABLES},
        }.items():
            form = FORMATS[name]
            texts, options = self.corpus(form, f"{SEED}-content")
            [item] = inputs = form.write(random.Random(SEED), texts)
            [data] = (item.stored or {item.name: item.data}).values()
            expected = self.rows_of(inputs, options)
            for ending in endings:
                with self.subTest(name, ending=ending):
                    renamed = Input(f"corpus{ending}", data)
                    self.assertEqual(self.rows_of([renamed], options), expected)

    def test_a_name_that_says_text_decides_against_jsonl(self) -> None:
        form = FORMATS["jsonl"]
        texts, options = self.corpus(form, f"{SEED}-name")
        [item] = form.write(random.Random(SEED), texts)
        expected = self.rows_of([Input("corpus.txt", item.data)], options)
        for ending, compression in [(".text", None), (".txt", "gzip"), (".text.zst", "zstd")]:
            with self.subTest(ending, compression=compression):
                named = Input(f"corpus{ending}", item.data)
                if compression is not None:
                    [data] = compressed(random.Random(SEED), named, compression).stored.values()
                    named = Input(named.name, data)
                dataset = self.packed([named], options)
                self.assertEqual(dataset_rows(dataset), expected)
                [document] = rebuild_documents(dataset).values()
                self.assertEqual(bytes(document[:-1]), item.data)

    def test_ids_are_the_tokenizer_of_tokens(self) -> None:
        form = FORMATS["llm.c"]
        texts, options = self.corpus(form, f"{SEED}-ids")
        dataset = self.packed(form.write(random.Random(SEED), texts), options)
        packing = json.loads((dataset / "manifest.json").read_bytes())["packing"]
        self.assertEqual(packing["tokenizer"]["name"], f"ids:{VOCAB_SIZE}")
        self.assertEqual((packing["vocab_size"], packing["separator"]), (VOCAB_SIZE, SEPARATOR))

    def test_text_has_no_ids(self) -> None:
        for name, form in FORMATS.items():
            if form.is_tokens:
                continue
            with self.subTest(name):
                inputs = form.write(random.Random(SEED), [b"text"])
                files = write_inputs(self.folder / name, inputs)
                dataset = self.folder / f"{name}-dataset"
                ids = ["--vocab-size", VOCAB_SIZE, "--separator-id", SEPARATOR]
                result = bindery("pack", "-q", "-o", dataset, *ids, *files)
                self.assertEqual(result.status, 2, result)
                self.assertIn(files[0].name, result.stderr)
                self.assertFalse((dataset / "manifest.json").exists())

    # ---- Without writing ----

    def test_a_dry_run_writes_nothing(self) -> None:
        for name in ["jsonl", "jsonl, gzip", "parquet"]:
            with self.subTest(name):
                form = FORMATS[name]
                texts, options = self.corpus(form, f"{SEED}-dry")
                inputs = form.write(random.Random(SEED), texts)
                files = write_inputs(self.folder / name, inputs)
                before = sorted(self.folder.rglob("*"))
                dataset = self.folder / "dataset"
                arguments = ["--dry-run", *option_arguments(options), *files]
                result = self.succeeds("pack", "-o", dataset, *arguments, cwd=self.folder)
                self.assertNotEqual(result.output, "")
                self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_dry_run_leaves_a_dataset_as_it_is(self) -> None:
        corpus = self.write_tree(["a.txt"])
        dataset = self.pack(self.folder / "dataset", [corpus], "--seq-len", 32)
        before = contents(self.folder)
        bindery("pack", "-o", dataset, "--dry-run", "--overwrite", "--seq-len", 16, corpus)
        self.assertEqual(contents(self.folder), before)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
