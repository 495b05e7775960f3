"""`bindery generate`: several prompts at once, limits of the draws, texts to stop at, and what is
printed. What is written for a prompt must not depend on the others, nor on threads."""

import json
from pathlib import Path

import program
from program import ALL_FAMILIES, ROOT, ProgramTest, bindery, shape_arguments
from schemas import validate

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4", "--positions", "64"]
CATS = "The cat sat on the mat. The hat was on the cat.\n" * 20
PROMPTS = ["The", "A much longer prompt than the others", "x", "The"]


class GenerateTest(ProgramTest):
    def train(self, *arguments: object, name: str = "run", dataset: Path = DATASET) -> Path:
        run = self.folder / name
        self.succeeds("train", "-q", "--data", dataset, "-o", run, "--steps", 20, *arguments)
        return run

    def train_on_cats(self, *packing: object, text: str = CATS) -> Path:
        """Returns a run whose model writes plain text."""
        corpus = self.folder / "corpus.txt"
        corpus.write_text(text)
        dataset = self.pack(self.folder / "cats", [corpus], "--seq-len", 64, *packing)
        run = self.folder / "cats-run"
        self.succeeds("train", "-q", "--data", dataset, "-o", run, "--steps", 150,
                      "--learning-rate", 0.01, *MODEL)  # fmt: skip
        return run

    def generate(self, run: Path, *arguments: object) -> list[dict]:
        said = self.succeeds("generate", "--json", *arguments, run).stdout
        lines = [json.loads(line) for line in said.splitlines()]
        for line in lines:
            validate(line, "generated")
        return lines

    def prompts(self, prompts: list[str]) -> list[str]:
        return [word for prompt in prompts for word in ("--prompt", prompt)]

    def refuses(self, *arguments: object) -> str:
        result = bindery("generate", *arguments)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        return result.stderr


class OnePrompt(GenerateTest):
    def test_the_same_seed_writes_the_same_text(self) -> None:
        run = self.train(*MODEL)
        text = [
            self.succeeds("generate", "--tokens", 20, "--seed", seed, run).stdout
            for seed in (1, 1, 2)
        ]
        self.assertEqual(text[0], text[1])
        self.assertNotEqual(text[0], text[2])
        self.assertTrue(text[0].startswith("The"))

    def test_temperature_zero_needs_no_seed(self) -> None:
        run = self.train(*MODEL)
        how = ["--temperature", 0, "--tokens", 20]
        text = {self.succeeds("generate", *how, "--seed", seed, run).stdout for seed in (1, 2, 3)}
        self.assertEqual(len(text), 1)

    def test_it_follows_the_bos_of_the_data(self) -> None:
        corpus = ROOT / "tests" / "golden" / "train-1" / "corpus"
        dataset = self.pack(self.folder / "bos", [corpus], "--seq-len", 64, "--bos", 256)
        run = self.train(*MODEL, dataset=dataset)
        text = self.succeeds("generate", "--tokens", 3, "--prompt", "Ab", run).stdout
        self.assertTrue(text.startswith("Ab"), text)
        self.succeeds("generate", "--tokens", 3, "--prompt", "", run)

    def test_it_must_fit(self) -> None:
        run = self.train(*MODEL)
        for prompt in ("", "x" * 64):
            self.assertIn("--prompt", self.refuses("--prompt", prompt, run))


