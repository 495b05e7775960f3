"""The oracles themselves are right: the reference packer follows the words of
`schemas/shard-v1.md`, the checker accepts its datasets and nothing else, and the corpus files
hold what their writers say. Needs no program."""

import csv
import dataclasses
import gzip
import io
import itertools
import json
import random
import struct
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from program import ROOT, amount
from corpus import (
    Corpus,
    make_corpus,
    random_options,
    with_compression,
    with_sources,
)
from corpus_files import DELIMITER, FORMATS, MASKED_FORMATS, sliced
from dataset_checker import check_dataset
from forged_dataset import Forgery, reference_dataset
from reference_packer import (
    Cut,
    Input,
    Options,
    Record,
    make_units,
    pack,
    read_documents,
)
from schemas import validate

SEED = 20240613
ROUNDS = amount(brief=5, usual=15, long=200)
TEXTS = [b"first", b"", b"a longer one, of several words", b"x" * 90, b"\x00\n", "語".encode()]


def random_case(seed: str) -> tuple[Corpus, Options]:
    rng = random.Random(seed)
    options = random_options(
        rng,
        strategy=rng.choice(["best-fit", "first-fit", "concat"]),
        long=rng.choice(["split", "truncate", "drop"]),
        seq_len=rng.choice([2, 3, 31, 33, 64, 257]),
        **rng.choice([{}, {"bos": 256}, {"separator": 10}]),
    )
    corpus = make_corpus(rng, options)
    inputs = with_sources(rng, with_compression(rng, corpus.inputs))
    return Corpus(inputs, corpus.texts), options


def layout(inputs: list[Input], options: Options, part: str = "all") -> list[list[list[tuple]]]:
    """Returns units of rows of (input, offset, number of tokens)."""
    return [
        [[(s.document.input, s.offset, s.n_tokens) for s in row] for row in unit.rows]
        for unit in pack(inputs, options, part)
    ]


def documents_of_sizes(*sizes: int) -> list[Input]:
    """Makes one text file for each document; with its separator it has the given size."""
    return [Input(f"{i}.txt", b"x" * (size - 1)) for i, size in enumerate(sizes)]


# ---- The reference packer --------------------------------------------------------


