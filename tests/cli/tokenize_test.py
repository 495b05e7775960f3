"""`bindery tokenize` with built-in tokenizers: ids, text from ids, and refusals."""

import gzip
import os
import random
import subprocess
from pathlib import Path

import program
from program import ProgramTest, bindery

SEED = 8


class Tokenize(ProgramTest):
    def file(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def refused(self, *arguments: object, **popen: object) -> str:
        """Expects exit 2 and no output; returns the message."""
        result = bindery("tokenize", *arguments, **popen)
        self.assertEqual(result.status, 2, result)
        self.assertRegex(result.stderr, r"^bindery tokenize: ")
        return result.stderr

    # ---- Ids ---------------------------------------------------------------------------------

    def test_every_file_is_a_document_and_a_line_of_ids(self) -> None:
        files = [self.file("a", b"a\nb"), self.file("b", b""), self.file("c", b"\xff\x00")]
        result = self.succeeds("tokenize", *files)
        self.assertEqual(result.stdout, "97 10 98\n\n255 0\n")

    def test_standard_input_is_read_by_name_and_without_one(self) -> None:
        for operands in ([], ["-"]):
            result = self.succeeds("tokenize", *operands, input=b"hi")
            self.assertEqual(result.stdout, "104 105\n")

    def test_every_line_is_a_document_with_lines(self) -> None:
        for text, expected in [(b"a\n\nbc", "97\n\n98 99\n"), (b"a\n", "97\n"), (b"", ""),
                               (b"\n", "\n"), (b"a\r\n", "97 13\n")]:
            self.assertEqual(self.succeeds("tokenize", "--lines", input=text).stdout, expected)

    def test_lines_longer_than_what_is_read_at_once_stay_whole(self) -> None:
        lengths = [1 << 20, (1 << 20) - 1, (1 << 20) + 1, 0, 3_000_000, 1]
        path = self.file("lines", b"".join(b"x" * n + b"\n" for n in lengths))
        found = self.succeeds("tokenize", "--lines", path).stdout.split("\n")[:-1]
        self.assertEqual([len(line.split()) for line in found], lengths)
        self.assertTrue(all(set(line.split()) <= {"120"} for line in found))

    def test_a_field_of_json_records_is_the_text(self) -> None:
        lines = b'{"text": "a\\u0000"}\n\n{"id": 1, "text": ""}\n{"text": "\\u00e9"}'
        result = self.succeeds("tokenize", "--text-field", "text", input=lines)
        self.assertEqual(result.stdout, "97 0\n\n195 169\n")
        said = self.refused("--text-field", "text", input=b'{"text": "a"}\n{"other": 1}\n')
        self.assertIn("line 2", said)

    def test_compressed_files_are_decompressed(self) -> None:
        path = self.file("a.gz", gzip.compress(b"ab"))
        self.assertEqual(self.succeeds("tokenize", path).stdout, "97 98\n")

    def test_raw_ids_are_little_endian(self) -> None:
        path = self.file("a", b"a\xff")
        for form, expected in [("u16", b"a\x00\xff\x00"), ("u32", b"a\0\0\0\xff\0\0\0")]:
            out = self.folder / form
            with open(out, "wb") as file:
                self.succeeds("tokenize", "--format", form, path, stdout=file)
            self.assertEqual(out.read_bytes(), expected)
        said = self.refused("--tokenizer", "ids:65537", "--format", "u16", path)
        self.assertIn("65537", said)
        self.succeeds("tokenize", "--tokenizer", "ids:65536", "--format", "u16", path)

    # ---- Text from ids -----------------------------------------------------------------------

    def test_any_bytes_come_back_in_every_format(self) -> None:
        data = random.Random(SEED).randbytes(70_001)
        path = self.file("data", data)
        for form in ("text", "u16", "u32"):
            ids, back = self.folder / "ids", self.folder / "back"
            with open(ids, "wb") as file:
                self.succeeds("tokenize", "--format", form, path, stdout=file)
            with open(back, "wb") as file:
                self.succeeds("tokenize", "--decode", "--format", form, ids, stdout=file)
            self.assertEqual(back.read_bytes(), data, form)

    def test_lines_come_back_as_lines(self) -> None:
        ids = self.succeeds("tokenize", "--lines", input=b"one\n\ntwo").stdout
        result = self.succeeds("tokenize", "-d", "-l", input=ids.encode())
        self.assertEqual(result.stdout, "one\n\ntwo\n")

    def test_an_invalid_id_is_named_with_its_place(self) -> None:
        for ids, place in [(b"97 257", "257"), (b"97 x", "byte 3"), (b"-1", "byte 0"),
                           (b"99999999999999999999999", "is not an id"), (b"1,2", "byte 1"),
                           (b"97 4294967393", "is not an id")]:  # 2^32 + 97
            self.assertIn(place, self.refused("--decode", input=ids))
        self.assertIn("ends within", self.refused("-d", "--format", "u32", input=b"a\0\0"))
        self.assertIn("258", self.refused("-d", "--format", "u16", input=b"\x02\x01"))

    def test_the_separator_has_no_text(self) -> None:
        result = self.succeeds("tokenize", "--decode", input=b"97 256 98")
        self.assertEqual(result.stdout, "ab")

    # ---- Counting ----------------------------------------------------------------------------

    def test_counts_are_of_each_file_and_of_all(self) -> None:
        files = [self.file("a", b"x" * 31), self.file("b", b"x\ny\n")]
        lines = self.succeeds("tokenize", "--count", *files).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["31", "4", "35"])
        self.assertIn("1.0000 tokens per byte, 2 documents: total", lines[2])
        alone = self.succeeds("tokenize", "-c", "-l", files[1]).stdout
        self.assertIn("2 tokens, 2 bytes, 1.0000 tokens per byte, 2 documents: ", alone)
        empty = self.succeeds("tokenize", "-c", input=b"").stdout
        self.assertEqual(empty, "0 tokens, 0 bytes, 1 document: -\n")

    # ---- Refusals and pipes ------------------------------------------------------------------

    def test_impossible_requests_are_refused(self) -> None:
        path = self.file("a", b"four")
        self.assertIn("nowhere", self.refused(self.folder / "nowhere"))
        self.assertIn("'gpt5'", self.refused("--tokenizer", "gpt5", path))
        self.assertIn("larger than 3", self.refused("--max-document-bytes", 3, path))
        self.assertIn("a line", self.refused("--lines", "--max-document-bytes", 3, path))
        self.succeeds("tokenize", "--max-document-bytes", 4, path)
        for clash in (["-c"], ["--text-field", "x"], ["-l", "--format", "u16"], ["--ordinary"]):
            self.assertIn("--help", self.refused("-d", *clash, path))

    def test_a_closed_pipe_is_no_error_and_a_full_disk_is(self) -> None:
        path = self.file("long", b"word " * 2_000_000)
        command = f"'{program.program()}' tokenize --lines | head -c 1 >/dev/null"
        run = subprocess.run(["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
                             input=b"line\n" * 1_000_000, capture_output=True, timeout=60)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as full:
                result = bindery("tokenize", path, stdout=full)
            self.assertEqual(result.status, 2)
            self.assertIn("cannot write", result.stderr)


if __name__ == "__main__":
    program.main()
