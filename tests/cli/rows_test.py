"""Every document of the corpus is in the rows, where the rules put it, and nothing else is.

Random corpora for every strategy, long policy, separator and BOS are compared with the reference
packer and checked by the dataset checker.
"""

import dataclasses
import itertools
import json
import random
import tempfile
from pathlib import Path

import program
from corpus import (
    DELIMITER,
    Corpus,
    json_line,
    make_corpus,
    random_options,
    with_compression,
    with_sources,
)
from corpus_files import MASKED_FORMATS
from dataset_checker import rebuild_documents
from program import bindery, input_arguments, option_arguments, write_inputs
from reference_packer import SEPARATOR, Cut, Input, Options, read_documents
from reference_test_case import ReferenceTestCase

SEED = 20240607
ROUNDS = program.amount(brief=1, usual=1, long=8)
STEP = program.amount(brief=13, usual=5, long=1)  # every n-th case; these have all settings

STRATEGIES = ["best-fit", "first-fit", "concat"]
POLICIES = ["split", "truncate", "drop", "error"]
FRAMES = [{}, {"bos": 256}, {"separator": 10}]
SEQ_LENS = [2, 3, 31, 33, 64, 257]


def without_long_documents(corpus: Corpus, options: Options) -> Corpus:
    """Makes the documents that fit into a row, one text file each."""
    documents = read_documents(corpus.inputs, dataclasses.replace(options, limit=None))
    texts = [d.text for d in documents if len(d.tokens) <= options.seq_len]
    return Corpus([Input(f"{i:03d}.txt", text) for i, text in enumerate(texts)], texts)


def place(item: Input, position: int) -> str:
    """Returns a pattern for a message that names the record at `position`."""
    if item.is_jsonl:
        line = item.data.count(b"\n", 0, position) + 1
        return rf"{item.name}', line {line}\b"
    return rf"{item.name}', .*\bbyte {position}\b"