class ReferencePacker(unittest.TestCase):
    """Small corpora, worked out by hand."""

    def test_best_fit_takes_the_tightest_row_and_first_fit_the_oldest(self) -> None:
        """When the last document comes, the older row has room for 7 tokens, the younger for 1."""
        inputs = documents_of_sizes(13, 11, 8, 1)
        self.assertEqual(
            layout(inputs, Options(seq_len=20, strategy="best-fit")),
            [[[(0, 0, 13)], [(1, 0, 11), (2, 0, 8), (3, 0, 1)]]],
        )
        self.assertEqual(
            layout(inputs, Options(seq_len=20, strategy="first-fit")),
            [[[(0, 0, 13), (3, 0, 1)], [(1, 0, 11), (2, 0, 8)]]],
        )

    def test_a_row_of_the_most_documents_is_full(self) -> None:
        inputs = documents_of_sizes(4, 3, 2, 1)
        for strategy in ["best-fit", "first-fit", "concat"]:
            with self.subTest(strategy):
                options = Options(seq_len=10, strategy=strategy, max_documents=2)
                expected = [[[(0, 0, 4), (1, 0, 3)], [(2, 0, 2), (3, 0, 1)]]]
                self.assertEqual(layout(inputs, options), expected)

    def test_concat_closes_a_full_row_in_the_middle_of_nothing(self) -> None:
        """The third document is cut where its row ends; its last piece shares a row with
        another."""
        options = Options(seq_len=5, strategy="concat", max_documents=2)
        self.assertEqual(
            layout(documents_of_sizes(2, 6, 1), options),
            [[[(0, 0, 2), (1, 0, 3)], [(1, 2, 4), (2, 0, 1)]]],
        )

    def test_units_do_not_outlive_the_limit(self) -> None:
        inputs = documents_of_sizes(101, 101, 101)
        for limit, n_units in [(1, 1), (2, 2), (3, 3), (4, 3)]:
            units = pack(inputs, Options(seq_len=128, unit_size=100, limit=limit))
            self.assertEqual(len(units), n_units)
        both = pack(inputs, Options(seq_len=128, unit_size=200, limit=1))
        self.assertEqual([(u.unit.inputs, u.figures["separators"]) for u in both], [(2, 1)])

    def test_inputs_share_a_unit_within_its_size_and_source_alone(self) -> None:
        def units(*inputs: Input) -> list[tuple[int, int, int]]:
            options = Options(unit_size=10, delimiter=DELIMITER)
            return [(u.input, u.slice, u.inputs) for u in make_units(list(inputs), options)]

        def text(size: int, **settings: object) -> Input:
            return Input("a.txt", b"x" * size, **settings)

        self.assertEqual(units(text(5), text(5)), [(0, 0, 2)])
        self.assertEqual(units(text(5), text(6)), [(0, 0, 1), (1, 0, 1)])
        self.assertEqual(units(text(1), text(1, source="web")), [(0, 0, 1), (1, 0, 1)])
        self.assertEqual(units(text(11), text(0)), [(0, 0, 1), (0, 1, 1), (1, 0, 1)])
        packed = text(11, compression="gzip")
        self.assertEqual(units(text(1), packed, text(1)),
                         [(0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 0, 1)])
        self.assertEqual(units(text(1), text(9, compression="gzip")), [(0, 0, 2)])

    def test_every_document_is_on_one_side_of_a_holdout(self) -> None:
        texts = [f"document {i % 150}".encode() for i in range(300)]
        lines = b"".join(b'{"text": "%s"}\n' % text for text in texts)
        options = Options(seq_len=64, holdout=300_000, min_tokens=11)
        inputs = [Input("a.jsonl", lines)]
        training, held = (pack(inputs, options, part)[0] for part in options.parts)
        sides = [
            {bytes(segment.document.text) for row in unit.rows for segment in row}
            for unit in (training, held)
        ]
        self.assertEqual(sides[0] & sides[1], set())
        self.assertEqual(sides[0] | sides[1], {text for text in texts if len(text) >= 11})
        self.assertEqual(training.figures["held_out_documents"], held.figures["separators"])
        self.assertEqual(training.figures["separators"], 300)
        self.assertTrue(60 <= held.figures["separators"] <= 120)
        self.assertEqual(training.records, held.records)

    def masks(self, trained: list[tuple[bool, ...]], **settings: object) -> tuple[list, dict]:
        """Packs documents of as many ids as their masks have. Returns the masks of the rows, as
        words, and the figures."""
        records = tuple(
            Record(row, b"", (1,) * len(mask), trained=mask) for row, mask in enumerate(trained)
        )
        item = Input("a.parquet", records=records, cut=Cut(0, len(records), (0,)), stored={},
                     mask_column="labels")
        [unit] = pack([item], Options(**settings))
        words = [
            " ".join("".join("x" if bit else "." for bit in s.trained) for s in row)
            for row in unit.rows
        ]
        return words, unit.figures

    def test_a_mask_is_cut_as_its_document_is(self) -> None:
        """A piece's first token is context; an appended separator goes with the last token."""
        one, other = (True, True, False, True, True), (False, True)
        words, figures = self.masks([one, other], seq_len=4, strategy="concat")
        self.assertEqual(words, [".x.x", ".xx", ".xx"])
        self.assertEqual([figures[k] for k in ("packed", "segments", "masked", "targets")],
                         [10, 3, 1, 6])
        words, figures = self.masks([one, other], seq_len=9)
        self.assertEqual(words, [".x.xxx .xx"])

    def test_a_document_without_a_target_is_left_out(self) -> None:
        """Whether its first token is trained does not matter."""
        words, figures = self.masks([(True, False), (False, False, True), ()], seq_len=9)
        self.assertEqual(words, ["..xx"])
        self.assertEqual((figures["untrained"], figures["untrained_documents"]), (4, 2))

    def test_bos_is_not_trained_but_what_follows_may_be(self) -> None:
        words, figures = self.masks([(True,), (False,), ()], seq_len=9, bos=256)
        self.assertEqual(words, [".xx"])
        self.assertEqual((figures["untrained"], figures["untrained_documents"]), (5, 2))

    def test_a_shuffle_orders_by_rank_and_packs_in_that_order(self) -> None:
        inputs = [Input(f"{i}.txt", b"x") for i in range(20)]
        orders = []
        for seed in (0, 1):
            options = Options(seq_len=10, strategy="concat", shuffle=seed)
            [rows] = layout(inputs, options)
            orders.append([segment[0] for row in rows for segment in row])
        self.assertEqual([sorted(order) for order in orders], [[*range(20)]] * 2)
        self.assertNotEqual(*orders)
        self.assertNotIn([*range(20)], orders)