class SeveralPrompts(GenerateTest):
    def test_each_is_what_it_is_alone_for_every_family(self) -> None:
        """At temperature 0, where a prompt's number does not matter."""
        for family in ALL_FAMILIES:
            with self.subTest(family):
                run = self.train(*shape_arguments(family, self.folder), name=family)
                how = ["--tokens", 12, "--temperature", 0]
                together = self.generate(run, *how, *self.prompts(PROMPTS))
                self.assertEqual([line["prompt"] for line in together], PROMPTS)
                for prompt, line in zip(PROMPTS, together, strict=True):
                    (alone,) = self.generate(run, *how, "--prompt", prompt, "--threads", 1)
                    self.assertEqual(line, alone)

    def test_draws_depend_on_number_and_seed_alone(self) -> None:
        run = self.train(*MODEL)
        first = self.generate(run, "--tokens", 15, *self.prompts(["The", "The", "The"]))
        self.assertEqual(len({line["text"] for line in first}), 3)
        other = self.generate(run, "--tokens", 15, *self.prompts(["A cat", "The"]))
        self.assertEqual(other[1], first[1])
        (alone,) = self.generate(run, "--tokens", 15, "--prompt", "The")
        self.assertEqual(alone, first[0])
        seeded = self.generate(run, "--tokens", 15, "--seed", 2, *self.prompts(["The"] * 3))
        texts = [line["text"] for line in (*first, *seeded)]
        self.assertEqual(len(set(texts)), 6)

    def test_prompts_of_a_file_follow_those_of_the_command_line(self) -> None:
        run = self.train(*MODEL)
        path = self.folder / "prompts.txt"
        path.write_bytes(b"one\r\ntwo words\n\xc3\xa4")
        wanted = self.generate(run, *self.prompts(["zero", "one", "two words", "ä"]))
        self.assertEqual(self.generate(run, "--prompt", "zero", "--prompts", path), wanted)
        path.write_bytes(b"")
        self.assertIn("has no line", self.refuses("--prompts", path, run))
        path.write_bytes(b"a\0b\n")
        self.assertIn("no text", self.refuses("--prompts", path, run))
        path.write_bytes(b"fits\n" + b"x" * 64)
        self.assertRegex(self.refuses("--prompts", path, run), r"prompts\.txt', line 2: 64 tokens")
        self.assertRegex(self.refuses("--prompt", "x", "--prompts", path, run), "', line 2: 64")
        path.write_bytes(b"fits")
        said = self.refuses("--prompt", "x", "--prompt", "x" * 64, "--prompts", path, run)
        self.assertIn(" --prompt number 2: 64 tokens", said)
        self.assertIn("absent", self.refuses("--prompts", self.folder / "absent", run))

    def test_texts_are_printed_one_after_the_other(self) -> None:
        run = self.train_on_cats()
        how = ["--tokens", 8, *self.prompts(PROMPTS)]
        lines = self.generate(run, *how)
        wanted = [f"==> {i} of 4 <==\n{line['prompt']}{line['text']}\n"
                  for i, line in enumerate(lines, 1)]  # fmt: skip
        self.assertEqual(self.succeeds("generate", *how, run).stdout, "\n".join(wanted))

    def test_a_text_that_is_held_back_gets_one_header(self) -> None:
        """Nothing is certain of the first text until its sixth token, and its prompt is empty."""
        run = self.train_on_cats("--bos", 256)
        how = ["--tokens", 8, *self.prompts(["", "x"])]
        stop = self.generate(run, *how)[0]["text"][:5] + "~"
        lines = self.generate(run, *how, "--stop", stop)
        wanted = [f"==> {i} of 2 <==\n{line['prompt']}{line['text']}\n"
                  for i, line in enumerate(lines, 1)]  # fmt: skip
        said = self.succeeds("generate", *how, "--stop", stop, run).stdout
        self.assertEqual(said, "\n".join(wanted))

    def test_a_character_stays_whole_behind_a_byte_that_is_none(self) -> None:
        """The model writes the last two bytes of a character, one after the other."""
        run = self.train_on_cats(text="\u20ac" * 400)
        path = self.folder / "prompts.txt"
        path.write_bytes(b"\xff\xe2\x82\xac\xe2")
        how = ["--tokens", 8, "--temperature", 0, "--prompts", path]
        self.assertEqual(self.succeeds("generate", *how, run).stdout, "\\xff" + "\u20ac" * 4 + "\n")

    def test_more_prompts_than_go_side_by_side_change_nothing(self) -> None:
        run = self.train(*MODEL)
        path = self.folder / "prompts.txt"
        path.write_text("".join(prompt + "\n" for prompt in PROMPTS * 40))
        how = ["--tokens", 9, "--temperature", 0]
        few = self.generate(run, *how, *self.prompts(PROMPTS))
        self.assertEqual(self.generate(run, *how, "--prompts", path), few * 40)

    def test_a_text_longer_than_memory_is_refused_with_the_option_that_helps(self) -> None:
        shape = ["--layers", 24, "--channels", 8, "--heads", 64, "--head-size", 64,
                 "--feed-forward", 8, "--positions", 1 << 24]  # fmt: skip
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, "--steps", 1, "--batch", 1,
                      "--preset", "llama-tiny", *shape)  # fmt: skip
        said = self.refuses("--prompt", "x", "--tokens", 1 << 20, run)
        self.assertIn("1 document of up to 1048577 tokens take", said)
        self.assertIn("--tokens", said)
        self.assertNotIn("--prompt", said)


