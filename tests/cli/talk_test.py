"""Messages beside the answers: the time that the work took, what was left out, and nothing else
with --quiet; numbers as people write them; completions."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery, changed
from refusals import Refusals

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
CORPUS = GOLDEN / "corpus"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]
TIME = r"bindery {}: done in (\d+ m?s|\d+ min \d\d s), {} {}, [\d.]+ [KMG]?i?B/s\n"

# Family, layers, channels, heads of queries and of keys, channels of a head and of a feed-forward
# block. Presets that are named after a published model have its shape.
PRESETS = {
    "tiny": ("opt", 4, 128, 2, 2, 64, 512),
    "tiny-gpt2": ("gpt2", 4, 128, 2, 2, 64, 512),
    "small": ("opt", 4, 256, 4, 4, 64, 1024),
    "small-gpt2": ("gpt2", 4, 256, 4, 4, 64, 1024),
    "opt-125m": ("opt", 12, 768, 12, 12, 64, 3072),
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 64, 3072),
    "llama-tiny": ("llama", 4, 128, 2, 1, 64, 384),
    "smollm2-135m": ("llama", 30, 576, 9, 3, 64, 1536),
    "llama-350m": ("llama", 24, 1024, 16, 4, 64, 2816),
    "qwen3-0.6b": ("qwen3", 28, 1024, 16, 8, 128, 3072),
    "llama-1b": ("llama", 16, 2048, 32, 8, 64, 8192),
    "llama-3b": ("llama", 28, 3072, 24, 8, 128, 8192),
    "llama-8b": ("llama", 32, 4096, 32, 8, 128, 14336),
}


def as_people_write(n_bytes: int) -> str:
    """The oracle of common/cli/human.h, for sizes below a gigabyte."""
    for unit, size in [("MiB", 1 << 20), ("KiB", 1 << 10)]:
        if n_bytes >= size:
            value = n_bytes / size
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return re.escape(f"{value:.{digits}f} {unit}")
    return f"{n_bytes} B"


def size_of(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


class Time(ProgramTest):
    def test_work_tells_its_time_and_rate(self) -> None:
        out = self.folder / "out"
        for name, arguments, n_bytes, did in [
            ("pack", [CORPUS, "-o", out / "pack"], size_of(CORPUS, "*"), "read"),
            ("verify", [DATASET], size_of(DATASET, "*.arrow"), "checked"),
            ("repack", [DATASET, "-o", out / "re"], size_of(DATASET, "*.arrow"), "read"),
            ("export", [DATASET, "-o", out / "export"], None, "written"),
        ]:
            with self.subTest(name):
                result = self.succeeds(name, *arguments)
                n_bytes = n_bytes or size_of(out / "export", "*.arrows")
                self.assertRegex(
                    result.stderr, TIME.format(name, as_people_write(n_bytes), did) + r"\Z"
                )

    def test_the_answer_itself_tells_no_time(self) -> None:
        for name, arguments in {
            "pack": [CORPUS, "--json", "-o"],
            "repack": [DATASET, "--json", "--seq-len", 32, "-o"],
        }.items():
            answers = [self.succeeds(name, *arguments, self.folder / f"{name}-{i}").stdout
                       for i in range(2)]
            self.assertEqual(answers[0], answers[1])
            json.loads(answers[0])

    def test_a_part_or_a_pipe_tells_only_its_time(self) -> None:
        text = b'{"text": "a few words"}\n'
        result = self.succeeds("pack", "-o", self.folder / "pipe", "-", input=text)
        self.assertRegex(result.stderr, r"\Abindery pack: done in \d+ m?s\n\Z")


class Quiet(ProgramTest):
    def test_quiet_work_says_nothing(self) -> None:
        run = self.folder / "run"
        for arguments in [
            ["pack", CORPUS, "-o", self.folder / "pack"],
            ["pack", CORPUS, "-o", self.folder / "pack"],  # finished already
            ["repack", DATASET, "-o", self.folder / "repack"],
            ["verify", DATASET],
            ["export", DATASET, "-o", self.folder / "export"],
            ["train", "--data", DATASET, *MODEL, "--steps", 2, "--eval", DATASET,
             "--sample-every", 1, "-o", run],
            ["export", "--model", run, "-o", self.folder / "model"],
            ["report", run, "-o", self.folder / "report.html"],
            ["inspect", DATASET, "--html", self.folder / "inspect.html"],
        ]:
            with self.subTest(arguments[0]):
                self.assertEqual(self.succeeds(*arguments, "-q").output, "")

    def test_requested_output_is_printed_in_spite_of_quiet(self) -> None:
        damaged = self.folder / "damaged"
        shutil.copytree(DATASET, damaged)
        (damaged / "plan.json").write_text("{}")
        result = bindery("verify", "-q", damaged)
        self.assertEqual(result.status, 1)
        self.assertIn("plan.json", result.stdout)
        for arguments in [["pack", CORPUS, "--json", "-o", self.folder / "out"],
                          ["inspect", DATASET], ["plan", CORPUS]]:
            with self.subTest(arguments[0]):
                self.assertNotEqual(self.succeeds(*arguments, "-q").stdout, "")

    def test_left_out_documents_are_told_in_one_line(self) -> None:
        corpus = self.folder / "corpus"
        corpus.mkdir()
        texts = ["x" * 30, "y" * 31, "z" * 90, "w" * 95, "v" * 99, "."]
        (corpus / "a.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in texts)
        )
        for name in ["picture.png", "notes.odt"]:
            (corpus / name).write_bytes(b"\0\1\2")
        for long, said in [
            ("drop", "3 documents longer than a row; 1 document of fewer than --min-tokens"),
            ("truncate", "1 document of fewer than --min-tokens; the ends of 3 documents"),
        ]:
            with self.subTest(long):
                out = self.folder / long
                result = self.succeeds("pack", "-q", "-o", out, "--seq-len", 64, "--long", long,
                                       "--min-tokens", 2, corpus)
                self.assertEqual(result.stdout, "")
                self.assertEqual(
                    result.stderr,
                    f"bindery pack: left out: 2 files (2 binary); {said}\n",
                )


class Numbers(Refusals):
    def test_lengths_take_k(self) -> None:
        for command, source in [("pack", CORPUS), ("repack", DATASET)]:
            out = self.folder / command
            self.succeeds(command, "-q", source, "-o", out, "--seq-len", "2k")
            manifest = json.loads((out / "manifest.json").read_text())
            self.assertEqual(manifest["packing"]["seq_len"], 2048)
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run,
                      *changed(MODEL, "--positions", "1k"), "--steps", 1)
        model = json.loads((run / "step-00000001.json").read_text())["model"]
        self.assertEqual(model["max_position_embeddings"], 1024)
        plan = json.loads(self.succeeds("plan", "--json", "--seq-len", "1k,96,2K", CORPUS).stdout)
        self.assertEqual(sorted({way["seq_len"] for way in plan["estimates"]}), [96, 1024, 2048])

    def test_a_share_without_a_sign_is_refused_with_the_right_one(self) -> None:
        for given, said in {"5": "write 5%", "12.5": r"write 12\.5%", "1": "write 1%",
                            "0.05": r"write 5% or 0\.05%", ".2": r"write 20% or \.2%"}.items():
            with self.subTest(given):
                self.assert_pack_refused([CORPUS], "--holdout", f"{said}\n",
                                         options=("--holdout", given))


class DryRun(ProgramTest):
    def test_inputs_are_told_by_source_and_format(self) -> None:
        line = json.dumps({"text": "some words"}) + "\n"
        for name, n in {"wiki/a.jsonl": 3, "wiki/b.jsonl": 5, "wiki/c.txt": 1, "d.jsonl": 2}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(line * n)
        result = self.succeeds("pack", "-n", "-o", "never", "d.jsonl", "--source", "wiki=wiki",
                               cwd=self.folder)
        table = [re.split(r"\s{2,}", row.strip()) for row in result.stdout.splitlines()[:-1]]
        size = len(line)
        self.assertEqual(table, [
            ["inputs", "size", "format", "compression", "source"],
            ["1", f"{2 * size} B", "jsonl", "none", "default: d.jsonl"],
            ["2", f"{8 * size} B", "jsonl", "none", "wiki: from wiki/a.jsonl on"],
            ["1", f"{size} B", "text", "none", "wiki: wiki/c.txt"],
        ])
        self.assertRegex(result.stdout, r"\n4 inputs, \d units?; about .* to be written\n\Z")


class Help(ProgramTest):
    def test_every_preset_is_in_the_help_with_its_shape(self) -> None:
        shown = self.succeeds("train", "--help").stdout
        listed = re.findall(
            r"(?m)^ +(\S+) +(\w+), (\d+) x (\d+), (\d+)(?:/(\d+))? heads of (\d+), (\d+), "
            r"(\S+) ([kMG])$",
            shown,
        )
        self.assertEqual({name for name, *_ in listed}, {*PRESETS})
        for name, family, *numbers, amount, unit in listed:
            with self.subTest(name):
                layers, channels, heads, kv_heads, size, inside = (int(n or 0) for n in numbers)
                kv_heads = kv_heads or heads
                self.assertEqual(
                    (family, layers, channels, heads, kv_heads, size, inside), PRESETS[name]
                )
                gated = family not in program.LEARNED_POSITIONS
                attention = size * (2 * heads + 2 * kv_heads)  # queries, results, keys, values
                weights = layers * channels * (attention + (2 + gated) * inside)
                scale = {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
                # Three digits are shown.
                self.assertAlmostEqual(float(amount) * scale / weights, 1.0, delta=0.005)

    def test_every_option_is_in_the_help_and_in_the_man_page(self) -> None:
        """Returns the table's options, as the completion of fish lists them."""
        options: dict[str, set[str]] = {}
        for line in self.succeeds("--generate", "fish").stdout.splitlines():
            found = re.search(r"-n (?:'__fish_\w+ (\w+)'|\S+)(.*? -l [\w-]+)", line)
            if found:
                names = re.findall(r" -([sl]) ([\w-]+)", found[2])
                options.setdefault(found[1] or "", set()).update(
                    f"-{name}" if kind == "s" else f"--{name}" for kind, name in names)
        self.assertGreater(len(options), 13)
        self.assertGreater(sum(map(len, options.values())), 200)
        for command, names in options.items():
            words = [command] if command else []
            shown = self.succeeds(*words, "--help").stdout
            page = self.succeeds(*words, "--generate", "man").stdout.replace("\\-", "-")
            self.assertLessEqual(max(map(len, shown.split("\n"))), 80)
            self.assertTrue(shown.startswith(" ".join(["Usage: bindery", *words])), shown)
            for name in names:
                with self.subTest(command, option=name):
                    self.assertRegex(shown, rf"(?m)^(  |  -\w, |      ){name}[ ,\n]")
                    self.assertIn(rf"\fB{name}\fR", page)
        for command in options.keys() - {""}:
            self.assertIn(rf"bindery\-{command} ", self.succeeds("--generate", "man").stdout)
            self.assertRegex(self.succeeds("--help").stdout, rf"(?m)^  {command} ")


