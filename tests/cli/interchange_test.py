"""Models exchanged with Hugging Face's transformers give the same logits and the same loss.

    python tests/cli/interchange_test.py PROGRAM PROBE PYTHON

PROBE is tests/oracle/logits_probe.c, PYTHON the one that has transformers
(tests/oracle/transformers_models.py). The models are those of tests/oracle/model_table.py;
BINDERY_TEST_MODELS=PATTERN takes only those whose names match.
"""

import base64
import functools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import program
from model_table import (
    GROUPS,
    HALVES,
    MODELS,
    N_POSITIONS,
    N_VOCABULARY,
    OLD,
    PLAIN,
    V4,
    family,
    group,
    has_scaled_rotation,
    is_first,
    variants,
)
from program import ROOT, ProgramTest
from torch_loader import read_dataset

SKIPPED = 77
SEED = 20240612
BOUND = 1e-4  # on the difference between two logits, which are about 4
# The same for logits of about 30 after 30 layers, at which floats differ from doubles by 1e-4.
PUBLISHED_BOUND = 1e-3
NAMES = [name for name in MODELS if re.search(os.environ.get("BINDERY_TEST_MODELS", ""), name)]
FIRST_NAMES = [name for name in NAMES if is_first(name)]
TEXT = "Hé <|endoftext|>"
TEXT_IDS = [*"Hé ".encode(), 256]
CORPUS = ROOT / "tests" / "golden" / "train-1" / "corpus"

Sequences = list[list[int]]


@functools.cache
def sequences() -> Sequences:
    rng = random.Random(SEED)
    return [[rng.randrange(N_VOCABULARY) for _ in range(n)] for n in (1, 2, 31, N_POSITIONS)]


