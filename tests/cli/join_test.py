"""`repack A B -o C`: the documents of all datasets, in order, as if they had been packed together.

The reference packer computes the expected documents from each corpus by itself.
"""

import json
import os
import random
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

import program
from corpus import make_corpus, random_options, with_compression, with_sources
from dataset_checker import check_dataset, rebuild_documents
from program import (
    ProgramTest,
    bindery,
    contents,
    input_arguments,
    option_arguments,
    write_inputs,
)
from reference_packer import Input, Options, PackedUnit, has_documents, pack
from reference_test_case import expected_rows, part_of, stored_rows
from schemas import validate
from shard_checker import read_shard

SEED = 20240702
ROUNDS = program.amount(brief=6, usual=15, long=150)


@dataclass(frozen=True)
class Part:
    """A corpus and how its dataset was packed."""

    inputs: list[Input]
    options: Options
    files: list[Path]
    dataset: Path


def as_repacked(options: Options, rows: Options) -> Options:
    """Returns the options that read a corpus, with rows of another kind."""
    return replace(
        options,
        seq_len=rows.seq_len,
        strategy=rows.strategy,
        long=rows.long,
        max_documents=rows.max_documents,
        shuffle=rows.shuffle,
        codec=rows.codec,
    )


def joined_units(parts: list[Part], rows: Options, which: str) -> list[PackedUnit]:
    """Returns the units of all corpora, each packed alone after as many empty inputs as there are
    inputs before it."""
    units: list[PackedUnit] = []
    first = 0
    for part in parts:
        before = [Input(f"{n}.jsonl", source=f"before {n}") for n in range(first)]
        own = pack([*before, *part.inputs], as_repacked(part.options, rows), which)
        units += [unit for unit in own if unit.unit.input >= first]
        first += len(part.inputs)
    return units


def published(dataset: Path) -> dict[str, bytes]:
    """Returns all files except those about the run."""
    files = contents(dataset)
    return {name: files[name] for name in files if Path(name).name != "pack-log.json"}


class JoinTest(ProgramTest):
    def make_part(self, place: Path, rng: random.Random, options: Options) -> Part:
        inputs = with_sources(rng, with_compression(rng, make_corpus(rng, options, 20).inputs))
        files = write_inputs(place / "corpus", inputs)
        arguments = [*option_arguments(options), *input_arguments(inputs, files)]
        part = Part(inputs, options, files, place / "dataset")
        if has_documents(inputs, options):
            self.succeeds("pack", "-q", "-o", part.dataset, *arguments)
        return part

    def row_arguments(self, rows: Options) -> list:
        given = [
            "--seq-len", rows.seq_len, "--strategy", rows.strategy, "--long", rows.long,
            "--max-documents", rows.max_documents or 0, "--compress", rows.codec,
        ]
        return given if rows.shuffle is None else [*given, "--shuffle", rows.shuffle]

    def check_rows(self, dataset: Path, units: list[PackedUnit], rows: Options) -> None:
        names = sorted(path.name for path in dataset.glob("*.arrow"))
        self.assertEqual(names, [unit.unit.shard_name for unit in units])
        for unit in units:
            path = dataset / unit.unit.shard_name
            metadata = read_shard(path).metadata
            self.assertEqual(stored_rows(path), expected_rows(unit, rows), path.name)
            self.assertEqual(metadata["unit"]["inputs"], unit.unit.inputs, path.name)
            self.assertEqual(metadata["records"], unit.records, path.name)
            for name, value in unit.figures.items():
                self.assertEqual(metadata["figures"][name], value, (path.name, name))

    def check_joined(self, dataset: Path, parts: list[Part], rows: Options) -> None:
        for which in rows.parts:
            folder = part_of(dataset, which)
            self.assertEqual(check_dataset(folder), [])
            for name in ("manifest", "plan"):
                validate(json.loads((folder / f"{name}.json").read_bytes()), name)
            self.check_rows(folder, joined_units(parts, rows, which), rows)
            self.check_documents(folder, [part_of(part.dataset, which) for part in parts])
            corpora = [a for part in parts for a in ("--against", part.dataset.parent / "corpus")]
            self.succeeds("verify", folder, *corpora)
            self.succeeds("inspect", "--scan", folder)

    def check_documents(self, dataset: Path, origins: list[Path]) -> None:
        """The documents are exactly those of the datasets, with their places moved up."""
        expected, inputs = {}, []
        for origin in origins:
            for (index, position), tokens in rebuild_documents(origin).items():
                expected[len(inputs) + index, position] = tokens
            inputs += json.loads((origin / "manifest.json").read_bytes())["inputs"]
        self.assertEqual(rebuild_documents(dataset), expected)
        stated = json.loads((dataset / "manifest.json").read_bytes())["inputs"]
        self.assertEqual(stated, inputs)