# ---- The checker -----------------------------------------------------------------

Change = Callable[[Forgery], None]


def tell_no_records(forgery: Forgery) -> None:
    forgery.shards[0].records = None


def count_too_many_headless(forgery: Forgery) -> None:
    figures = forgery.shards[0].figures
    figures["headless_documents"] = figures["separators"] + 1


def weigh_another_size(forgery: Forgery) -> None:
    for item in (forgery.inputs[0], forgery.plan["inputs"][0]):
        item["weight"] += 1


def cut_at_another_stride(forgery: Forgery) -> None:
    for items in (forgery.inputs, forgery.plan["inputs"]):
        next(item for item in items if "stride" in item)["stride"] += 1


# Faults that the checker finds and `verify` does not; rules_test.py breaks the other rules.
CHANGES: list[tuple[str, Change]] = [
    ("S1", tell_no_records),
    ("S5", count_too_many_headless),
    ("D2", weigh_another_size),
    ("D2", cut_at_another_stride),
]


class Checker(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bindery-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check_schemas(self, dataset: Path) -> None:
        for name in ["manifest", "plan"]:
            document = json.loads((dataset / f"{name}.json").read_bytes())
            validate(document, name)

    def test_the_reference_packs_a_good_dataset(self) -> None:
        for n in range(ROUNDS):
            seed = f"{SEED}-{n}"
            corpus, options = random_case(seed)
            for part in options.parts:
                with self.subTest(seed=seed, part=part, options=options):
                    dataset = self.folder / f"{n}-{part}"
                    reference_dataset(corpus.inputs, options, part).write(dataset)
                    self.assertEqual(check_dataset(dataset), [])
                    self.check_schemas(dataset)

    def test_the_reference_packs_a_good_dataset_with_masks(self) -> None:
        for n, (name, form) in enumerate(MASKED_FORMATS.items()):
            for seq_len in (2, 7, 9, 64):
                with self.subTest(name, seq_len=seq_len):
                    rng = random.Random(f"{SEED}-{name}-{seq_len}")
                    inputs = form.write(rng, TEXTS * 5)
                    options = Options(seq_len=seq_len, vocab_size=257, holdout=200_000,
                                      separators_are=form.separators_are)
                    inputs = [dataclasses.replace(inputs[0], cut=Cut(0, len(TEXTS) * 5, (0,)))]
                    for part in options.parts:
                        dataset = self.folder / f"{n}-{seq_len}-{part}"
                        reference_dataset(inputs, options, part).write(dataset)
                        self.assertEqual(check_dataset(dataset), [])
                        self.check_schemas(dataset)

    def good(self, settings: dict) -> Forgery:
        options = Options(seq_len=32, unit_size=600, delimiter=DELIMITER, **settings)
        rng = random.Random(SEED)
        corpus = make_corpus(rng, options, 80)
        return reference_dataset(with_compression(rng, corpus.inputs), options)

    def test_faults_that_only_the_checker_looks_for_are_found(self) -> None:
        for n, (rule, change) in enumerate(CHANGES):
            with self.subTest(rule, change=change.__name__):
                forgery = self.good({})
                change(forgery)
                forgery.plan["packing"] = forgery.packing
                forgery.write(self.folder / f"forged-{n}")
                found = check_dataset(self.folder / f"forged-{n}")
                self.assertIn(rule, {violation.rule for violation in found})

    def test_the_dataset_before_the_changes_is_good(self) -> None:
        self.good({}).write(self.folder / "good")
        self.assertEqual(check_dataset(self.folder / "good"), [])

    def test_compressed_buffers_are_told_from_plain_ones(self) -> None:
        for stated, written in itertools.permutations(["none", "zstd"]):
            with self.subTest(stated=stated, written=written):
                forgery = self.good({"codec": stated})
                forgery.codec = written
                forgery.write(self.folder / stated)
                found = [(v.rule, v.found) for v in check_dataset(self.folder / stated)]
                broken = f"a buffer of input_ids is stored with another codec than '{stated}'"
                self.assertIn(("S1", broken), found)

    def test_datasets_of_earlier_versions_are_still_good(self) -> None:
        golden = ROOT / "tests" / "golden"
        for path in golden.glob("format-*/*/manifest.json"):
            with self.subTest(path.parent.name):
                self.assertEqual(check_dataset(path.parent), [])
                self.check_schemas(path.parent)

    def test_a_forgery_of_the_first_minor_version_stays_one(self) -> None:
        golden = ROOT / "tests" / "golden" / "format-1" / "concat"
        if json.loads((golden / "manifest.json").read_bytes())["format"] != "1.0":
            self.skipTest("the golden datasets are of a later version")
        forgery = Forgery.load(golden)
        forgery.recount()
        forgery.write(self.folder / "again")
        self.assertEqual(check_dataset(self.folder / "again"), [])


# ---- The files -------------------------------------------------------------------


def stored_files(inputs: list[Input]) -> dict[str, bytes]:
    return {
        name: data
        for item in inputs
        for name, data in (item.stored or {item.name: item.data}).items()
    }


def column_of(table: pa.Table) -> list:
    [name] = {"text", "input_ids", "tokens"} & set(table.column_names)
    return table.column(name).to_pylist()


def without_separators(lists: list[list[int]], separators_are: str) -> list[bytes]:
    if separators_are == "append":
        return [bytes(ids) for ids in lists]
    return [bytes(ids[:-1]) for ids in lists if ids[-1] == 256]


def read_table(name: str, data: bytes) -> pa.Table:
    if name.startswith("parquet"):
        return pq.read_table(pa.BufferReader(data))
    if name.startswith("arrow stream"):
        return pa.ipc.open_stream(data).read_all()
    return pa.ipc.open_file(data).read_all()


def table_texts(name: str, data: bytes) -> list:
    return column_of(read_table(name, data))


def megatron_lists(files: dict[str, bytes]) -> list[list[int]]:
    index = files["corpus.idx"]
    assert index[:9] == b"MMIDIDX\0\0" and struct.unpack_from("<Q", index, 9) == (1,)
    kind = {3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}[index[17]]
    n, n_documents = struct.unpack_from("<QQ", index, 18)
    lengths = np.frombuffer(index, "<i4", n, 34)
    pointers = np.frombuffer(index, "<i8", n, 34 + 4 * n)
    documents = np.frombuffer(index, "<i8", n_documents, 34 + 12 * n)
    assert documents.tolist() == [*range(n + 1)] and len(index) == 34 + 12 * n + 8 * (n + 1)
    data = files["corpus.bin"]
    return [
        np.frombuffer(data, kind, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers)
    ]


def ranges(files: dict[str, bytes]) -> list[tuple[int, int]]:
    """Returns where the documents of a datatrove or dolma file lie."""
    if "corpus.ds.index" in files:
        ends = np.frombuffer(files["corpus.ds.index"], "<u8").tolist()
        return [*zip([0, *ends], ends)]
    lines = gzip.decompress(files["corpus.csv.gz"]).decode().splitlines()
    return [tuple(map(int, line.split(",")[:2])) for line in lines]


def llm_c_lists(data: bytes) -> list[list[int]]:
    magic, version, n = struct.unpack_from("<3i", data)
    kind = {(20240520, 1): "<u2", (20240801, 7): "<u4"}[magic, version]
    ids = np.frombuffer(data, kind, offset=1024).tolist()
    assert len(ids) == n
    lists: list[list[int]] = [[]]
    for token in ids:
        if token == 256:
            lists.append([])
        else:
            lists[-1].append(token)
    return lists if lists[0] else lists[1:]


def read_back(name: str, inputs: list[Input], separators_are: str) -> list[bytes]:
    """Returns the texts of files that are not text, read by other means than were used to write."""
    if inputs[0].is_stream:
        text = inputs[0].data.decode("utf-8-sig")
        if name.startswith("json"):
            return [(v if isinstance(v, str) else v["text"]).encode() for v in json.loads(text)]
        dialect = "excel" if name.startswith("csv") else "excel-tab"
        rows = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect)
        return [row["text"].encode() for row in rows]
    files = stored_files(inputs)
    if name.startswith(("parquet", "arrow")):
        [data] = files.values()
        values = table_texts(name, data)
        if isinstance(values[0], str):
            return [value.encode() for value in values]
        return without_separators(values, separators_are)
    if name.startswith("megatron"):
        return without_separators(megatron_lists(files), separators_are)
    if name.startswith("llm.c"):
        return without_separators(llm_c_lists(files["corpus.bin"]), separators_are)
    ids = np.frombuffer(files.get("corpus.ds") or files["corpus.npy"], "<u2").tolist()
    return without_separators([ids[a:b] for a, b in ranges(files)], separators_are)


