"""`verify --against` reads the corpus again: the tokens in the rows must be those of the corpus,
whatever it was packed from and how, and every document that differs must be noticed."""

import json
import random
import re
import shutil
import tempfile
from pathlib import Path

import program
from corpus import make_corpus, random_options, with_compression, with_sources
from corpus_files import FORMATS, Format
from forged_dataset import Forgery
from formats_test import make_texts
from formats_test import random_options as random_format_options
from program import (
    ProgramTest,
    Result,
    bindery,
    input_arguments,
    option_arguments,
    write_inputs,
)
from schemas import validate

SEED = 20240617
ROUNDS = 40 if program.LONG else 6  # random corpora and options
FORMAT_ROUNDS = 5 if program.LONG else 1  # for each format


def parts_of(dataset: Path) -> list[Path]:
    """Yields the dataset and, if there is one, the dataset of held-out documents."""
    return [dataset, *dataset.glob("holdout")]


def change_token(forgery: Forgery, position: int, token: int, new_id: int) -> None:
    """Returns token `token` of the document at `position`, from the piece that holds it."""
    for row in forgery.shards[0].rows:
        for begin, end, entry in zip(row.boundaries, row.boundaries[1:], row.documents):
            at = begin + token - entry["offset"]
            if entry["position"] == position and begin <= at < end:
                row.ids[at] = new_id


def other_text(text: bytes) -> bytes:
    """Returns another text of the same length: a letter for each byte."""
    return (b"y" if text.startswith(b"x") else b"x") * len(text)