class Joins(JoinTest):
    def test_documents_and_rows_are_those_of_every_corpus(self) -> None:
        """Corpora that were read, cut, limited and shuffled in different ways."""
        for n in range(ROUNDS):
            seed = f"{SEED}-{n}"
            rng = random.Random(seed)
            first = random_options(rng, seq_len=rng.choice([16, 33, 64]), bos=rng.choice([None, 9]))
            alike = {
                name: getattr(first, name) for name in ("bos", "padding", "min_tokens", "holdout")
            }
            with self.subTest(seed=seed), tempfile.TemporaryDirectory(dir=self.folder) as place:
                parts = [self.make_part(Path(place, "0"), rng, first)]
                for k in range(1, rng.choice([2, 2, 3])):
                    other = random_options(rng, seq_len=rng.choice([16, 50]))
                    options = replace(other, **alike)
                    parts.append(self.make_part(Path(place, f"{k}"), rng, options))
                parts = [part for part in parts if part.dataset.exists()]
                if not parts:
                    continue
                strategy = rng.choice(["best-fit", "first-fit", "concat"])
                rows = replace(parts[0].options, seq_len=rng.choice([16, 40]), strategy=strategy)
                given = rng.choice([[], self.row_arguments(rows)])
                rows = rows if given else parts[0].options
                joined = Path(place, "joined")
                datasets = [part.dataset for part in parts]
                threads = ["--threads", rng.choice([1, 2, 5])]
                self.succeeds("repack", "-q", *datasets, "-o", joined, *given, *threads)
                self.check_joined(joined, parts, rows)
                self.check_again(joined, datasets, rows, Path(place))

    def check_again(self, joined: Path, datasets: list[Path], rows: Options, place: Path) -> None:
        """Joining step by step, or repacking the joined dataset, gives the same bytes."""
        given = self.row_arguments(rows)
        self.succeeds("repack", "-q", joined, "-o", place / "again", *given)
        self.assertEqual(published(place / "again"), published(joined))
        if len(datasets) > 2:
            self.succeeds("repack", "-q", *datasets[:2], "-o", place / "two", "--seq-len", 99)
            steps = [place / "two", *datasets[2:]]
            self.succeeds("repack", "-q", *steps, "-o", place / "steps", *given)
            self.assertEqual(published(place / "steps"), published(joined))

    def test_shards_are_those_of_packing_the_corpora_together(self) -> None:
        """If no small inputs of one source would share a unit across the border."""
        rng = random.Random(f"{SEED}-together")
        for n, settings in enumerate([{}, {"shuffle": 7, "holdout": 300_000}]):
            options = Options(seq_len=40, unit_size=300, **settings)
            files = []
            for k in range(2):
                lines = [json.dumps({"text": "x" * rng.randrange(90)}) for _ in range(40)]
                files.append(self.folder / f"{n}-{k}.jsonl")
                files[-1].write_text("\n".join(lines))
                self.pack(self.folder / f"{n}-{k}", [files[-1]], *option_arguments(options))
            together = self.pack(self.folder / f"{n}-all", files, *option_arguments(options))
            joined = self.folder / f"{n}-joined"
            datasets = [self.folder / f"{n}-{k}" for k in range(2)]
            self.succeeds("repack", "-q", *datasets, "-o", joined)
            for which in options.parts:
                shards = {
                    name: data
                    for name, data in contents(part_of(together, which)).items()
                    if name.endswith(".arrow")
                }
                self.assertGreater(len(shards), 10)
                for name, data in shards.items():
                    self.assertEqual((part_of(joined, which) / name).read_bytes(), data, name)