class Stopping(GenerateTest):
    def test_a_text_to_stop_at_ends_the_text_before_it(self) -> None:
        """For every part of the text: what is printed is the text before its first occurrence."""
        run = self.train_on_cats()
        (free,) = self.generate(run, "--tokens", 30, "--prompt", "The")
        text = free["text"]
        for begin, length in ((0, 1), (3, 2), (5, 4), (11, 7)):
            stop = text[begin : begin + length]
            with self.subTest(stop):
                how = ["--tokens", 30, "--prompt", "The", "--stop", "no such text", "--stop", stop]
                (line,) = self.generate(run, *how)
                self.assertEqual(line["text"], text[: text.index(stop)])
                self.assertEqual(line["ended_by"], "stop")
                said = self.succeeds("generate", *how, run).stdout
                self.assertEqual(said, f"The{line['text']}\n")

    def test_a_text_that_only_begins_as_one_is_printed(self) -> None:
        run = self.train_on_cats()
        how = ["--tokens", 30, "--prompt", "The"]
        (free,) = self.generate(run, *how)
        stops = [free["text"][i:] + "!" for i in range(len(free["text"]))]
        stopped = [word for stop in stops for word in ("--stop", stop)]
        self.assertEqual(self.generate(run, *how, *stopped), [free])
        said = self.succeeds("generate", *how, run).stdout
        self.assertEqual(self.succeeds("generate", *how, *stopped, run).stdout, said)

    def test_one_inside_the_beginning_of_another_is_found(self) -> None:
        run = self.train_on_cats()
        (free,) = self.generate(run, "--tokens", 30, "--prompt", "The")
        text = free["text"]
        outer, inner = text[4:12] + "~", text[8:11]
        how = ["--tokens", 12, "--prompt", "The", "--stop", outer, "--stop", inner]
        (line,) = self.generate(run, *how)
        self.assertEqual(line["text"], text[: text.index(inner)])
        self.assertEqual(line["ended_by"], "stop")

    def test_the_prompt_may_contain_it(self) -> None:
        run = self.train(*MODEL)
        how = ["--tokens", 5, "--prompt", "~~"]
        self.assertEqual(self.generate(run, *how, "--stop", "~~"), self.generate(run, *how))

    def test_an_empty_one_is_refused(self) -> None:
        run = self.train(*MODEL)
        self.assertIn("--stop", self.refuses("--stop", "", run))

    def test_the_end_says_why(self) -> None:
        run = self.train(*MODEL)
        (line,) = self.generate(run, "--tokens", 3, "--prompt", "The", "--temperature", 3)
        self.assertIn((line["ended_by"], line["tokens"]), [("tokens", 3), ("end", line["tokens"])])
        prompt = "x" * 60
        lines = [self.generate(run, "--prompt", prompt, "--seed", seed)[0] for seed in range(30)]
        full = [line for line in lines if line["ended_by"] == "positions"]
        self.assertTrue(full)
        for line in full:
            self.assertEqual(line["prompt_tokens"] + line["tokens"], 64)


class Drawing(GenerateTest):
    def test_narrow_limits_take_the_likeliest(self) -> None:
        run = self.train(*MODEL)
        wanted = self.generate(run, "--tokens", 20, "--temperature", 0)
        for limit in (["--top-k", 1], ["--top-k", 0, "--top-p", 0], ["--top-k", 0, "--min-p", 1]):
            with self.subTest(limit):
                how = ["--tokens", 20, "--temperature", 2, *limit]
                self.assertEqual(self.generate(run, *how), wanted)

    def test_wide_limits_change_nothing(self) -> None:
        run = self.train(*MODEL)
        free = self.generate(run, "--tokens", 20, "--top-k", 0)
        self.assertEqual(self.generate(run, "--tokens", 20, "--top-k", 0, "--min-p", 1e-300), free)
        self.assertEqual(self.generate(run, "--tokens", 20, "--top-k", 1 << 20), free)
        narrow = self.generate(run, "--tokens", 20, "--top-k", 0, "--top-p", 0.3)
        self.assertNotEqual(narrow, free)

    def test_limits_that_are_no_probabilities_are_refused(self) -> None:
        for limit in (["--top-p", 1.5], ["--top-p", -1], ["--min-p", 2], ["--top-k", -1]):
            self.assertIn(limit[0], self.refuses(*limit, self.folder))


if __name__ == "__main__":
    program.main()