class Rows(ReferenceTestCase):
    def check_corpus(self, corpus: Corpus, options: Options, whole_folder: bool) -> None:
        """Packs a corpus that the policy accepts and checks everything about the result."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            dataset = Path(name, "dataset")
            files = write_inputs(Path(name, "corpus"), corpus.inputs)
            given = input_arguments(corpus.inputs, files)
            arguments = [Path(name, "corpus")] if whole_folder else given
            if self.packs(dataset, arguments, corpus.inputs, options):
                self.check_packed(dataset, corpus.inputs, corpus.texts, options)

    def check_refused(self, corpus: Corpus, options: Options) -> None:
        """`--long error` names a document that is too long and where it begins."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            dataset = Path(name, "dataset")
            files = write_inputs(Path(name, "corpus"), corpus.inputs)
            result = bindery("pack", "-q", "-o", dataset, *option_arguments(options), *files)
            self.assertEqual(result.status, 2, result)
            places = [
                place(corpus.inputs[document.input], document.position)
                for document in read_documents(corpus.inputs, options)
                if len(document.tokens) > options.seq_len
            ]
            self.assertRegex(result.stderr, "|".join(places))
            self.assertFalse((dataset / "manifest.json").exists())

    def check_case(self, rng: random.Random, options: Options) -> None:
        whole_folder = rng.random() < 0.5
        corpus = make_corpus(rng, options)
        if options.long == "error":
            self.check_refused(corpus, dataclasses.replace(options, limit=None))
            corpus = without_long_documents(corpus, options)
            options = dataclasses.replace(options, delimiter=None)
        inputs = with_compression(rng, corpus.inputs)
        if not whole_folder:
            inputs = with_sources(rng, inputs)
        self.check_corpus(Corpus(inputs, corpus.texts), options, whole_folder)

    def test_random_corpora_become_the_rows_of_the_rules(self) -> None:
        cases = itertools.product(STRATEGIES, POLICIES, FRAMES, SEQ_LENS, range(ROUNDS))
        some = itertools.islice(enumerate(cases), 0, None, STEP)
        for n, (strategy, long, frame, seq_len, _) in some:
            seed = f"{SEED}-{n}"
            rng = random.Random(seed)
            options = random_options(
                rng, strategy=strategy, long=long, seq_len=seq_len, **frame
            )
            with self.subTest(seed=seed, options=options):
                self.check_case(rng, options)

    def check_masks(self, rng: random.Random, options: Options) -> None:
        """Packs a table of ids with masks. Where it is cut, the dataset tells."""
        form = rng.choice([*MASKED_FORMATS.values()][::2])  # separators are appended
        texts = make_corpus(rng, options).texts
        if options.long == "error":
            frame = 1 if options.bos is None else 2
            texts = [text for text in texts if len(text) + frame <= options.seq_len]
        [item] = form.write(rng, texts)
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            dataset = Path(name, "dataset")
            files = write_inputs(Path(name, "corpus"), [item])
            if not self.packs(dataset, files, [item], options):
                return
            [stated] = json.loads((dataset / "manifest.json").read_bytes())["inputs"]
            cut = Cut(stated["weight"], stated["extent"], tuple(stated["starts"]))
            self.check_packed(dataset, [dataclasses.replace(item, cut=cut)], texts, options)

    def test_random_masks_lie_in_the_rows_as_the_rules_say(self) -> None:
        """Rows of these lengths begin inside the bytes of the mask."""
        cases = itertools.product(STRATEGIES, POLICIES, FRAMES, [7, 9, 1001], range(ROUNDS))
        for n, (strategy, long, frame, seq_len, _) in itertools.islice(
            enumerate(cases), 0, None, STEP
        ):
            seed = f"{SEED}-masks-{n}"
            rng = random.Random(seed)
            options = Options(seq_len=seq_len, strategy=strategy, long=long,
                              unit_size=rng.choice([400, 64 << 20]),
                              shuffle=rng.choice([None, 5]), **frame)
            with self.subTest(seed=seed, options=options):
                self.check_masks(rng, options)

    def test_a_shard_of_several_batches_keeps_every_rule(self) -> None:
        """More than 4 MiB of ids, so that a record batch ends inside the shard."""
        rng = random.Random(SEED)
        texts = [rng.randbytes(rng.randint(0, 4000)).hex().encode() for _ in range(600)]
        inputs = [Input("long.txt", b"".join(text + b"\n%\n" for text in texts))]
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                options = Options(seq_len=2048, delimiter=DELIMITER, strategy=strategy)
                self.check_corpus(Corpus(inputs, texts), options, whole_folder=False)

    def test_a_crowd_of_short_documents_is_fitted_as_the_textbook_says(self) -> None:
        """Many equal lengths, so that ties between rows have to be decided."""
        rng = random.Random(SEED)
        texts = [b"x" * int(rng.expovariate(1 / 20)) for _ in range(3000)]
        lines = b"".join(json_line(rng, text, "text") + b"\n" for text in texts)
        options = Options(seq_len=64)
        self.check_corpus(Corpus([Input("a.jsonl", lines)], texts), options, whole_folder=False)

    def test_a_folder_is_read_in_the_byte_order_of_its_names(self) -> None:
        """At each level: 'a' comes before 'a-b.txt' although '/' comes after '-'."""
        names = ["B.txt", "a/Z.txt", "a/b/deep.txt", "a/c.txt", "a-b.txt", "a.txt", "é.txt"]
        for name in names:
            path = self.folder / "corpus" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode())
        (self.folder / "corpus" / "a" / "notes.csv").write_bytes(b"not,part,of,the,corpus")
        dataset = self.folder / "dataset"
        result = self.succeeds("pack", "-o", dataset, "--seq-len", 64, self.folder / "corpus")
        self.assertIn("notes.csv", result.stderr)
        rebuilt = rebuild_documents(dataset)
        self.assertEqual(
            [rebuilt[key] for key in sorted(rebuilt)],
            [[*name.encode(), SEPARATOR] for name in names],
        )


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
