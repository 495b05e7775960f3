"""Folders as users have them: together, the files that were read and those that were passed over
(with the reason) are all files, in the output and in the manifest; every file is read once; an
input may have options of its own. Python lists the folder for comparison."""

import bz2
import gzip
import json
import lzma
import os
import random
import re
from pathlib import Path

import program
from corpus_files import FORMATS
from dataset_checker import check_dataset, rebuild_documents
from program import bindery
from reference_packer import SEPARATOR, VOCAB_SIZE
from refusals import Refusals

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
ELF = b"\x7fELF\2\1\1\0" + bytes(100)
RECORDS = b"".join(json.dumps({"text": f"record {i}", "url": "x"}).encode() + b"\n"
                   for i in range(40))

# For each tree: a path, its content, and why it is passed over (None: it is read).
SOURCES = {
    "Makefile": (b"all:\n\tcc main.c\n" * 9, None),
    "README.md": (b"[a link](elsewhere)\n" * 9, None),
    "LICENSE": (b"Permission is granted\n" * 9, None),
    "src/main.c": (b"{ not json }\nint main(void) { return 0; }\n" * 200, None),
    "src/__init__.py": (b"", None),
    "src/\xe9t\xe9.py".encode().decode(): ("print('été')\n".encode() * 9, None),
    "src/latin1.py": ("print('été')\n".encode("latin-1"), "not UTF-8"),
    "package.json": (b'{\n  "name": "x"\n}\n', "JSON over several lines"),
    "src/one.json": (b'{"name": "x"}\n', "JSON without its text"),
    "src/min.js.map": (b'{"sources": ["%s"]}' % (b"x" * 5000), "JSON without its text"),
    "src/list.json": (b"[1, 2]\n", "JSON without its text"),
    "src/table.csv": (b"a,b\n1,2\n", "CSV without its text"),
    "docs/a.png": (PNG, "image"),
    "docs/paper.pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "PDF"),
    "bin/tool": (ELF, "program"),
    "src/main.pyc": (b"\xa7\r\r\n" + bytes(12), "binary"),
    ".git/objects/ab/cdef": (b"x\x9c\0" * 30, "hidden"),
    ".gitignore": (b"*.o\n", "hidden"),
}
C4 = {
    "README.txt": (b"What this is\n", None),
    **{f"en/c4-train.{i:05}-of-01024.json.gz": (gzip.compress(RECORDS), None) for i in range(3)},
    "en/plain.json": (RECORDS, None),
    "en/lines": (RECORDS, None),
}
MAN_PAGES = {
    f"man{section}/page-{i}.{section}.gz":
        (gzip.compress(f'.TH PAGE "{section}"\n.SH NAME\npage {i}\n'.encode()), None)
    for section in (1, 8) for i in range(5)
}
REFUSED = {
    "a.jsonl": (RECORDS, None),
    "b.jsonl.bz2": (bz2.compress(RECORDS), None),
    "c.jsonl.xz": (lzma.compress(RECORDS), None),
    "d.csv": (b"text\nhello\n", None),
    "e.tsv.gz": (gzip.compress(b"id\ttext\n1\thello\n"), None),
    "g.json": (b'[{"text": "a"},\n"b"]', None),
    "f.csv": (b"content\nhello\n", "CSV without its text"),
}
TREES = {"sources": SOURCES, "c4": C4, "man": MAN_PAGES, "refused": REFUSED}


def documents(dataset: Path) -> list[bytes]:
    """Returns the documents' texts, sorted; the tokenizer is `bytes`."""
    return sorted(bytes(ids[:-1]) for ids in rebuild_documents(dataset).values())


def manifest_of(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_bytes())


def passed_over(dataset: Path) -> dict[str, tuple[int, int, str]]:
    listed = manifest_of(dataset)["passed_over"]
    return {kind["reason"]: (kind["files"], kind["bytes"], kind["first"]) for kind in listed}


def printed(text: str) -> dict[str, int]:
    """Returns the table of files that were passed over: reason -> files."""
    lines = text.partition("Passed over ")[2].splitlines()[1:]
    found = {}
    for line in lines:
        match = re.fullmatch(r"  (.{25}) +([0-9,]+) +[0-9.]+ [KMG]?i?B  \S.*", line)
        if not match:
            break
        found[match[1].strip()] = int(match[2].replace(",", ""))
    return found