class Borders(JoinTest):
    """Two small datasets, A and B, of one source."""

    def setUp(self) -> None:
        super().setUp()
        self.a = self.packed("a", ["first of a", "second of a"])
        self.b = self.packed("b", ["first of b", "", "third of b"])

    def packed(self, name: str, texts: list[str], *options: object) -> Path:
        corpus = self.folder / f"{name}.jsonl"
        corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return self.pack(self.folder / f"{name}.set", [corpus], "--seq-len", 16, *options)

    def refused(self, message: str, *arguments: object) -> None:
        out = self.folder / "out"
        before = contents(self.folder)
        result = bindery("repack", "-o", out, *arguments)
        self.assertEqual(result.status, 2, result)
        self.assertIn(message, result.stderr)
        self.assertFalse(out.exists())
        self.assertEqual(contents(self.folder), before)

    def test_differences_between_datasets_are_named(self) -> None:
        for option, value, message in [
            ("--separator-id", 1, "separator: 1 here, 256 there"),
            ("--bos", 2, "bos: 2 here, null there"),
            ("--padding-id", 3, "padding: 3 here, 256 there"),
            ("--min-tokens", 4, "min_tokens: 4 here, 0 there"),
            ("--holdout", "50%", 'holdout: 500000 here, 0 there'),
        ]:
            with self.subTest(option):
                other = self.packed(f"other{option}", ["text", "other text", "x" * 9], option, value)
                self.refused(f"cannot be joined with '{self.a}': {message}", self.a, other)
        ids = self.folder / "ids.arrow"
        with pa.OSFile(str(ids), "wb") as sink:
            table = pa.table({"input_ids": pa.array([[1, 2]], pa.list_(pa.uint16()))})
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        other = self.pack(
            self.folder / "ids", [ids], "--vocab-size", 257, "--separator-id", 256, "--seq-len", 16
        )
        self.refused("another tokenizer", self.a, other)

    def test_a_dataset_is_taken_once(self) -> None:
        link, copy = self.folder / "link", self.folder / "copy"
        os.symlink(self.a, link)
        shutil.copytree(self.a, copy)
        again = self.folder / "again"
        self.succeeds("repack", "-q", self.a, "-o", again, "--seq-len", 7)
        for twice, message in [
            (self.a, "are one dataset, given twice"),
            (link, "are one dataset, given twice"),
            (copy, "hold the same records"),
            (again, "hold the same records"),
        ]:
            with self.subTest(twice.name):
                self.refused(message, self.a, self.b, twice)

    def test_holdouts_are_all_there_or_all_elsewhere(self) -> None:
        texts = [f"text {n}" for n in range(40)]
        one = self.packed("one", texts, "--holdout", "50%")
        two = self.packed("two", texts[:-1], "--holdout", "50%")
        joined = self.folder / "joined"
        self.succeeds("repack", "-q", one, two, "-o", joined)
        self.check_documents(joined / "holdout", [one / "holdout", two / "holdout"])
        (two / "holdout").rename(self.folder / "elsewhere")
        self.refused(f"move '{one / 'holdout'}' elsewhere", one, two)
        self.refused(f"move '{one / 'holdout'}' elsewhere", two, one)
        (one / "holdout").rename(self.folder / "elsewhere, too")
        self.succeeds("repack", "-q", one, two, "-o", self.folder / "without")
        self.assertFalse((self.folder / "without" / "holdout").exists())
        self.refused('part: "held-out" here, "training" there', one, self.folder / "elsewhere")

    def test_the_output_is_apart_from_what_is_joined(self) -> None:
        inside = self.folder / "inside"
        inside.mkdir()
        shutil.copytree(self.b, inside / "b")
        before = contents(self.folder)
        for out in [self.b, self.b / "c", self.b / "c" / "d", inside]:
            with self.subTest(out):
                result = bindery("repack", self.a, self.b, inside / "b", "-o", out, "--overwrite")
                self.assertEqual(result.status, 2, result)
                self.assertEqual(contents(self.folder), before)
        for out in [self.b / "c", self.b / "c" / "d"]:
            result = bindery("repack", self.a, self.b, "-o", out)
            self.assertIn(f"the output, '{out}', lies in '{self.b}'", result.stderr)
            self.assertEqual(contents(self.folder), before)

    def test_a_dataset_with_lost_tokens_is_not_joined(self) -> None:
        cut = self.packed("cut", ["x" * 40], "--long", "truncate")
        self.refused("1 truncated documents", self.a, cut)

    def test_other_commands_take_it_as_any_dataset(self) -> None:
        joined = self.folder / "joined"
        self.succeeds("repack", "-q", self.a, self.b, "-o", joined)
        self.assertEqual(sorted(p.name for p in joined.glob("*.arrow")),
                         ["00000-00000.arrow", "00001-00000.arrow"])
        log = json.loads((joined / "pack-log.json").read_text())
        self.assertEqual(log["joined_from"], [
            {"path": str(self.a.resolve()), "inputs": 1},
            {"path": str(self.b.resolve()), "inputs": 1},
        ])
        self.assertIn("| documents | 5 |", (joined / "README.md").read_text())
        corpus = self.folder / "b.jsonl"
        found = self.succeeds("locate", joined, "--find", "third of b", "--json").stdout
        self.assertIn("b.jsonl", found)
        told = self.succeeds("locate", joined, "2:3", "--corpus", corpus)
        self.assertIn("first of b", told.output)
        self.succeeds("export", "-q", joined, "-o", self.folder / "tables")
        self.succeeds("repack", "-q", self.a, self.b, "-o", joined)  # finished already

    def test_a_changed_corpus_is_noticed_in_whichever_part(self) -> None:
        joined = self.folder / "joined"
        self.succeeds("repack", "-q", self.a, self.b, "-o", joined)
        corpora = [self.folder / "a.jsonl", self.folder / "b.jsonl"]
        given = [argument for path in corpora for argument in ("--against", path)]
        self.succeeds("verify", joined, *given)
        self.assertEqual(bindery("verify", joined, *given[:2]).status, 2)
        for corpus in corpora:
            data = corpus.read_bytes()
            corpus.write_bytes(data.replace(b"first", b"other"))
            result = bindery("verify", joined, *given)
            self.assertEqual(result.status, 1, result)
            self.assertIn(corpus.name, result.stdout)
            corpus.write_bytes(data)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
