"""`bindery eval`, and evaluations and samples during a run: their figures must follow from the
corpus and the run, and they must not change the run's weights."""

import json
import math
import shutil
from pathlib import Path

import program
import pyarrow
import pyarrow.parquet
from program import ROOT, ProgramTest, Result, bindery
from schemas import validate

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4", "--positions", "64"]
# A learning rate of 0 keeps the weights: the loss of a step is that of any other time.
FROZEN = ["--learning-rate", 0, "--min-learning-rate", 0, "--weight-decay", 0]


def texts(corpus: Path) -> list[bytes]:
    return [json.loads(line)["text"].encode() for line in corpus.read_text().splitlines()]


class EvalTest(ProgramTest):
    def train(self, name: str, *arguments: object, dataset: Path = DATASET) -> Path:
        run = self.folder / name
        self.succeeds("train", "-q", "--data", dataset, "-o", run, *MODEL, *arguments)
        return run

    def lines(self, run: Path, event: str | None = None) -> list[dict]:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            validate(line, "metrics")
        return [line for line in lines if line.get("event") == event]

    def eval(self, run: Path, dataset: Path, *arguments: object) -> dict:
        result = json.loads(self.succeeds("eval", "--json", *arguments, run, dataset).stdout)
        validate(result, "eval")
        for figures in (result, *result["sources"]):
            if figures["targets"] > 0:
                perplexity = math.exp(figures["loss"])
                self.assertAlmostEqual(figures["perplexity"], perplexity, places=9)
                bits = figures["loss"] * figures["targets"] / math.log(2) / figures["bytes"]
                self.assertAlmostEqual(figures["bits_per_byte"], bits, places=9)
        for key in ("targets", "bytes"):
            self.assertEqual(result[key], sum(source[key] for source in result["sources"]))
        return result

    def assert_refused(self, result: Result, *mentions: str) -> None:
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        for mention in mentions:
            self.assertIn(mention, result.stderr)