class Folders(Refusals):
    def write_tree(self, name: str, tree: dict[str, tuple[bytes, str | None]]) -> Path:
        folder = self.folder / name
        for path, (content, _) in tree.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder

    def assert_adds_up(self, dataset: Path, folder: Path) -> None:
        """The files and bytes that were read or passed over are those that a walk finds. A link to
        a folder counts as one file without bytes."""
        n_files = n_bytes = 0
        for place, folders, files in os.walk(folder):
            for path in [*(Path(place, name) for name in files),
                         *(Path(place, name) for name in folders if Path(place, name).is_symlink())]:
                n_files += 1
                n_bytes += path.stat().st_size if path.is_file() else 0
        manifest = manifest_of(dataset)
        passed = manifest["passed_over"]
        self.assertEqual(
            len(manifest["inputs"]) + sum(kind["files"] for kind in passed), n_files)
        self.assertEqual(sum(item["bytes"] for item in manifest["inputs"] + passed), n_bytes)

    def test_read_and_passed_over_files_are_all_files(self) -> None:
        for name, tree in TREES.items():
            with self.subTest(name):
                folder = self.write_tree(name, tree)
                dataset = self.folder / f"{name}-dataset"
                result = self.succeeds("pack", "-o", dataset, folder)
                self.assertEqual(check_dataset(dataset), [])
                self.assert_adds_up(dataset, folder)
                taken = sorted(item["name"] for item in manifest_of(dataset)["inputs"])
                self.assertEqual(
                    taken, sorted(f"{name}/{path}" for path in tree if tree[path][1] is None))
                expected: dict[str, list[str]] = {}
                for path in sorted(tree, key=lambda path: path.encode().split(b"/")):
                    if tree[path][1]:
                        expected.setdefault(tree[path][1], []).append(path)
                self.assertEqual(passed_over(dataset), {
                    reason: (len(paths), sum(len(tree[path][0]) for path in paths),
                             f"{name}/{paths[0]}")
                    for reason, paths in expected.items()
                })
                counts = {reason: len(paths) for reason, paths in expected.items()}
                self.assertEqual(printed(result.stderr), counts)
                self.assertEqual(printed(self.succeeds("inspect", dataset).stdout), counts)
                self.assertEqual(
                    json.loads(self.succeeds("inspect", "--json", dataset).stdout)["passed_over"],
                    manifest_of(dataset)["passed_over"])
                self.succeeds("verify", dataset, "--against", folder)
                planned = self.succeeds("pack", "-n", "-o", self.folder / "none", folder)
                self.assertEqual(printed(planned.stdout), counts)
                quiet = self.succeeds("pack", "-q", "-o", self.folder / f"{name}-quiet", folder)
                self.assertEqual(quiet.stderr.count("\n"), 1 if counts else 0)
                for reason, n in counts.items():
                    self.assertIn(f"{n} {reason}", quiet.stderr)

    def test_records_are_found_whatever_the_ending(self) -> None:
        folder = self.write_tree("c4", C4)
        dataset = self.pack(self.folder / "dataset", [folder])
        texts = [json.loads(line)["text"].encode() for line in RECORDS.splitlines()]
        self.assertEqual(documents(dataset), sorted(5 * texts + [b"What this is\n"]))

    def test_the_number_of_threads_changes_nothing(self) -> None:
        folder = self.write_tree("sources", SOURCES)
        manifests = {
            self.pack(self.folder / f"with-{n}", [folder], "--threads", n)
            .joinpath("manifest.json").read_bytes()
            for n in (1, 2, 5)
        }
        self.assertEqual(len(manifests), 1)

    def test_links_are_followed_once(self) -> None:
        folder = self.write_tree("links", {"a/one.txt": (b"one", None), "two.txt": (b"two", None)})
        outside = self.write_tree("outside", {"three.txt": (b"three", None)})
        (folder / "a/again.txt").symlink_to("../two.txt")
        (folder / "b").symlink_to("a")
        (folder / "a/up").symlink_to("..")
        (folder / "dangling").symlink_to("nowhere")
        (folder / "self").symlink_to("self")
        os.link(folder / "a/one.txt", folder / "hard.txt")
        os.mkfifo(folder / "pipe")
        dataset = self.pack(self.folder / "dataset", [folder])
        self.assertEqual(documents(dataset), [b"one", b"two"])
        self.assert_adds_up(dataset, folder)
        self.assertEqual(passed_over(dataset), {
            "met before": (4, 6, "links/a/up"),
            "dangling link": (2, 0, "links/dangling"),
            "not a regular file": (1, 0, "links/pipe"),
        })
        (folder / "c").symlink_to(outside)
        dataset = self.pack(self.folder / "with-outside", [folder])
        self.assertEqual(documents(dataset), [b"one", b"three", b"two"])
        self.succeeds("verify", dataset, "--against", folder)

    def test_a_file_given_twice_is_read_once(self) -> None:
        folder = self.write_tree("data", {"a.jsonl": (RECORDS, None), "b.txt": (b"b", None)})
        n = len(RECORDS.splitlines())
        link = self.folder / "link.jsonl"
        link.symlink_to(folder / "a.jsonl")
        for i, inputs in enumerate([[folder, folder / "a.jsonl"], [folder, folder],
                                    [folder, link], [folder / "b.txt", link, folder]]):
            with self.subTest(i):
                dataset = self.pack(self.folder / f"dataset-{i}", inputs)
                self.assertEqual(len(documents(dataset)), n + 1)
                self.assertEqual([*passed_over(dataset)], ["met before"])
        self.assert_pack_refused([folder, "--source", f"web={link}"], "given twice",
                                 "source 'web'", "'default'")
        self.assert_pack_refused([], "given twice, with different options", options=(
            "--source", f"web={folder}", "--source", f"web={link},text-field=url"))

    def test_an_index_beside_its_partner_is_no_input(self) -> None:
        rng = random.Random(1)
        texts = [f"document {i}".encode() for i in range(100)]
        options = ["--vocab-size", VOCAB_SIZE, "--separator-id", SEPARATOR]
        for kind in ["megatron, append", "datatrove, append", "dolma, append"]:
            folder = self.folder / kind.split(",")[0]
            folder.mkdir()
            [item] = FORMATS[kind].write(rng, texts)
            for name, content in item.stored.items():
                (folder / name).write_bytes(content)
                if name.endswith(".index"):
                    (folder / name).with_suffix(".metadata").write_bytes(b"gpt2|2\n100\n")
            listed = self.write(f"{folder.name}.list",
                                "".join(f"{path}\n" for path in folder.iterdir()).encode())
            ways = [sorted(folder.iterdir()), sorted(folder.iterdir(), reverse=True),
                    [f"{folder}/*"], [f"@{listed}"], [folder]]
            for i, inputs in enumerate(ways):
                with self.subTest(kind, way=i):
                    dataset = self.pack(self.folder / f"{folder.name}-{i}", inputs, *options)
                    self.assertEqual(documents(dataset), sorted(texts))
                    self.assertEqual([*passed_over(dataset)], ["index of another input"])
                    against = [word for path in inputs for word in ("--against", path)]
                    self.succeeds("verify", dataset, *against)
            for path in folder.glob("*.index"):
                path.with_suffix(".loss").write_bytes(b"\1")
                self.assert_pack_refused([folder], r"\.loss' beside it says which tokens",
                                         options=options)

    def test_a_file_that_is_damaged_is_an_error_with_advice(self) -> None:
        folder = self.folder / "sources"
        folder.mkdir()
        (folder / "a.txt").write_bytes(b"text")
        (folder / "b.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 100)
        self.assert_pack_refused([folder], r"b\.zst'", "; --exclude passes over files of folders")
        dataset = self.pack(self.folder / "dataset", [folder], "--exclude", "*.zst")
        self.assertEqual([*passed_over(dataset)], ["excluded"])

    def test_a_named_file_that_cannot_be_read_is_refused_with_advice(self) -> None:
        for name, (content, reason) in {**SOURCES, **REFUSED}.items():
            if reason in (None, "hidden", "JSON without its text", "CSV without its text"):
                continue
            with self.subTest(name):
                path = self.write(Path(name).name, content)
                self.assert_pack_refused([path], re.escape(f"{path.name}': {reason}; "))
        text = self.write("a.txt", b"\xff\xff\xff\xfftext that is no stream of Arrow's")
        self.assertNotIn("Arrow", self.assert_pack_refused([text], "not UTF-8").stderr)

    def test_more_than_half_of_a_folder_is_an_error(self) -> None:
        folder = self.write_tree("most", {
            "a.txt": (b"x" * 100, None), "b.zip": (b"PK\3\4" + os.urandom(200), "zip archive"),
            ".cache/c": (bytes(9999), "hidden")})
        self.assert_pack_refused([folder], "more than half", "zip archive: 1 file", "--allow-skipped")
        self.assertEqual(bindery("pack", "-n", "-o", self.folder / "o", folder).status, 2)
        self.assertEqual(bindery("plan", folder).status, 2)
        self.assert_adds_up(self.pack(self.folder / "o", [folder], "--allow-skipped"), folder)
        dataset = self.pack(self.folder / "p", [folder], "--exclude", "*.zip")
        self.assertEqual([*passed_over(dataset)], ["hidden", "excluded"])

    def test_patterns_choose(self) -> None:
        folder = self.write_tree("sources", SOURCES)
        dataset = self.pack(self.folder / "dataset", [folder], "--include", "*.py", "--include",
                            "*.md", "--exclude", "latin1.*")
        self.assertEqual([item["name"] for item in manifest_of(dataset)["inputs"]],
                         ["sources/README.md", "sources/src/__init__.py", "sources/src/été.py"])
        self.assertEqual([*passed_over(dataset)], ["hidden", "not included", "excluded"])
        self.assert_adds_up(dataset, folder)

    def test_repack_keeps_what_was_passed_over(self) -> None:
        dataset = self.pack(self.folder / "dataset", [self.write_tree("refused", REFUSED)])
        other = self.folder / "other"
        self.succeeds("repack", "-q", dataset, "-o", other, "--seq-len", 64)
        self.assertEqual(passed_over(other), passed_over(dataset))


class OwnOptions(Refusals):
    def test_an_input_may_have_options_of_its_own(self) -> None:
        lines = b'{"content": "one"}\n{"content": "two"}\n'
        web = self.write("web,with=commas", lines)
        fortunes = self.write("fortunes", b"three\n%\nfour\n")
        code = self.write("code.jsonl", b'{"content": 0}')
        usual = self.write("usual.jsonl", b'{"text": "five"}\n')
        arguments = [usual, "--source", f"web={web},text-field=content", "--source",
                     f"fortunes={fortunes},delimiter=%", "--source", f"code={code},format=text"]
        dataset = self.pack(self.folder / "dataset", arguments)
        self.assertEqual(documents(dataset),
                         sorted([b"one", b"two", b"three", b"four", b"five",
                                 b'{"content": 0}']))
        plan = json.loads((dataset / "plan.json").read_bytes())
        self.assertEqual([item.get("text_field") for item in plan["inputs"]],
                         [None, "content", None, None])
        self.assertEqual([item.get("delimiter") for item in plan["inputs"]],
                         [None, None, "%", None])
        against = self.succeeds("verify", dataset, "--against", self.folder)
        self.assertIn("6 documents compared", against.stdout)
        found = self.succeeds("locate", dataset, "--find", "four", "--corpus", self.folder)
        self.assertIn("fortunes", found.stdout)
        self.succeeds("plan", *arguments)
        self.assertIn("finished already", self.succeeds("pack", "-o", dataset, *arguments).stderr)
        arguments[2] = f"web={web},text-field=contents"
        self.assert_refusal(bindery("pack", "-q", "-o", dataset, *arguments), "text_field",
                            "another plan")

    def test_an_option_that_all_inputs_have_is_common(self) -> None:
        path = self.write("a.jsonl", b'{"content": "one"}\n')
        plans = {
            self.pack(self.folder / f"dataset-{i}", ["--source", f"web={path}{own}"],
                      "--text-field", "content").joinpath("plan.json").read_bytes()
            for i, own in enumerate(["", ",text-field=content", ",format=jsonl"])
        }
        self.assertEqual(len(plans), 1)

    def test_unknown_options_of_an_input_are_refused(self) -> None:
        path = self.write("a.jsonl", RECORDS)
        for own, said in {",format=xml": "'xml' is not a format", ",text=x": "text-field",
                          ",format=text,format=text": "format twice",
                          ",delimiter=a\nb": "newline"}.items():
            with self.subTest(own):
                self.assert_pack_refused(["--source", f"web={path}{own}"], said)
        self.assert_pack_refused(["--source", "web=,format=text"], "is not NAME=INPUT")


if __name__ == "__main__":
    program.main()