class Completion(ProgramTest):
    def completed(self, *words: str) -> list[str]:
        """Returns the words that bash would offer for the last of `words`."""
        script = self.succeeds("--generate", "bash").stdout
        typed = " ".join(f"'{word}'" for word in words)
        run = subprocess.run(
            ["bash", "-c", f"compopt() {{ :; }}\n{script}\nCOMP_WORDS=({typed})\n"
             f"COMP_CWORD={len(words) - 1}\n_bindery\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""],
            cwd=self.folder, capture_output=True, text=True, check=True,
            env={"PATH": os.environ["PATH"]},
        )
        self.assertEqual(run.stderr, "")
        return sorted(run.stdout.split("\n")[:-1])

    def test_a_tokenizer_is_completed_as_a_word_or_a_file(self) -> None:
        (self.folder / "gpt2").mkdir()
        (self.folder / "a tokenizer.json").write_text("{}")
        for command in ["pack", "plan", "tokenize"]:
            with self.subTest(command):
                offered = self.completed("bindery", command, "--tokenizer", "")
                self.assertEqual(offered, ["a tokenizer.json", "bytes", "gpt2"])
                self.assertEqual(self.completed("bindery", command, "--tokenizer", "g"), ["gpt2"])


class WithoutMpi(ProgramTest):
    def test_the_message_names_what_brings_it(self) -> None:
        alone = self.folder / "bindery"
        shutil.copy(program.program(), alone)  # without the modules beside it
        run = subprocess.run(
            [alone, "train", "--data", DATASET, "-o", self.folder / "run", *map(str, MODEL)],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env={**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
        )
        self.assertEqual(run.returncode, 2, run)
        self.assertIn("this is process 0 of 2, but MPI cannot be used", run.stderr)
        self.assertIn("(scripts/setup --mpi, then scripts/build)", run.stderr)


if __name__ == "__main__":
    program.main()
