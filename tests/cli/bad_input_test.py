"""What cannot be done is refused: exit 2, a message that names the place and the reason, and
nothing left behind that looks whole. What can be continued is continued."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import unittest
from contextlib import contextmanager
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import program
from program import CONTROL_CHARACTER, ProgramTest, Result, bindery, contents

SEED = 20240610
KILLS = 40 if program.LONG else 6


def json_lines(texts: list[str]) -> list[bytes]:
    return [json.dumps({"text": text}).encode() for text in texts]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of `size` mounted on `folder`; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        print("skipped: a full disk, because nothing can be mounted here")
        raise unittest.SkipTest("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def limit_file_size() -> None:
    """In the child: a write past 300 kB fails with EFBIG instead of a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


class Refusals(ProgramTest):
    """What every refusal has in common."""

    def assert_refusal(self, result: Result, *mentions: str) -> None:
        """Exit 2, no answer, and a clean message that has every one of `mentions`."""
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("bindery"), result)
        self.assertIsNone(CONTROL_CHARACTER.search(result.stderr), result)
        for mention in mentions:
            self.assertRegex(result.stderr, mention)

    def assert_unfinished(self, dataset: Path) -> None:
        """No manifest, and every shard that is there under its name is whole."""
        self.assertFalse((dataset / "manifest.json").exists())
        for shard in dataset.glob("*.arrow"):
            pa.ipc.open_file(shard).read_all().validate(full=True)

    def assert_pack_refused(self, inputs: list, *mentions: str, options: tuple = ()) -> Result:
        dataset = self.folder / "refused"
        result = bindery("pack", "-q", "-o", dataset, *options, *inputs)
        self.assert_refusal(result, *mentions)
        self.assert_unfinished(dataset)
        shutil.rmtree(dataset, ignore_errors=True)
        return result

    def write(self, name: str | bytes, data: bytes) -> Path:
        path = self.folder / os.fsdecode(name)
        path.write_bytes(data)
        return path