class CorpusFiles(unittest.TestCase):
    def test_every_file_holds_the_texts(self) -> None:
        for name, form in FORMATS.items():
            texts = [b"x", *TEXTS] if form.begins_with_text else TEXTS
            for n in range(ROUNDS):
                with self.subTest(name, n=n):
                    inputs = form.write(random.Random(f"{SEED}-{n}"), texts)
                    options = Options(delimiter=DELIMITER if form.is_delimited else None)
                    documents = read_documents(inputs, options)
                    self.assertEqual([bytes(d.text) for d in documents], texts)
                    if inputs[0].records is not None:
                        found = read_back(name, inputs, form.separators_are)
                        self.assertEqual(found, texts)

    def test_every_table_with_masks_holds_texts_and_masks(self) -> None:
        for name, form in MASKED_FORMATS.items():
            for n in range(ROUNDS):
                with self.subTest(name, n=n):
                    [item] = form.write(random.Random(f"{SEED}-{n}"), TEXTS)
                    self.assertEqual(read_back(name, [item], form.separators_are), TEXTS)
                    [data] = item.stored.values()
                    table = read_table(name, data)
                    ids = table.column("input_ids").to_pylist()
                    given = table.column(item.mask_column).to_pylist()
                    for record, row, items in zip(item.records, ids, given, strict=True):
                        if item.mask_column == "labels":
                            items = [label == token for label, token in zip(items, row)]
                        self.assertEqual(tuple(map(bool, items)), record.trained)

    def test_compressed_files_decompress_to_the_data(self) -> None:
        for n in range(ROUNDS):
            rng = random.Random(f"{SEED}-{n}")
            for name, kind in [("jsonl, gzip", "gzip"), ("jsonl, zstd", "zstd")]:
                [item] = FORMATS[name].write(rng, TEXTS)
                [data] = item.stored.values()
                if kind == "gzip":
                    self.assertEqual(gzip.decompress(data), item.data)
                    continue
                with pa.CompressedInputStream(pa.BufferReader(data), kind) as stream:
                    self.assertEqual(stream.read(), item.data)

    def assert_starts(self, item: Input, expected: dict[int, tuple[int, ...]]) -> None:
        for unit_size, starts in expected.items():
            with self.subTest(unit_size=unit_size):
                cut = sliced(item, unit_size).cut
                self.assertEqual(cut, dataclasses.replace(item.cut, starts=starts))

    def test_a_file_of_ids_alone_is_cut_at_multiples_of_the_units_bytes(self) -> None:
        records = tuple(Record(2 * i, b"xx", (120,)) for i in range(5))
        cut = Cut(20, 10, (0,), id_bytes=2)
        item = Input("a.bin", records=records, cut=cut, stored={})
        self.assert_starts(item, {20: (0,), 19: (0, 9), 8: (0, 4, 8), 1: (*range(10),)})

    def test_a_file_with_an_index_is_cut_between_documents(self) -> None:
        sizes = [0, 6, 4, 0, 0, 12, 2, 0]
        records = tuple(Record(i, bytes(size), ()) for i, size in enumerate(sizes))
        item = Input("a.bin", records=records, cut=Cut(24, 8, (0,)), stored={})
        self.assert_starts(
            item,
            {24: (0,), 23: (0, 6), 12: (0, 5, 6), 10: (0, 5, 6), 9: (0, 2, 5, 6),
             4: (0, 1, 2, 5, 6), 1: (0, 1, 2, 3, 5, 6, 7)},
        )

    def test_rows_of_tokens_are_the_rows_of_their_texts(self) -> None:
        """Only the positions of the records differ."""
        texts = [b"x", *TEXTS]
        options = Options(seq_len=16, strategy="concat")
        rows = layout(FORMATS["parquet"].write(random.Random(SEED), texts), options)
        for name, form in FORMATS.items():
            if form.is_tokens:
                with self.subTest(name):
                    inputs = form.write(random.Random(SEED), texts)
                    self.assertEqual(layout(inputs, options), rows)
                    [unit] = pack(inputs, options)
                    headless = "without" in name
                    self.assertEqual(unit.figures["headless_documents"], int(headless))


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main()