class VerifyCorpus(ProgramTest):
    def judge(self, dataset: Path, *corpus: object, **popen: object) -> tuple[Result, dict]:
        given = [argument for path in corpus for argument in ("--against", path)]
        result = bindery("verify", "--json", dataset, *given, **popen)
        self.assertIn(result.status, (0, 1), result)
        verdict = json.loads(result.stdout)
        validate(verdict, "verdict")
        self.assertEqual(verdict["checked"], "corpus")
        self.assertEqual(verdict["good"], result.status == 0)
        return result, verdict

    def assert_agrees(self, dataset: Path, *corpus: object, **popen: object) -> None:
        for part in parts_of(dataset):
            result, verdict = self.judge(part, *corpus, **popen)
            self.assertEqual(result.status, 0, result)
            manifest = json.loads((part / "manifest.json").read_bytes())
            if manifest["packing"]["part"] != "held-out":
                self.assertEqual(verdict["compared"], manifest["totals"]["separators"])

    def assert_differs(self, dataset: Path, message: str, *corpus: object, **popen) -> None:
        result, verdict = self.judge(dataset, *corpus, **popen)
        self.assertEqual(result.status, 1, result)
        messages = [problem["message"] for problem in verdict["problems"]]
        self.assertTrue(any(re.search(message, said) for said in messages), messages)

    def packed(self, lines: list[str], *options: object) -> tuple[Path, Path]:
        """A small dataset and the corpus that it was packed from."""
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        options = options or ("--seq-len", 8, "--unit-size", 40)
        return self.pack(self.folder / "dataset", [corpus], *options), corpus

    LINES = ["first", "second document", "", "third, which is the longest of all of them", "x"]

    # ---- The corpus is unchanged ----

    def test_any_corpus_agrees_with_what_was_packed_from_it(self) -> None:
        for n in range(ROUNDS):
            seed = f"{SEED}-{n}"
            rng = random.Random(seed)
            options = random_options(rng)
            inputs = make_corpus(rng, options).inputs
            inputs = with_sources(rng, with_compression(rng, inputs))
            with self.subTest(seed=seed), tempfile.TemporaryDirectory(dir=self.folder) as place:
                files = write_inputs(Path(place, "corpus"), inputs)
                dataset = Path(place, "dataset")
                arguments = [*option_arguments(options), *input_arguments(inputs, files)]
                if bindery("pack", "-q", "-o", dataset, *arguments).status != 0:
                    continue  # expected with these options
                self.assert_agrees(dataset, *rng.sample(files, len(files)))
                self.assert_agrees(dataset, Path(place, "corpus"))

    def check_format(self, seed: str, form: Format, place: Path) -> None:
        rng = random.Random(seed)
        options = random_format_options(rng, form)
        texts = make_texts(rng, options, form)
        files = write_inputs(place / "corpus", form.write(random.Random(seed), texts))
        dataset = place / "dataset"
        if bindery("pack", "-q", "-o", dataset, *option_arguments(options), *files).status != 0:
            return
        self.assert_agrees(dataset, *files)
        if options.limit is not None:
            return  # the changed document may come after it
        changed = rng.choice([i for i, text in enumerate(texts) if text])
        texts[changed] = other_text(texts[changed])
        shutil.rmtree(place / "corpus")
        files = write_inputs(place / "corpus", form.write(random.Random(seed), texts))
        for part in parts_of(dataset)[:1]:
            self.assert_differs(part, "corpus", *files)

    def test_every_format_is_read_again_and_a_changed_document_is_found(self) -> None:
        for name, form in FORMATS.items():
            for n in range(FORMAT_ROUNDS):
                seed = f"{SEED}-{name}-{n}"
                with (
                    self.subTest(seed=seed),
                    tempfile.TemporaryDirectory(dir=self.folder) as place,
                ):
                    self.check_format(seed, form, Path(place))

    def test_raw_ids_of_any_width_are_read_again(self) -> None:
        """Also if an older version made the plan, which then does not state the width of ids."""
        for width in (2, 4):
            ids = [[1, 2, 3], [], [4] * 20, [5]]
            data = b"".join(i.to_bytes(width, "little") for one in ids for i in one)
            ends = [sum(map(len, ids[: n + 1])) for n in range(len(ids))]
            corpus = self.folder / f"ids-{width}.ds"
            corpus.write_bytes(data)
            Path(f"{corpus}.index").write_bytes(b"".join(e.to_bytes(8, "little") for e in ends))
            given = ["--vocab-size", 300, "--separator-id", 0, "--id-bytes", width]
            dataset = self.folder / f"dataset-{width}"
            self.pack(dataset, [corpus], *given, "--seq-len", 8, "--unit-size", 20)
            self.assert_agrees(dataset, corpus)
            forgery = Forgery.load(dataset)
            self.assertEqual(forgery.plan["reading"].pop("id_bytes"), width)
            forgery.write(self.folder / f"older-{width}")
            self.assert_agrees(self.folder / f"older-{width}", corpus)
            corpus.write_bytes(data[:-width] + bytes([6]) + bytes(width - 1))
            message = "is not what was packed: its first or its last MiB is another"
            self.assert_differs(dataset, message, corpus)

    def test_a_repacked_dataset_agrees_as_well(self) -> None:
        dataset, corpus = self.packed(self.LINES)
        again = self.folder / "again"
        arguments = ["--seq-len", 13, "--strategy", "concat", "-o", again, dataset]
        self.succeeds("repack", "-q", *arguments)
        self.assert_agrees(again, corpus)

    # ---- Differences are named ----

    def test_the_first_token_that_differs_is_named(self) -> None:
        """Changes tokens of the dataset with every checksum right, so that no rule is broken."""
        dataset, corpus = self.packed(self.LINES, "--seq-len", 8)
        forgery = Forgery.load(dataset)
        position = corpus.read_text().index("\n") + 1
        change_token(forgery, position, 9, ord("X"))
        forged = self.folder / "forged"
        forgery.write(forged)
        self.succeeds("verify", forged)
        place = rf"corpus.jsonl', line 2 \(byte {position}\)"
        was = ord(self.LINES[1][9])
        said = rf"token 9 of the document is {was}, .*', row \d+, has 88 there"
        self.assert_differs(forged, f"{place}: {said}", corpus)

    def test_added_tokens_are_counted_again(self) -> None:
        """No row shows whether a token was recognised in text; only the corpus does."""
        dataset, corpus = self.packed(self.LINES)
        forgery = Forgery.load(dataset)
        forgery.shards[0].figures["added_tokens"] = [[256, 1]]
        forged = self.folder / "forged"
        forgery.write(forged)
        self.succeeds("verify", forged)
        self.assert_differs(forged, "the corpus gives other figures: added_tokens", corpus)
        for key in ("added_tokens", "added_tokens_other"):  # as in a dataset of format 1.1
            for shard in forgery.shards:
                del shard.figures[key]
        shutil.rmtree(forged)
        forgery.write(forged)
        self.assert_agrees(forged, corpus)

    def test_a_document_that_changed_is_named(self) -> None:
        dataset, corpus = self.packed(self.LINES)
        text = corpus.read_text()
        for before, after, message in [
            ("longest", "lengest", r"line 4 \(byte \d+\): token 21 of the document is 101"),
            ("of all of them", "of all of these", r"line 4 .*: the document has 44 tokens"),
            ('{"text": "x"}\n', "", r"line 5 .*: no document that was to be packed begins"),
            ('"x"}\n', '"x"}\n{"text": "more"}\n', "is not what was packed: bytes: 1"),
            ('"first"}', '"first" }', "is not what was packed"),
            ('{"text": "x"}\n', "{}           \n", r"line 5 .*text"),
            (text, "", "is not what was packed: bytes: 0 here"),
        ]:
            with self.subTest(after=after):
                corpus.write_text(text.replace(before, after))
                self.assert_differs(dataset, message, corpus)
        corpus.write_text(text)
        self.assert_agrees(dataset, corpus)

    def test_a_document_that_was_left_out_must_be_the_same(self) -> None:
        """Such a document is in no row: the figures show it, or the checksum of the records."""
        lines = ["long enough", "also long enough", "no"]
        dataset, corpus = self.packed(lines, "--seq-len", 32, "--min-tokens", 3)
        text = corpus.read_text()
        self.assert_agrees(dataset, corpus)
        for after, message in [
            ('"n"', "the corpus gives other figures: text: "),
            ('"yes"', r"line 3 .*: the document is in no row of .*00000-00000.arrow"),
            ('"on"', "the records have changed around them"),
        ]:
            with self.subTest(after=after):
                corpus.write_text(text.replace('"no"', after))
                self.assert_differs(dataset, message, corpus)

    def test_a_limit_ends_the_corpus_where_it_ended(self) -> None:
        for limit in range(1, 7):
            dataset, corpus = self.packed(self.LINES, "--seq-len", 8, "--unit-size", 40,
                                          "--overwrite", "--limit", limit)
            self.assert_agrees(dataset, corpus)
        text = corpus.read_text()
        dataset, corpus = self.packed(self.LINES, "--seq-len", 8, "--unit-size", 40,
                                      "--overwrite", "--limit", 2)
        corpus.write_text(text.replace("second", "secand"))
        self.assert_differs(dataset, "line 2 .*: token 3 of the document is 97", corpus)

    # ---- Which inputs ----

    def test_inputs_are_found_in_any_order_and_in_a_folder_of_another_name(self) -> None:
        corpus = self.folder / "corpus"
        for name in ["a/0.jsonl", "b/0.jsonl", "b/c/0.jsonl", "1.txt"]:
            (corpus / name).parent.mkdir(parents=True, exist_ok=True)
            (corpus / name).write_text(json.dumps({"text": name}))
        dataset = self.pack(self.folder / "dataset", [corpus], "--seq-len", 16)
        self.assert_agrees(dataset, corpus)
        moved = corpus.rename(self.folder / "moved")
        (moved / "README.md").write_text("not packed, and passed over\n")
        self.assert_agrees(dataset, moved)
        self.assert_agrees(dataset, moved / "b", moved / "1.txt", moved / "a")
        files = sorted(moved.glob("**/*.jsonl"), reverse=True)
        self.assert_agrees(dataset, *files, moved / "1.txt")

    def test_a_missing_input_ends_the_check(self) -> None:
        dataset, corpus = self.packed(self.LINES)
        other = self.folder / "other.jsonl"
        corpus.rename(other)
        for given, message in [(other, "corpus.jsonl"), (self.folder / "none", "none")]:
            result = bindery("verify", dataset, "--against", given)
            self.assertEqual(result.status, 2, result)
            self.assertIn(message, result.stderr)

    def test_standard_input_must_be_given_again(self) -> None:
        _, corpus = self.packed(self.LINES)
        data = corpus.read_bytes()
        dataset = self.folder / "piped"
        arguments = ["-o", dataset, "--seq-len", 8, "--unit-size", 40, "-"]
        self.succeeds("pack", "-q", *arguments, input=data)
        self.assert_agrees(dataset, "-", input=data)
        self.assert_differs(dataset, "'-', .*: token 1 ", "-", input=data.replace(b"fi", b"fo"))
        self.assert_differs(dataset, "'-', ", "-", input=data + b'{"text": "more"}\n')
        more = data + b"\n" * 100 + b'{"text": "more"}\n'
        self.assert_differs(dataset, "'-' goes on after the end of what was packed", "-",
                            input=more)
        self.assert_differs(dataset, "'-', ", "-", input=data[: data.index(b"\n") + 1])
        result = bindery("verify", dataset, "--against", corpus)
        self.assertEqual(result.status, 2, result)
        self.assertIn("give it again, as -", result.stderr)

    def test_rows_that_are_damaged_are_told_besides(self) -> None:
        dataset, corpus = self.packed(self.LINES)
        shard = dataset / "00000-00001.arrow"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        corpus.write_text(corpus.read_text().replace("first", "farst"))
        self.assert_differs(dataset, "00000-00001.arrow", corpus)
        self.assert_differs(dataset, "line 1 .*: token 1 of the document is 97", corpus)

    def test_a_structure_has_no_corpus(self) -> None:
        dataset, corpus = self.packed(self.LINES)
        result = bindery("verify", "--structure", dataset, "--against", corpus)
        self.assertEqual(result.status, 2, result)
        verdict = json.loads(self.succeeds("verify", "--json", "--structure", dataset).stdout)
        validate(verdict, "verdict")
        self.assertEqual((verdict["checked"], verdict["compared"]), ("structure", None))


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