class Corpora(Refusals):
    def test_a_missing_file_is_named(self) -> None:
        good = self.write("good.txt", b"text")
        missing = self.folder / "absent.txt"
        self.assert_pack_refused([good, missing], r"absent\.txt", "(?i)no such file")

    def test_invalid_json_is_named_with_its_line(self) -> None:
        for bad in [b'{"text": "open', b"{]", b'{"text": "a"} {"text": "b"}', b"nonsense",
                    b'{"text": "tab\tin a string"}', b'{"text": "bad \\x escape"}']:
            with self.subTest(bad):
                lines = json_lines(["fine"] * 30)
                lines[16] = bad
                path = self.write("records.jsonl", b"\n".join(lines))
                self.assert_pack_refused([path], r"records\.jsonl", r"\b17\b")

    def test_invalid_json_beside_the_text_is_refused_too(self) -> None:
        for bad in [b'"b": nul', b'"b": 01', b'"b": [1,', b'"b": "\\x"', b'"b"', b"",
                    b'"b": ' + b"[" * 100_000 + b"]" * 100_000]:
            with self.subTest(bad[:20]):
                path = self.write("records.jsonl", b'{"text": "a", ' + bad + b"}\n")
                self.assert_pack_refused([path], r"records\.jsonl", "line 1")

    def test_a_record_that_is_not_an_object_is_named_with_its_line(self) -> None:
        for bad in [b"[1, 2]", b'"text"', b"3", b"null"]:
            with self.subTest(bad):
                path = self.write("records.jsonl", b'{"text": "a"}\n\n' + bad + b"\n")
                self.assert_pack_refused([path], r"records\.jsonl", r"\b3\b")

    def test_a_missing_text_field_is_named_with_its_line(self) -> None:
        path = self.write("records.jsonl", b'{"text": "a"}\n{"body": "b"}\n')
        self.assert_pack_refused([path], r"records\.jsonl", r"\b2\b", "text")
        path = self.write("nested.jsonl", b'{"a": {"b": "x"}}\n{"a": {"c": "x"}}\n{"a": "x"}\n')
        self.assert_pack_refused(
            [path], r"nested\.jsonl", r"\b2\b", r"'(a\.)?b'", options=("--text-field", "a.b")
        )

    def test_a_text_that_is_not_a_string_is_named_with_its_line(self) -> None:
        for bad in [b"3", b"null", b"true", b'["a"]', b'{"a": "b"}']:
            with self.subTest(bad):
                path = self.write("records.jsonl", b'{"text": "a"}\n{"text": ' + bad + b"}\n")
                self.assert_pack_refused([path], r"records\.jsonl", r"\b2\b", "string")

    def test_bytes_that_are_not_utf8_are_named_with_their_place(self) -> None:
        for bad in [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf"]:
            with self.subTest(bad):
                path = self.write("latin.txt", b"a" * 1234 + bad)
                self.assert_pack_refused([path], r"latin\.txt", "(?i)utf-?8", r"\b123[45]\b")
                line = b'{"text": "' + bad + b'"}\n'
                path = self.write("latin.jsonl", b'{"text": "a"}\n' * 16 + line)
                for options in [(), ("--invalid-utf8", "keep")]:  # JSON cannot be kept broken
                    self.assert_pack_refused(
                        [path], r"latin\.jsonl", "(?i)utf-?8", "line 17", options=options
                    )

    def test_a_lone_surrogate_is_named_with_its_line(self) -> None:
        for bad in [rb"\ud800", rb"\udc00", rb"\ud800\ud800", rb"\ud800x"]:
            with self.subTest(bad):
                path = self.write("lone.jsonl", b'{"text": "a"}\n{"text": "' + bad + b'"}\n')
                self.assert_pack_refused([path], r"lone\.jsonl", r"\b2\b")

    def test_a_corpus_without_documents_is_refused(self) -> None:
        (self.folder / "empty").mkdir()
        blank = self.write("blank.jsonl", b"\n \n\r\n")
        self.assert_pack_refused([self.folder / "empty"])
        self.assert_pack_refused([blank])

    def test_a_pipe_in_a_folder_is_not_waited_for(self) -> None:
        folder = self.folder / "corpus"
        folder.mkdir()
        os.mkfifo(folder / "pipe.txt")
        (folder / "loop").symlink_to(folder)
        self.assert_pack_refused([folder])
        (folder / "text.txt").write_bytes(b"text")
        self.pack(self.folder / "dataset", [folder], "--seq-len", 8)

    def test_a_record_over_the_limit_is_named_with_its_place(self) -> None:
        limit = ("--max-document-bytes", "1000")
        path = self.write("big.jsonl", b"\n".join(json_lines(["a", "b", "x" * 2000])))
        self.assert_pack_refused([path], r"big\.jsonl", "line 3|byte 28", "1000", options=limit)
        path = self.write("big.txt", b"x" * 2000)
        self.assert_pack_refused([path], r"big\.txt", "1000", options=limit)

    def test_a_document_too_long_under_error_is_named_with_its_place(self) -> None:
        path = self.write("long.jsonl", b"\n".join(json_lines(["a", "b", "x" * 100])))
        self.assert_pack_refused(
            [path], r"long\.jsonl", "line 3", options=("--long", "error", "--seq-len", "50")
        )

    def test_file_names_cannot_speak_to_the_terminal(self) -> None:
        for name in [b"\x1b[31mred\x07.jsonl", b"two\nlines.jsonl", b"\xff\xfe.jsonl",
                     "c1\u009b31m.jsonl".encode()]:
            with self.subTest(name):
                path = self.write(name, b"{broken\n")
                broken = self.assert_pack_refused([path], "jsonl")
                path.unlink()
                missing = self.assert_pack_refused([path], "jsonl")
                self.assertNotIn("\nlines", broken.stderr + missing.stderr)


class Arguments(Refusals):
    def test_an_impossible_row_length_is_refused(self) -> None:
        path = self.write("a.txt", b"text")
        for bad in ["0", "1", "-5", "abc", str(2**40), "", "64x", "0x40", str(2**64 + 64)]:
            with self.subTest(bad):
                self.assert_pack_refused([path], "seq-len", options=("--seq-len", bad))

    def test_an_id_outside_the_vocabulary_is_refused(self) -> None:
        path = self.write("a.txt", b"text")
        for option, bad in [("--separator-id", 300), ("--padding-id", 257), ("--bos", 999),
                            ("--separator-id", -1), ("--bos", "x")]:
            with self.subTest(option, id=bad):
                self.assert_pack_refused([path], option.strip("-"), options=(option, bad))

    def test_an_unknown_word_is_refused(self) -> None:
        path = self.write("a.txt", b"text")
        for option in ["--strategy", "--long", "--format", "--invalid-utf8", "--tokenizer"]:
            with self.subTest(option):
                self.assert_pack_refused([path], "nonsense", options=(option, "nonsense"))
        self.assert_pack_refused([path], "--nonsense", options=("--nonsense",))

    def test_missing_arguments_are_refused(self) -> None:
        path = self.write("a.txt", b"text")
        self.assert_pack_refused([], "(?i)input")
        self.assert_refusal(bindery("pack", "-q", path), "-o|--out")
        self.assert_refusal(bindery("inspect"), "(?i)dataset")
        self.assert_refusal(bindery("verify"), "(?i)dataset")
        self.assert_refusal(bindery("nonsense"), "nonsense")


class Outputs(Refusals):
    def setUp(self) -> None:
        super().setUp()
        lines = json_lines([f"document {i} " * (i % 7) for i in range(100)])
        self.input = self.write("corpus.jsonl", b"\n".join(lines))
        self.options = ("--seq-len", "32", "--unit-size", "1000")
        self.output = self.folder / "output"

    def run_pack(self, *arguments: object, **popen: object) -> Result:
        return bindery(
            "pack", "-q", "-o", self.output, *self.options, *arguments, self.input, **popen
        )

    def test_a_file_where_a_folder_is_meant_is_refused(self) -> None:
        self.output.write_bytes(b"precious")
        for arguments in [(), ("--overwrite",)]:
            self.assert_refusal(self.run_pack(*arguments), "output")
            self.assertEqual(self.output.read_bytes(), b"precious")
        for command in [("inspect",), ("inspect", "--scan"), ("verify",)]:
            self.assert_refusal(bindery(*command, self.output), "output")

    def test_a_folder_that_is_not_a_dataset_is_refused(self) -> None:
        self.output.mkdir()
        for dataset in [self.output, self.folder / "absent"]:
            for command in [("inspect",), ("inspect", "--scan"), ("verify",)]:
                self.assert_refusal(bindery(*command, dataset), dataset.name)

    def test_a_folder_that_cannot_be_written_is_refused(self) -> None:
        too_long = self.folder / ("x" * 300)
        for output in [self.input / "below", Path("/proc/bindery-test"), too_long]:
            with self.subTest(output):
                result = bindery("pack", "-q", "-o", output, *self.options, self.input)
                self.assert_refusal(result, output.name[:50])

    def test_a_folder_that_holds_something_else_is_not_touched(self) -> None:
        for name in ["thesis.tex", "data.arrow", ".hidden", "manifest.json", "plan.json"]:
            for arguments in [(), ("--overwrite",)]:
                with self.subTest(name, arguments=arguments):
                    self.output.mkdir()
                    (self.output / name).write_bytes(b"{}")
                    self.assert_refusal(self.run_pack(*arguments), "output")
                    self.assertEqual(contents(self.output), {name: b"{}"})
                    shutil.rmtree(self.output)

    def test_overwrite_leaves_strangers_in_a_dataset_alone(self) -> None:
        self.assertEqual(self.run_pack().status, 0)
        (self.output / "thesis.tex").write_bytes(b"precious")
        (self.output / "figures").mkdir()
        (self.output / "figures" / "one.png").write_bytes(b"precious")
        bindery("pack", "-q", "--overwrite", "-o", self.output, "--seq-len", 64, self.input)
        kept = contents(self.output)
        self.assertEqual(kept.get("thesis.tex"), b"precious")
        self.assertEqual(kept.get("figures/one.png"), b"precious")

    def test_overwrite_replaces_a_dataset(self) -> None:
        self.assertEqual(self.run_pack().status, 0)
        other = ("--seq-len", "64")
        self.succeeds("pack", "-q", "--overwrite", "-o", self.output, *other, self.input)
        fresh = self.folder / "fresh"
        self.succeeds("pack", "-q", "-o", fresh, *other, self.input)
        found, expected = contents(self.output), contents(fresh)
        self.assertEqual(found.keys(), expected.keys())
        found.pop("pack-log.json"), expected.pop("pack-log.json")
        self.assertEqual(found, expected)

    def test_a_full_disk_is_named_and_leaves_nothing_whole(self) -> None:
        text = random.Random(SEED).randbytes(1_500_000).hex().encode()
        self.input.write_bytes(b'{"text": "' + text + b'"}\n')
        disk = self.folder / "disk"
        with small_disk(disk, "1m"):
            result = bindery("pack", "-q", "-o", disk / "output", self.input)
            self.assert_refusal(result, "(?i)no space left", "output")
            self.assert_unfinished(disk / "output")

    def test_a_file_that_cannot_grow_is_named_and_packing_continues_later(self) -> None:
        text = random.Random(SEED).randbytes(500_000).hex().encode()
        self.input.write_bytes(b'{"text": "' + text + b'"}\n')
        output = self.folder / "output"
        arguments = ("pack", "-q", "-o", output, self.input)
        result = bindery(*arguments, preexec_fn=limit_file_size)
        self.assert_refusal(result, "(?i)file too large", r"\.arrow")
        self.assert_unfinished(output)
        self.succeeds(*arguments)
        self.succeeds("verify", output)

    def test_a_full_standard_output_is_refused(self) -> None:
        self.assertEqual(self.run_pack().status, 0)
        for arguments in [("inspect", self.output), ("inspect", "--json", self.output),
                          ("inspect", "--row", "0", self.output), ("verify", self.output),
                          ("verify", "--json", self.output), ("--help",), ("pack", "--help"),
                          ("--version",)]:
            with self.subTest(arguments[:2]), open("/dev/full", "wb") as full:
                self.assert_refusal(bindery(*arguments, stdout=full))
        with open("/dev/full", "wb") as full:
            self.assert_refusal(self.run_pack("--json", stdout=full))

    def test_a_closed_pipe_is_not_an_error(self) -> None:
        self.assertEqual(self.run_pack().status, 0)
        for restore in [True, False]:
            for arguments in [("inspect", self.output), ("inspect", "--json", self.output),
                              ("verify", self.output), ("pack", "--help")]:
                with self.subTest(arguments[:2], restore_signals=restore):
                    reading, writing = os.pipe()
                    os.close(reading)
                    result = bindery(*arguments, stdout=writing, restore_signals=restore)
                    os.close(writing)
                    self.assertEqual((result.status, result.stderr), (0, ""), result)


class Damage(Refusals):
    """`inspect` on a damaged dataset; `verify` has a test of its own."""

    def setUp(self) -> None:
        super().setUp()
        lines = json_lines([f"document {i} " * (i % 7) for i in range(100)])
        path = self.write("corpus.jsonl", b"\n".join(lines))
        self.dataset = self.pack(self.folder / "dataset", [path], "--seq-len", 32)
        self.shard = self.dataset / "00000-00000.arrow"

    def test_a_shard_cut_short_is_refused(self) -> None:
        for size in [0, 7, 100, self.shard.stat().st_size - 1]:
            with self.subTest(size):
                os.truncate(self.shard, size)
                result = bindery("inspect", "--row", 0, self.dataset)
                self.assert_refusal(result, self.shard.name)
                self.assertIn(bindery("inspect", "--scan", self.dataset).status, (1, 2))

    def test_a_flipped_bit_is_refused(self) -> None:
        data = bytearray(self.shard.read_bytes())
        place = data.rindex(b"d\x00o\x00c\x00u\x00m\x00e\x00n\x00t\x00")
        data[place] ^= 1
        self.shard.write_bytes(data)
        result = bindery("inspect", "--scan", self.dataset)
        self.assertIn(result.status, (1, 2), result)
        self.assertIn(self.shard.name, result.output)

    def test_a_missing_shard_is_refused(self) -> None:
        self.shard.unlink()
        self.assert_refusal(bindery("inspect", "--row", 0, self.dataset), self.shard.name)
        result = bindery("verify", self.dataset)
        self.assertIn(result.status, (1, 2), result)
        self.assertIn(self.shard.name, result.output)

    def test_a_row_that_is_not_there_is_refused(self) -> None:
        for row in [10**6, -1, 2**64, "x"]:
            self.assert_refusal(bindery("inspect", "--row", row, self.dataset), "row")


class Continuing(Refusals):
    def setUp(self) -> None:
        super().setUp()
        rng = random.Random(SEED)
        lines = json_lines([rng.randbytes(rng.randint(0, 300)).hex() for _ in range(600)])
        self.input = self.write("corpus.jsonl", b"\n".join(lines))
        self.options = ["--seq-len", "64", "--unit-size", "4096"]
        self.dataset = self.folder / "dataset"
        self.arguments = ["pack", "-q", "-o", self.dataset, *self.options, self.input]

    def published(self) -> dict[str, bytes]:
        """Every file but the log of the run; a temporary name has no place among them."""
        files = contents(self.dataset)
        files.pop("pack-log.json", None)
        return files

    def test_a_finished_dataset_is_left_as_it_is(self) -> None:
        self.succeeds(*self.arguments)
        before = {path: path.stat() for path in self.dataset.iterdir()}
        arguments = [argument for argument in self.arguments if argument != "-q"]
        result = self.succeeds(*arguments)
        self.assertRegex(result.output, "(?i)already|finished|complete|nothing to do")
        after = {path: path.stat() for path in self.dataset.iterdir()}
        self.assertEqual(
            {path: (s.st_ino, s.st_size, s.st_mtime_ns) for path, s in before.items()},
            {path: (s.st_ino, s.st_size, s.st_mtime_ns) for path, s in after.items()},
        )

    def test_other_options_are_refused_with_the_difference_named(self) -> None:
        self.succeeds(*self.arguments)
        before = contents(self.dataset)
        for other, mentions in [
            (["--seq-len", "65"], ["seq.len", "64", "65"]),
            (["--strategy", "concat"], ["strategy", "best-fit", "concat"]),
            (["--long", "drop"], ["long", "split", "drop"]),
            (["--bos", "7"], ["bos"]),
            (["--padding-id", "7"], ["padding"]),
            (["--unit-size", "5000"], ["unit.size", "4096", "5000"]),
            (["--text-field", "body"], ["text.field", "body"]),
        ]:
            with self.subTest(other):
                result = bindery(*self.arguments[:-1], *other, self.input)
                self.assert_refusal(result, *mentions)
                self.assertEqual(contents(self.dataset), before)

    def test_other_inputs_are_refused_with_the_difference_named(self) -> None:
        self.succeeds(*self.arguments)
        before = contents(self.dataset)
        more = self.write("more.jsonl", b'{"text": "x"}\n')
        self.assert_refusal(bindery(*self.arguments, more), r"more\.jsonl|inputs")
        with open(self.input, "ab") as file:
            file.write(b'\n{"text": "x"}')
        self.assert_refusal(bindery(*self.arguments), r"corpus\.jsonl|inputs\[0\]")
        self.assertEqual(contents(self.dataset), before)

    def test_an_unfinished_dataset_is_continued_to_the_same_bytes(self) -> None:
        self.succeeds(*self.arguments)
        whole = self.published()
        shards = [name for name in whole if name.endswith(".arrow")]
        self.assertGreater(len(shards), 10)
        for gone in [["manifest.json"], ["manifest.json", shards[3]],
                     ["manifest.json", "tokenizer.json", shards[0], shards[-1]],
                     ["manifest.json", *shards]]:
            with self.subTest(gone):
                for name in gone:
                    (self.dataset / name).unlink()
                kept = {p: p.stat().st_ino for p in self.dataset.glob("*.arrow")}
                self.succeeds(*self.arguments)
                self.assertEqual(self.published(), whole)
                self.assertEqual({p: p.stat().st_ino for p in kept}, kept)

    def test_an_unfinished_dataset_is_not_continued_with_other_options(self) -> None:
        self.succeeds(*self.arguments)
        (self.dataset / "manifest.json").unlink()
        before = contents(self.dataset)
        result = bindery(*self.arguments[:-1], "--seq-len", "65", self.input)
        self.assert_refusal(result, "seq.len", "64", "65")
        self.assertEqual(contents(self.dataset), before)

    def test_an_unfinished_dataset_is_not_used(self) -> None:
        self.succeeds(*self.arguments)
        (self.dataset / "manifest.json").unlink()
        for command in [("inspect",), ("inspect", "--scan"), ("verify",)]:
            self.assert_refusal(bindery(*command, self.dataset), "manifest|unfinished")

    def test_several_processes_at_once_do_not_spoil_each_other(self) -> None:
        """Each finishes, or refuses because another is at work; the bytes are the same."""
        self.succeeds(*self.arguments)
        whole = self.published()
        shutil.rmtree(self.dataset)
        command = [program.program(), *map(str, self.arguments)]
        runs = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(4)
        ]
        messages = [run.communicate(timeout=program.TIMEOUT_SECONDS)[1] for run in runs]
        for run, message in zip(runs, messages):
            if run.returncode != 0:
                self.assertEqual(run.returncode, 2)
                self.assertIn(b"another process", message)
        self.assertIn(0, [run.returncode for run in runs])
        self.assertEqual(self.published(), whole)

    def test_a_killed_run_is_continued_to_the_same_bytes(self) -> None:
        self.succeeds(*self.arguments)
        whole = self.published()
        rng = random.Random(SEED)
        shutil.rmtree(self.dataset)
        for n in range(KILLS):
            with self.subTest(seed=SEED, kill=n):
                command = [program.program(), *map(str, self.arguments)]
                run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                time.sleep(rng.uniform(0, 0.08))
                run.kill()
                run.wait()
                for shard in self.dataset.glob("*.arrow"):
                    self.assertEqual(shard.read_bytes(), whole[shard.name])
        self.succeeds(*self.arguments)
        found = self.published()
        self.assertEqual({name: found.get(name) for name in whole}, whole)
        self.succeeds("verify", self.dataset)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
