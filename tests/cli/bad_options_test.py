"""Impossible requests are refused with the option and the reason; folders that hold something
else are left alone; and an unfinished dataset is continued."""

import os
import random
import re
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import program
from program import Result, bindery, changed, contents
from refusals import Refusals, json_lines

SEED = 20240610
LAUNCHERS = ("OMPI_", "PMI", "MPI", "SLURM")  # prefixes of their variables' names


def limit_file_size() -> None:
    """Runs in the child: a write past 300 kB fails with EFBIG instead of a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


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
        for option in ["--strategy", "--long", "--format", "--invalid-utf8", "--tokenizer",
                       "--separator", "--compress", "--color"]:
            with self.subTest(option):
                self.assert_pack_refused([path], "nonsense", options=(option, "nonsense"))
        self.assert_pack_refused([path], "--nonsense", options=("--nonsense",))

    def test_an_impossible_number_is_refused(self) -> None:
        path = self.write("a.txt", b"text")
        for option, bad in {
            "--max-documents": ["-1", "x", str(2**64)],
            "--min-tokens": ["-1", "x", str(2**64)],
            "--shuffle": ["-1", "x", str(2**64)],
            "--limit": ["0", "-1", "x"],
            "--unit-size": ["0", "-1", "x", "1X", str(2**64)],
            "--max-document-bytes": ["0", "-1", "x"],
            "--threads": ["0", "-1", "x"],
            "--id-bytes": ["1", "3", "8", "x"],
            "--vocab-size": ["0", "-1", "x", str(2**64)],
        }.items():
            for word in bad:
                with self.subTest(option, given=word):
                    self.assert_pack_refused([path], option, options=(option, word))

    def test_a_share_that_is_none_is_refused(self) -> None:
        path = self.write("a.txt", b"text")
        for bad in ["0%", "100%", "101%", "-5%", "abc", "5", "%", "", "5%%", "1e-5%", "nan%"]:
            with self.subTest(bad):
                self.assert_pack_refused(
                    [path], "--holdout", f"'{bad}'", options=("--holdout", bad)
                )

    def test_ids_need_a_separator(self) -> None:
        path = self.write("a.txt", b"text")
        self.assert_pack_refused(
            [path], "--vocab-size", "--separator-id", options=("--vocab-size", "257")
        )
        for bad in ["257", "-1"]:
            self.assert_pack_refused(
                [path], "--separator-id",
                options=("--vocab-size", "257", "--separator-id", bad),
            )

    def test_a_delimiter_must_be_one_line(self) -> None:
        path = self.write("a.txt", b"text")
        for bad in [b"a\nb", b"\n", b"\xff"]:
            with self.subTest(bad):
                self.assert_pack_refused([path], "--delimiter", options=("--delimiter", bad))

    def test_missing_arguments_are_refused(self) -> None:
        path = self.write("a.txt", b"text")
        self.assert_pack_refused([], "(?i)input")
        self.assert_refusal(bindery("pack", "-q", path), "-o|--out")
        self.assert_refusal(bindery("inspect"), "(?i)dataset")
        self.assert_refusal(bindery("verify"), "(?i)dataset")
        for command in ["repack", "export"]:
            self.assert_refusal(bindery(command, path), "-o|--out")
            self.assert_refusal(bindery(command, "-o", self.folder / "new"), "DATASET")
        self.assert_refusal(bindery("nonsense"), "nonsense")


class Ranks(Refusals):
    """Options that contradict each other when several processes pack."""

    def assert_refused(self, *mentions: str, options: tuple, **environment: str) -> None:
        path = self.write("a.txt", b"text")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        self.assert_pack_refused(
            [path], *mentions, options=options, env={**clean, **environment}
        )

    def test_a_rank_that_is_none_of_them_is_refused(self) -> None:
        for options in [("--rank", "0"), ("--ranks", "2")]:
            with self.subTest(options):
                self.assert_refused("--rank", "--ranks", options=options)
        for rank, ranks in [("2", "2"), ("-1", "2"), ("x", "2"), ("0", "0"), ("0", "x")]:
            with self.subTest(rank, ranks=ranks):
                self.assert_refused("--rank", options=("--rank", rank, "--ranks", ranks))

    def test_options_for_one_process_are_refused_to_ranks(self) -> None:
        for option, mention in [
            (("--finish",), "--finish"), (("--overwrite",), "--overwrite"),
            (("--limit", "3"), "--limit"), (("-",), "standard input"),
        ]:
            with self.subTest(option):
                self.assert_refused(mention, options=("--rank", "0", "--ranks", "2", *option))

    def test_nonsense_of_a_launcher_is_refused(self) -> None:
        for rank, ranks in [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ]:
            for values in ["x 2", "2 2", "-1 2", "0 0", "1 1x", "0x0 2"]:
                with self.subTest(rank, values=values):
                    given = dict(zip((rank, ranks), values.split()))
                    self.assert_refused(rank, options=(), **given)

    def test_a_launchers_ranks_are_heeded(self) -> None:
        """Shows that the variables of the refusals above are read at all."""
        given = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        self.assert_refused("--limit", options=("--limit", "3"), **given)


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
        for name in ["thesis.tex", "data.arrow", ".hidden", "holdout"]:
            for arguments in [(), ("--overwrite",)]:
                with self.subTest(name, arguments=arguments):
                    self.output.mkdir()
                    (self.output / name).write_bytes(b"{}")
                    self.assert_refusal(self.run_pack(*arguments), "output", name)
                    self.assertEqual(contents(self.output), {name: b"{}"})
                    shutil.rmtree(self.output)

    def test_files_that_have_our_names_and_are_not_ours_are_kept(self) -> None:
        for name in ["manifest.json", "plan.json", "00000-00000.arrow"]:
            for arguments in [(), ("--overwrite",)]:
                with self.subTest(name, arguments=arguments):
                    self.output.mkdir()
                    (self.output / name).write_bytes(b"{}")
                    self.assert_refusal(self.run_pack(*arguments), "output", name)
                    self.assertEqual((self.output / name).read_bytes(), b"{}")
                    self.assertLessEqual(set(contents(self.output)), {name, ".lock"})
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
        """With and without its holdout, finished or not."""
        other = ("--seq-len", "64")
        for n, (before, after) in enumerate([
            ((), other), (("--holdout", "30%"), other), ((), (*other, "--holdout", "30%")),
        ]):
            for is_finished in [True, False]:
                with self.subTest(before=before, after=after, is_finished=is_finished):
                    output = self.folder / f"{n}-{is_finished}"
                    self.pack(output, [self.input], *self.options, *before)
                    if not is_finished:
                        (output / "manifest.json").unlink()
                    self.pack(output, [self.input], "--overwrite", *after)
                    fresh = self.folder / f"{n}-{is_finished}-fresh"
                    self.pack(fresh, [self.input], *after)
                    found, expected = contents(output), contents(fresh)
                    self.assertEqual(found.keys(), expected.keys())
                    found.pop("pack-log.json"), expected.pop("pack-log.json")
                    self.assertEqual(found, expected)

    def test_overwrite_keeps_what_is_not_ours_in_a_holdout(self) -> None:
        self.assertEqual(self.run_pack("--holdout", "30%").status, 0)
        (self.output / "holdout" / "thesis.tex").write_bytes(b"precious")
        before = contents(self.output)
        self.assert_refusal(self.run_pack("--overwrite"), r"thesis\.tex")
        self.assertEqual(contents(self.output), before)

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
                    said = re.sub(r"bindery \w+: done in .*\n", "", result.stderr)
                    self.assertEqual((result.status, said), (0, ""), result)


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
        """Returns every file except the log of the run; there must be no temporary file among
        them."""
        files = contents(self.dataset)
        return {name: files[name] for name in files if Path(name).name != "pack-log.json"}

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
            (["--delimiter", "%"], ["delimiter", "%"]),
            (["--invalid-utf8", "replace"], ["invalid.utf8", "error", "replace"]),
            (["--max-documents", "3"], ["max.documents", "3"]),
            (["--min-tokens", "3"], ["min.tokens", "0", "3"]),
            (["--shuffle", "3"], ["shuffle", "3"]),
            (["--holdout", "5%"], ["holdout"]),
            (["--limit", "5"], ["limit", "5"]),
            (["--compress", "zstd"], ["codec", "none", "zstd"]),
        ]:
            with self.subTest(other):
                result = bindery(*changed(self.arguments[:-1], *other), self.input)
                self.assert_refusal(result, *mentions)
                self.assertEqual(contents(self.dataset), before)

    def test_other_inputs_are_refused_with_the_difference_named(self) -> None:
        more = self.write("more.jsonl", b'{"text": "x"}\n')
        data = self.input.read_bytes()
        for is_finished in [True, False]:
            self.succeeds(*self.arguments)
            if not is_finished:
                (self.dataset / "manifest.json").unlink()
            before = contents(self.dataset)
            same = self.arguments
            for what, mention, change, arguments in [
                ("one more", r"more\.jsonl|inputs", data, [*same, more]),
                ("longer", r"corpus\.jsonl.*bytes", data + b'\n{"text": "x"}', same),
                ("changed", r"corpus\.jsonl.*edges", b'{"text": "#' + data[11:], same),
                ("other source", r"source.*web", data,
                 [*same[:-1], "--source", f"web={self.input}"]),
            ]:
                with self.subTest(what, is_finished=is_finished):
                    self.input.write_bytes(change)
                    self.assert_refusal(bindery(*arguments), str(self.dataset), mention)
                    self.input.write_bytes(data)
                    self.assertEqual(contents(self.dataset), before)
            self.succeeds(*self.arguments)

    def test_standard_input_must_be_the_same_again(self) -> None:
        """Input that differs from the existing shards is noticed before any shard is added."""
        arguments = [*self.arguments[:-1], "-"]
        data = self.input.read_bytes()
        self.succeeds(*arguments, input=data)
        whole = self.published()
        last = max(name for name in whole if name.endswith(".arrow"))
        lines = data.split(b"\n")
        for what, other, gone in [
            ("changed", b'{"text": "#' + data[11:], [last]),
            ("swapped", b"\n".join([lines[1], lines[0], *lines[2:]]), [last]),
            ("shorter", data[:2000], [last]),
            ("nothing", b"", [last]),
            ("longer", data + b'\n{"text": "x"}', []),
            # The order of threads varies, so it is tried several times.
            *[("much longer", data + b"\n" + data, [])] * 4,
        ]:
            with self.subTest(what):
                for name in ["manifest.json", *gone]:
                    (self.dataset / name).unlink(missing_ok=True)
                before = self.published()
                result = bindery(*arguments, input=other)
                self.assert_refusal(result, "'-'", r"slice \d+ differs")
                self.assertEqual(self.published(), before)
                self.succeeds(*arguments, input=data)
                self.assertEqual(self.published(), whole)

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

    def test_a_lost_holdout_is_packed_again(self) -> None:
        arguments = [*self.arguments[:-1], "--holdout", "30%", self.input]
        self.succeeds(*arguments)
        whole = self.published()
        held_out = sorted(name for name in whole if name.startswith("holdout/"))
        self.assertGreater(len(held_out), 10)
        for gone in [held_out, held_out[::2], ["holdout/plan.json"]]:
            with self.subTest(gone[0], n=len(gone)):
                for name in ["manifest.json", *gone]:
                    (self.dataset / name).unlink()
                self.succeeds(*arguments)
                self.assertEqual(self.published(), whole)

    def test_an_unfinished_dataset_is_not_continued_with_other_options(self) -> None:
        self.succeeds(*self.arguments)
        (self.dataset / "manifest.json").unlink()
        before = contents(self.dataset)
        result = bindery(*changed(self.arguments[:-1], "--seq-len", "65"), self.input)
        self.assert_refusal(result, "seq.len", "64", "65")
        self.assertEqual(contents(self.dataset), before)

    def test_an_unfinished_dataset_is_not_used(self) -> None:
        self.succeeds(*self.arguments)
        (self.dataset / "manifest.json").unlink()
        for command in [("inspect",), ("inspect", "--scan"), ("verify",)]:
            self.assert_refusal(bindery(*command, self.dataset), "manifest|unfinished")


class PackedAgain(Refusals):
    """Requests that `repack` and `export` refuse."""

    def setUp(self) -> None:
        super().setUp()
        lines = json_lines([f"document {i} " * (i % 9) for i in range(60)])
        self.input = self.write("corpus.jsonl", b"\n".join(lines))
        self.dataset = self.packed("dataset")

    def packed(self, name: str, *options: str) -> Path:
        given = ("--seq-len", "32", "--unit-size", "1000", *options)
        return self.pack(self.folder / name, [self.input], *given)

    def assert_again_refused(self, command: str, dataset: Path, *mentions: str,
                             options: tuple = ()) -> None:
        output = Path(tempfile.mkdtemp(dir=self.folder), "output")
        result = bindery(command, "-q", "-o", output, *options, dataset)
        self.assert_refusal(result, *mentions)
        self.assert_unfinished(output)
        self.assertEqual(list(output.rglob("export.json")), [])

    def test_a_folder_that_is_no_dataset_is_refused(self) -> None:
        empty = self.folder / "empty"
        empty.mkdir()
        for command in ["repack", "export"]:
            for dataset in [empty, self.folder / "absent", self.input]:
                with self.subTest(command, dataset=dataset.name):
                    self.assert_again_refused(command, dataset, dataset.name)

    def test_an_unfinished_dataset_is_refused(self) -> None:
        (self.dataset / "manifest.json").unlink()
        for command in ["repack", "export"]:
            self.assert_again_refused(command, self.dataset, "dataset", "manifest|unfinished")

    def test_a_damaged_dataset_is_refused(self) -> None:
        shard = sorted(self.dataset.glob("*.arrow"))[1]
        whole = shard.read_bytes()
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        for data in [bytes(damaged), whole[:-1], b""]:
            shard.write_bytes(data)
            for command in ["repack", "export"]:
                with self.subTest(command, size=len(data)):
                    self.assert_again_refused(command, self.dataset, shard.name)

    def test_a_dataset_is_not_replaced_by_what_is_made_of_it(self) -> None:
        """A dataset that contains the source as its holdout is not replaced either."""
        both = self.packed("both", "--holdout", "40%")
        (self.folder / "link").symlink_to(both)
        before = contents(both)
        for command in ["repack", "export"]:
            for source, output in [
                (both, both), (both, self.folder / "link"), (both, f"{both}/../both/"),
                (both / "holdout", both),
            ]:
                with self.subTest(command, source=source, output=output):
                    result = bindery(command, "-q", "--overwrite", "-o", output, source)
                    changed = contents(both) != before
                    if changed:
                        shutil.rmtree(both)
                        self.packed("both", "--holdout", "40%")
                        before = contents(both)
                    self.assertFalse(changed, result)
                    self.assert_refusal(result, "both|link")

    def test_lost_tokens_cannot_be_packed_again(self) -> None:
        truncated = self.packed("truncated", "--long", "truncate")
        for options in [(), ("--long", "split"), ("--long", "truncate")]:
            self.assert_again_refused("repack", truncated, "truncated", options=options)
        dropped = self.packed("dropped", "--long", "drop")
        for options in [("--long", "split"), ("--long", "truncate")]:
            self.assert_again_refused("repack", dropped, "dropped", options=options)

    def test_an_impossible_option_is_refused(self) -> None:
        for command, option, words in [
            ("repack", "--seq-len", ["0", "1", "-5", "x", str(2**40)]),
            ("repack", "--strategy", ["nonsense"]),
            ("repack", "--long", ["nonsense"]),
            ("repack", "--max-documents", ["-1", "x"]),
            ("repack", "--shuffle", ["-1", "x", str(2**64)]),
            ("repack", "--compress", ["gzip"]),
            ("repack", "--threads", ["0", "x"]),
            ("export", "--format", ["csv"]),
            ("export", "--columns", ["nonsense", "", "labels,labels"]),
            ("export", "--threads", ["0", "x"]),
        ]:
            for word in words:
                with self.subTest(command, option=option, word=word):
                    self.assert_again_refused(
                        command, self.dataset, option, options=(option, word)
                    )

    def test_a_document_too_long_under_error_is_named(self) -> None:
        self.assert_again_refused(
            "repack", self.dataset, r"corpus\.jsonl|00000-0000\d", "longer than|too long",
            options=("--long", "error", "--seq-len", "16"),
        )

    def test_packing_again_is_not_continued_with_other_options(self) -> None:
        output = self.folder / "output"
        arguments = ["repack", "-q", "-o", output, "--seq-len", "64"]
        self.succeeds(*arguments, self.dataset)
        for is_finished in [True, False]:
            if not is_finished:
                (output / "manifest.json").unlink()
            before = contents(output)
            for other, mentions in [
                (["--seq-len", "65"], ["seq.len", "64", "65"]),
                (["--strategy", "concat"], ["strategy", "concat"]),
                (["--compress", "zstd"], ["codec", "zstd"]),
            ]:
                with self.subTest(other, is_finished=is_finished):
                    result = bindery(*changed(arguments, *other), self.dataset)
                    self.assert_refusal(result, *mentions)
                    self.assertEqual(contents(output), before)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