class Evaluating(EvalTest):
    def test_the_loss_is_that_of_a_step_over_all_rows(self) -> None:
        run = self.train("run", *FROZEN, "--steps", 1, "--batch", 27)
        (step,) = self.lines(run)
        for batch in (1, 5, 27):
            result = self.eval(run, DATASET, "--batch", batch)
            self.assertEqual((result["step"], result["rows"]), (1, 27))
            self.assertEqual(result["targets"], step["targets"])
            self.assertAlmostEqual(result["loss"], step["loss"], delta=1e-6)

    def test_targets_and_bytes_are_those_of_the_corpus(self) -> None:
        """Every token except a document's first is a target once; separators have no bytes."""
        run = self.train("run", *FROZEN, "--steps", 1)
        lengths = [len(text) for text in texts(GOLDEN / "corpus" / "documents.jsonl")]
        result = self.eval(run, DATASET)
        self.assertEqual(result["targets"], sum(lengths))
        self.assertEqual(result["bytes"], sum(max(length - 1, 0) for length in lengths))

    def test_a_source_is_what_it_would_be_alone(self) -> None:
        inputs = {}
        for name, documents in {
            "poems": ["of roses", "of thorns and other things", "x"],
            "letters": ["dear sir, " * 20, "", "yours"],
            "empty": ["", ""],
        }.items():
            inputs[name] = self.folder / f"{name}.jsonl"
            lines = [json.dumps({"text": text}) + "\n" for text in documents]
            inputs[name].write_text("".join(lines))
        sources = [f"--source={name}={path}" for name, path in inputs.items()]
        both = self.folder / "both"
        self.succeeds("pack", "-q", "-o", both, "--seq-len", 64, *sources)
        run = self.train("run", *FROZEN, "--steps", 1)
        result = self.eval(run, both)
        self.assertEqual([source["name"] for source in result["sources"]], list(inputs))
        for source in result["sources"]:
            name = source["name"]
            if name == "empty":  # it is refused on its own
                self.assertEqual((source["targets"], source["bytes"], source["loss"]), (0, 0, None))
                continue
            alone = self.pack(self.folder / name, [inputs[name]], "--seq-len", 64)
            expected = self.eval(run, alone)
            for key in ("targets", "bytes"):
                self.assertEqual(source[key], expected[key])
            self.assertAlmostEqual(source["loss"], expected["loss"], delta=1e-6)
        text = self.succeeds("eval", run, both).stdout
        self.assertRegex(text, r"(?m)^ +- +- +- +0 +0 +empty$")
        self.assertRegex(text, rf"(?m)^ +{result['loss']:.5f} .* \(all\)$")

    def test_fewer_rows_on_demand(self) -> None:
        run = self.train("run", "--steps", 1)
        self.assertEqual(self.eval(run, DATASET, "--rows", 5)["rows"], 5)
        self.assertEqual(self.eval(run, DATASET, "--rows", 500), self.eval(run, DATASET))

    def test_threads_do_not_change_a_bit(self) -> None:
        run = self.train("run", "--steps", 1)
        results = [self.eval(run, DATASET, "--threads", n) for n in (1, 2, 3)]
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_ids_have_no_bytes(self) -> None:
        documents = [[1, 2, 3, 4, 5, 0], [0], [7] * 20 + [0]]
        column = pyarrow.array(documents, pyarrow.list_(pyarrow.int32()))
        table = pyarrow.table({"input_ids": column})
        pyarrow.parquet.write_table(table, self.folder / "tokens.parquet")
        ids = self.folder / "ids"
        self.succeeds(
            *["pack", "-q", "-o", ids, "--seq-len", 16, "--vocab-size", 10],
            *["--separator-id", 0, "--separator", "present", self.folder / "tokens.parquet"],
        )
        run = self.train("run", "--steps", 1, dataset=ids)
        result = json.loads(self.succeeds("eval", "--json", run, ids).stdout)
        validate(result, "eval")
        self.assertEqual((result["bytes"], result["bits_per_byte"]), (0, None))
        self.assertEqual(result["targets"], 5 + 20)

    def test_data_that_does_not_fit_is_refused(self) -> None:
        run = self.train("run", "--steps", 1)
        long = self.pack(self.folder / "long", [GOLDEN / "corpus"], "--seq-len", 128)
        self.assert_refused(bindery("eval", run, long), "64 positions", "segment of")
        self.assert_refused(bindery("eval", run, self.folder / "absent"), "absent")
        self.assert_refused(bindery("eval", self.folder / "absent", DATASET), "absent")
        damaged = self.folder / "damaged"
        damaged.mkdir()
        for path in DATASET.iterdir():
            data = bytearray(path.read_bytes())
            if path.suffix == ".arrow":
                data[len(data) // 2] ^= 1
            (damaged / path.name).write_bytes(data)
        self.assert_refused(bindery("eval", run, damaged), "00000-00000.arrow")


class Watching(EvalTest):
    def test_evaluating_does_not_change_a_bit(self) -> None:
        plain = self.train("plain", "--steps", 12)
        watched = self.train(
            *["watched", "--steps", 12, "--eval", DATASET, "--eval-every", 5, "--eval-rows", 7],
            *["--sample-every", 4, "--sample-prompt", "A", "--sample-prompt", "Bee "],
            *["--probe", 3],
        )
        name = "step-00000012.safetensors"
        self.assertEqual((plain / name).read_bytes(), (watched / name).read_bytes())
        for one, other in zip(self.lines(plain), self.lines(watched), strict=True):
            del one["seconds"], other["seconds"]
            self.assertEqual(one, other)
        self.assertEqual([line["step"] for line in self.lines(watched, "eval")], [5, 10, 12])
        self.assertEqual([line["step"] for line in self.lines(watched, "sample")], [4, 8, 12])
        for line in self.lines(watched, "sample"):
            self.assertEqual([value["prompt"] for value in line["values"]], ["A", "Bee "])

    def test_an_evaluation_that_fails_loses_no_step(self) -> None:
        held_out = self.folder / "held-out"
        shutil.copytree(DATASET, held_out)
        shard = max(held_out.glob("*.arrow"))
        data = bytearray(shard.read_bytes())
        with pyarrow.ipc.open_file(shard) as reader:  # a token of its first row
            token = reader.get_batch(0).column("input_ids").flatten().buffers()[1]
            place = bytes(data).find(token.to_pybytes()[:64])
        data[place + 8] ^= 1
        shard.write_bytes(data)
        run = self.folder / "run"
        options = ["--steps", 5, "--save-every", 100, "--eval", held_out, "--eval-every", 3]
        result = bindery("train", "-q", "--data", DATASET, "-o", run, *MODEL, *options)
        self.assertEqual(result.status, 2, result)
        self.assertIn("held-out", result.stderr)
        self.assertTrue((run / "step-00000003.json").exists())

    def test_an_evaluation_is_what_eval_says(self) -> None:
        held_out = self.folder / "held-out"
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"text": "nobody has read this"}\n{"text": "nor that"}\n')
        self.pack(held_out, [corpus], "--seq-len", 32)  # shorter rows than those of training
        run = self.train("run", "--steps", 7, "--eval", held_out, "--eval", f"{DATASET}/")
        (line,) = self.lines(run, "eval")
        self.assertEqual(line["step"], 7)
        names = [value["dataset"] for value in line["values"]]
        self.assertEqual(names, ["held-out", "dataset"])
        for value, dataset in zip(line["values"], (held_out, DATASET)):
            expected = self.eval(run, dataset)
            self.assertEqual(value["targets"], expected["targets"])
            self.assertAlmostEqual(value["loss"], expected["loss"], delta=1e-6)

    def test_an_average_is_what_is_evaluated(self) -> None:
        """Averaging changes no training; evaluations take the average."""
        how = ["--steps", 12, "--learning-rate", 0.01, "--eval", DATASET, "--eval-rows", 5]
        plain, averaged = self.train("plain", *how), self.train("run", *how, "--average", 0.9)
        for one, other in zip(self.lines(plain), self.lines(averaged), strict=True):
            self.assertEqual(one["loss"], other["loss"])
        (line,) = self.lines(averaged, "eval")
        found = {choice: self.eval(averaged, DATASET, "--rows", 5, "--weights", choice)
                 for choice in ("auto", "average", "trained")}  # fmt: skip
        self.assertEqual([found[choice]["weights"] for choice in found],
                         ["average", "average", "trained"])  # fmt: skip
        self.assertEqual(found["auto"], found["average"])
        self.assertAlmostEqual(line["values"][0]["loss"], found["average"]["loss"], delta=1e-6)
        (line,) = self.lines(plain, "eval")
        self.assertAlmostEqual(line["values"][0]["loss"], found["trained"]["loss"], delta=1e-6)
        self.assertNotAlmostEqual(found["trained"]["loss"], found["average"]["loss"], delta=1e-3)
        self.assert_refused(bindery("eval", "--weights", "average", plain, DATASET),
                            "trained without --average")  # fmt: skip

    def test_where_nothing_is_predicted_no_loss_is_printed(self) -> None:
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"text": ""}\n')
        held_out = self.pack(self.folder / "held-out", [corpus], "--seq-len", 32)
        said = self.succeeds("train", "--data", DATASET, "-o", self.folder / "run", *MODEL,
                             "--steps", 1, "--eval", held_out).stdout
        self.assertRegex(said, r"(?m)^step 1/1  no targets in held-out$")

    def test_datasets_of_one_name_are_told_apart(self) -> None:
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"text": "nobody has read this"}\n')
        datasets = []
        for name in ("a", "b"):
            (self.folder / name).mkdir()
            datasets.append(self.pack(self.folder / name / "same", [corpus], "--seq-len", 32))
        run = self.train("run", "--steps", 1, "--eval", datasets[0], "--eval", datasets[1])
        (line,) = self.lines(run, "eval")
        names = [value["dataset"] for value in line["values"]]
        self.assertEqual(names, list(map(str, datasets)))

    def test_a_sample_is_what_generate_writes(self) -> None:
        corpus = self.folder / "corpus.txt"
        corpus.write_text("The cat sat on the mat. The hat was on the cat.\n" * 20)
        dataset = self.pack(self.folder / "cats", [corpus], "--seq-len", 64)
        options = ["--learning-rate", 0.01, "--steps", 150, "--sample-every", 150, "--average", 0.9]
        run = self.train("run", *options, dataset=dataset)
        (line,) = self.lines(run, "sample")
        (value,) = line["values"]
        self.assertEqual(value["prompt"], "The")
        self.assertRegex(value["text"], r"^[\n -~]+$")  # no control characters for a terminal
        text = self.succeeds("generate", "--tokens", 100, run).stdout
        self.assertEqual(text, f"The{value['text']}\n")

    def test_an_impossible_evaluation_is_refused_before_the_first_step(self) -> None:
        how = ["--seq-len", 65, "--long", "drop"]
        long = self.pack(self.folder / "long", [GOLDEN / "corpus"], *how)
        cases = [
            (["--eval", long], "long", "65"),
            (["--eval", self.folder / "absent"], "absent"),
            (["--sample-every", 1, "--sample-prompt", "x" * 64], "--sample-prompt: 64 tokens"),
            (["--sample-every", 1, "--sample-prompt", ""], "--sample-prompt: 0 tokens"),
        ]
        for n, (arguments, *mentions) in enumerate(cases):
            run = self.folder / f"run-{n}"
            result = bindery("train", "-q", "--data", DATASET, "-o", run, *MODEL, *arguments)
            self.assert_refused(result, *mentions)
            self.assertFalse((run / "metrics.jsonl").exists())


if __name__ == "__main__":
    program.main()