def transformers(*arguments: object, question: dict | None = None) -> list[dict]:
    """Runs tests/oracle/transformers_models.py; returns the lines that it prints."""
    script = ROOT / "tests" / "oracle" / "transformers_models.py"
    run = subprocess.run(
        [os.environ["BINDERY_TRANSFORMERS"], script, *map(str, arguments)],
        input=json.dumps(question),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    if run.returncode != 0:
        raise AssertionError(f"transformers failed: {run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def answers(folders: list[Path], asked: Sequences) -> list[dict]:
    """Returns the results of transformers for the models in the folders, logits as one array."""
    lines = transformers("answer", *folders, question={"sequences": asked, "text": TEXT})
    for line in lines:
        parts = [np.frombuffer(base64.b64decode(part), np.float32) for part in line["logits"]]
        line["logits"] = np.concatenate(parts)
    return lines


def our_logits(kind: str, folder: Path, asked: Sequences) -> np.ndarray:
    """Computes logits from a Hugging Face folder (`init`) or from a run (`run`)."""
    text = "".join(" ".join(map(str, ids)) + "\n" for ids in asked)
    run = subprocess.run(
        [os.environ["BINDERY_LOGITS_PROBE"], kind, folder],
        input=text.encode(),
        capture_output=True,
        timeout=program.TIMEOUT_SECONDS,
        check=False,
    )
    if run.returncode != 0:
        raise AssertionError(f"logits_probe failed: {run.stderr.decode()}")
    return np.frombuffer(run.stdout, np.float32)


@functools.cache
def saved_models() -> Path:
    """Returns the folder of models that transformers have saved."""
    folder = tempfile.TemporaryDirectory(prefix="bindery-test-")
    unittest.addModuleCleanup(folder.cleanup)
    transformers("make", folder.name, *NAMES)
    return Path(folder.name)


class InterchangeTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.models = saved_models()

    def assert_close(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        self.assertEqual(ours.shape, theirs.shape)
        self.assertGreater(np.abs(theirs).max(), 1.0)  # otherwise the bound would say little
        self.assertLess(np.abs(ours - theirs).max(), BOUND)


class Table(unittest.TestCase):
    def test_every_family_has_every_group_and_a_scaled_rotation(self) -> None:
        for name in program.ALL_FAMILIES:
            with self.subTest(name):
                models = [model for model in MODELS if family(model) == name]
                self.assertNotEqual(models, [])
                if name not in program.LEARNED_POSITIONS:  # which have no groups either
                    self.assertLessEqual({*GROUPS}, {group(model) for model in models})
                    self.assertTrue(any(map(has_scaled_rotation, models)))


class FromTransformers(InterchangeTest):
    def test_models_of_transformers_give_the_same_logits_here(self) -> None:
        stored = [f"{name}-{v}" for name in NAMES for v in variants(name) if v not in (V4, OLD)]
        found = answers([self.models / folder for folder in stored], sequences())
        for folder, answer in zip(stored, found, strict=True):
            with self.subTest(folder):
                self.assertEqual(answer["problems"], {})
                ours = our_logits("init", self.models / folder, sequences())
                self.assert_close(ours, answer["logits"])

    def test_how_a_model_is_stored_does_not_change_a_bit(self) -> None:
        for name in NAMES:
            with self.subTest(name):
                plain = our_logits("init", self.models / f"{name}-{PLAIN}", sequences())
                for variant in set(variants(name)) - {PLAIN, *HALVES}:
                    with self.subTest(variant=variant):
                        other = our_logits(
                            "init", self.models / f"{name}-{variant}", sequences()
                        )
                        np.testing.assert_array_equal(other, plain)

    def test_the_first_loss_of_a_run_is_that_of_transformers(self) -> None:
        dataset = self.pack(self.folder / "dataset", [CORPUS], "--seq-len", N_POSITIONS)
        rows, _ = read_dataset(dataset)
        segments = [
            row.ids[begin:end]
            for row in rows
            for begin, end in zip(row.boundaries, row.boundaries[1:], strict=False)
        ]
        n_targets = sum(len(segment) - 1 for segment in segments)
        self.assertGreater(n_targets, 1000)
        folders = [self.models / f"{name}-{PLAIN}" for name in NAMES]
        for folder, answer in zip(folders, answers(folders, segments), strict=True):
            with self.subTest(folder.name):
                run = self.folder / folder.name
                whole = ["--batch", len(rows), "--micro-batch", 8, "--steps", 1]
                self.succeeds(
                    "train", "-q", "--data", dataset, "-o", run, "--init", folder, *whole
                )
                line = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
                expected = answer["loss_sum"] / n_targets
                self.assertAlmostEqual(line["loss"], expected, delta=BOUND)


@unittest.skipUnless("llama" in NAMES, "not among BINDERY_TEST_MODELS")
class Published(ProgramTest):
    def test_a_published_model_gives_the_same_logits_here(self) -> None:
        folder = self.folder / "smollm2"
        (sentence,) = transformers("real", folder)
        (answer,) = answers([folder], [sentence["ids"]])
        # It has learned English: a random model would lose log(49,152) = 10.8 at every token.
        self.assertLess(answer["loss_sum"], 2.0 * len(sentence["ids"]))
        ours = our_logits("init", folder, [sentence["ids"]])
        self.assertLess(np.abs(ours - answer["logits"]).max(), PUBLISHED_BOUND)


class ToTransformers(InterchangeTest):
    def train(self, name: str) -> Path:
        """Makes a run that starts from a model of awkward sizes and trains a few steps."""
        dataset = self.folder / "dataset"
        if not dataset.exists():
            self.pack(dataset, [CORPUS], "--seq-len", N_POSITIONS)
        run = self.folder / f"run-{name}"
        begin = ["--init", self.models / f"{name}-{PLAIN}", "--warm-up", 1]
        self.succeeds(
            "train", "-q", "--data", dataset, "-o", run, *begin, "--steps", 4, "--save-every", 2
        )
        return run

    def train_all(self, names: list[str]) -> dict[str, Path]:
        """Makes runs of those models that can be trained; the test fails for the others."""
        runs = {}
        for name in names:
            with self.subTest(name):
                runs[name] = self.train(name)
        return runs

    def export(self, run: Path, name: str, *arguments: object) -> Path:
        folder = self.folder / name
        self.succeeds("export", "--model", run, "-o", folder, *arguments)
        return folder

    def test_our_exports_give_the_same_logits_in_transformers(self) -> None:
        runs = self.train_all(NAMES)
        folders = {name: self.export(run, name) for name, run in runs.items()}
        found = answers(list(folders.values()), sequences())
        for name, answer in zip(runs, found, strict=True):
            with self.subTest(name):
                self.assertEqual(answer["problems"], {})  # tensors missing or unexpected
                self.assertEqual(answer["rows"], N_VOCABULARY)
                ours = our_logits("run", runs[name], sequences())
                self.assert_close(ours, answer["logits"])
                before = our_logits("init", self.models / f"{name}-{PLAIN}", sequences())
                self.assertGreater(np.abs(ours - before).max(), 100 * BOUND)
                # Read back, not a bit is lost.
                again = our_logits("init", folders[name], sequences())
                np.testing.assert_array_equal(again, ours)

    def test_another_step_and_type_give_the_same_logits_in_transformers(self) -> None:
        runs = self.train_all(FIRST_NAMES)
        steps = {f: self.export(run, f"{f}-2", "--step", 2) for f, run in runs.items()}
        rounded = {f: self.export(run, f"{f}-b", "--type", "bf16") for f, run in runs.items()}
        found = answers([*steps.values(), *rounded.values()], sequences())
        for folder, answer in zip([*steps.values(), *rounded.values()], found, strict=True):
            with self.subTest(folder.name):
                self.assertEqual(answer["problems"], {})
                self.assert_close(our_logits("init", folder, sequences()), answer["logits"])
        for name, run in runs.items():
            latest = our_logits("run", run, sequences())
            for other in (steps[name], rounded[name]):
                difference = np.abs(our_logits("init", other, sequences()) - latest).max()
                self.assertGreater(difference, BOUND)

    def test_the_tokenizer_beside_the_model_gives_our_ids(self) -> None:
        (answer,) = answers([self.export(self.train(NAMES[0]), "out")], sequences())
        self.assertEqual(answer["ids"], TEXT_IDS)
        self.assertEqual(answer["eos"], 256)


class DatasetTokenizers(ProgramTest):
    """AutoTokenizer opens the folder of a dataset."""

    def golden_tokenizer(self, name: str, *more: str) -> Path:
        """Makes a tokenizer with `more` added tokens after all others."""
        golden = json.loads((ROOT / "tests" / "golden" / "tokenizer" / name).read_text())
        tokenizer = golden["tokenizer"]
        known = tokenizer["added_tokens"]
        free = 1 + max(*tokenizer["model"]["vocab"].values(), *(token["id"] for token in known))
        known += [{**known[0], "id": free + i, "content": text} for i, text in enumerate(more)]
        path = self.folder / name
        path.write_text(json.dumps(tokenizer))
        return path

    def test_the_ids_are_ours_and_the_separator_is_known(self) -> None:
        gpt2 = self.golden_tokenizer("small-gpt2.json")
        qwen2 = self.golden_tokenizer("small-qwen2.json", "<s>", "<pad>", "</s>")
        first = json.loads(qwen2.read_text())["added_tokens"][-3]["id"]
        ids = ["--bos", first, "--padding-id", first + 1, "--separator-id", first + 2]
        cases = {  # tokenizer, further options, the tokens with a special meaning
            "bytes": ("bytes", [], {"eos_token": "<|endoftext|>"}),
            "bpe": (gpt2, [], {"eos_token": "<|endoftext|>"}),
            "all": (
                qwen2,
                ids,
                {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "<pad>"},
            ),
            # A newline is no added token: otherwise a text with one would become other ids.
            "ordinary": ("bytes", ["--separator-id", 10], {}),
        }
        text = "Hé,  it 's\nnew .\n"
        folders = []
        for name, (tokenizer, options, _) in cases.items():
            arguments = ["--seq-len", 33, "--tokenizer", tokenizer, *options]
            folders.append(self.pack(self.folder / name, [CORPUS], *arguments))
        found = transformers("tokenize", *folders, question={"text": text})
        for (name, (tokenizer, _, special)), answer in zip(cases.items(), found, strict=True):
            with self.subTest(name):
                ours = self.succeeds("tokenize", "--tokenizer", tokenizer, input=text.encode())
                self.assertEqual(answer["ids"], list(map(int, ours.stdout.split())))
                self.assertEqual(answer["text"], text)
                self.assertEqual(answer["special"], special)
                self.assertFalse(answer["has_limit"])

    def test_ids_of_which_nothing_is_known_open_too(self) -> None:
        tokens = self.folder / "tokens.parquet"
        pq.write_table(pa.table({"input_ids": [[1, 2, 3], [4, 5]]}), tokens)
        options = ["--seq-len", 8, "--vocab-size", 100, "--separator-id", 7]
        dataset = self.pack(self.folder / "ids", [tokens], *options)
        (answer,) = transformers("tokenize", dataset, question={"text": "17 7 99"})
        self.assertEqual(answer["ids"], [17, 7, 99])
        self.assertEqual(answer["special"], {})

    def test_the_documents_have_the_call(self) -> None:
        documented = (ROOT / "docs/format.md").read_text(encoding="utf-8")
        self.assertIn('| `transformers.AutoTokenizer.from_pretrained("shards")` |', documented)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM PROBE PYTHON [unittest's options]")
    for variable in ("BINDERY_LOGITS_PROBE", "BINDERY_TRANSFORMERS"):
        os.environ[variable] = os.path.abspath(sys.argv.pop(2))
    if not os.path.exists(os.environ["BINDERY_TRANSFORMERS"]):
        print("skipped: no transformers (scripts/setup --test has it on Debian)")
        sys.exit(SKIPPED)
    print(f"seed {SEED}")
    program.main()
