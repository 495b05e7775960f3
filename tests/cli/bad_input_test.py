"""An input that cannot be read is refused; the message has its name, the place and the reason."""

import gzip
import os
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import program
from refusals import Refusals, json_lines

TOKENS = ("--vocab-size", "257", "--separator-id", "256")
PRESENT = (*TOKENS, "--separator", "present")


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def parquet(columns: dict) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def parquet_of_ids(lists: list[list[int]]) -> bytes:
    return parquet({"input_ids": pa.array(lists, pa.list_(pa.int64()))})


def llm_c(ids: list[int]) -> bytes:
    header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
    return header + struct.pack(f"<{len(ids)}H", *ids)


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
                place = "not UTF-8 at byte 1234 of the document"
                self.assert_pack_refused([path], r"latin\.txt", place)
                line = b'{"text": "' + bad + b'"}\n'
                path = self.write("latin.jsonl", b'{"text": "a"}\n' * 16 + line)
                for options in [(), ("--invalid-utf8", "keep")]:  # JSON cannot hold invalid UTF-8
                    self.assert_pack_refused(
                        [path], r"latin\.jsonl", "(?i)utf-?8", "line 17", options=options
                    )

    def test_a_lone_surrogate_is_named_with_its_line(self) -> None:
        for bad in [rb"\ud800", rb"\udc00", rb"\ud800\ud800", rb"\ud800x"]:
            with self.subTest(bad):
                path = self.write("lone.jsonl", b'{"text": "a"}\n{"text": "' + bad + b'"}\n')
                self.assert_pack_refused([path], r"lone\.jsonl", r"\b2\b")

    def test_a_corpus_without_documents_is_refused(self) -> None:
        blank = self.write("blank.jsonl", b"\n \n\r\n")
        empty = self.write("empty.jsonl", b"")
        for inputs, options in [([blank], ()), ([empty], ()), (["-"], ())]:
            with self.subTest(inputs, options=options):
                self.assert_pack_refused(inputs, "nothing to pack", options=options)

    def test_a_corpus_of_which_no_document_is_left_is_refused(self) -> None:
        path = self.write("short.jsonl", b"\n".join(json_lines(["a", "bb", "ccc"])))
        for options, why in [
            (("--min-tokens", "4"), "--min-tokens"),
            (("--long", "drop", "--seq-len", "2", "--min-tokens", "2"), "fits a row"),
            (("--holdout", "99.9999%"), "held out"),
        ]:
            with self.subTest(options):
                self.assert_pack_refused([path], "nothing to pack", why, options=options)

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
        lines = b"\n".join(json_lines(["a", "b", "x" * 2000]))
        for ending, data in [("gz", gzip.compress(lines)), ("zst", zstd(lines))]:
            path = self.write(f"big.jsonl.{ending}", data)
            self.assert_pack_refused(
                [path], rf"big\.jsonl\.{ending}", "line 3|byte 28", "1000", options=limit
            )
        path = self.write("big.parquet", parquet({"text": ["a", "x" * 2000]}))
        self.assert_pack_refused([path], r"big\.parquet", "row 1", "1000", options=limit)

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


class Names(Refusals):
    """Names of inputs that do not exist."""

    def test_a_folder_with_nothing_to_read_is_refused(self) -> None:
        for name in [None, ".hidden.txt", "picture.png"]:
            with self.subTest(name):
                folder = self.folder / f"corpus-{name}"
                folder.mkdir()
                if name is not None:
                    (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n\0")
                self.assert_pack_refused([folder], f"nothing to read in the folder .*{name}")

    def test_a_pattern_that_nothing_matches_is_refused(self) -> None:
        pattern = f"{self.folder}/no*.txt"
        self.assert_pack_refused([pattern], r"no\*\.txt", "nothing matches")

    def test_a_list_is_named_with_the_line(self) -> None:
        good = self.write("good.txt", b"text")
        listed = self.write("list", b"# first\n%b\n\nabsent.txt\n" % bytes(good))
        self.assert_pack_refused([f"@{listed}"], "list', line 4", r"absent\.txt", "No such")
        listed = self.write("list", b"%b\n@other\n" % bytes(good))
        self.assert_pack_refused([f"@{listed}"], "list', line 2", "other")
        listed = self.write("list", b"a\x00b\n")
        self.assert_pack_refused([f"@{listed}"], "list", "NUL")
        self.assert_pack_refused([f"@{self.folder}/absent"], "absent", "No such file")
        listed = self.write("list", b"# nothing\n\n")
        self.assert_pack_refused([f"@{listed}"], "no input")

    def test_a_source_without_a_name_or_an_input_is_refused(self) -> None:
        good = self.write("good.txt", b"text")
        for bad in [f"{good}", f"={good}", "web=", ""]:
            with self.subTest(bad):
                self.assert_pack_refused(["--source", bad], "--source", "NAME=INPUT")

    def test_standard_input_is_read_only_once(self) -> None:
        for inputs in [["-", "-"], ["-", "--source", "web=-"]]:
            self.assert_pack_refused(inputs, "standard input", "once", input=b'{"text": "a"}\n')


class Compressed(Refusals):
    def setUp(self) -> None:
        super().setUp()
        self.lines = b"\n".join(json_lines([f"line {i}" for i in range(2000)]))

    def test_a_file_that_is_cut_short_is_refused(self) -> None:
        for ending, data in [("gz", gzip.compress(self.lines)), ("zst", zstd(self.lines))]:
            for size in [20, len(data) // 2, len(data) - 1]:
                for options in [(), ("--unit-size", "1000")]:
                    with self.subTest(ending, size=size, options=options):
                        path = self.write(f"cut.jsonl.{ending}", data[:size])
                        name = rf"cut\.jsonl\.{ending}'"
                        self.assert_pack_refused([path], name, "cut short", options=options)

    def test_a_damaged_file_is_refused(self) -> None:
        """Damage in the middle, and in the checksum at the end."""
        for ending, data in [("gz", gzip.compress(self.lines)), ("zst", self.checked_frame())]:
            for place in [len(data) // 2, len(data) - (6 if ending == "gz" else 2)]:
                for options in [(), ("--unit-size", "1000")]:
                    with self.subTest(ending, place=place, options=options):
                        damaged = bytearray(data)
                        damaged[place] ^= 0x55
                        path = self.write(f"bad.jsonl.{ending}", damaged)
                        name = rf"bad\.jsonl\.{ending}'"
                        self.assert_pack_refused([path], name, options=options)

    def checked_frame(self) -> bytes:
        """Makes a frame of raw blocks with a checksum, which no library here writes."""
        blocks = [self.lines[i : i + 100_000] for i in range(0, len(self.lines), 100_000)]
        frame = struct.pack("<IBB", 0xFD2FB528, 0x04, 0x48)  # asks for a window of 512 KiB
        for n, block in enumerate(blocks, 1):
            header = len(block) << 3 | (n == len(blocks))
            frame += header.to_bytes(3, "little") + block
        digest = xxhash.xxh64_intdigest(self.lines) & 0xFFFFFFFF
        return frame + struct.pack("<I", digest)

    def test_the_frame_is_good_until_it_is_damaged(self) -> None:
        path = self.write("good.jsonl.zst", self.checked_frame())
        self.pack(self.folder / "dataset", [path], "--seq-len", 64)

    def test_bytes_after_the_end_are_refused(self) -> None:
        for ending, data in [("gz", gzip.compress(self.lines)), ("zst", zstd(self.lines))]:
            with self.subTest(ending):
                path = self.write(f"more.jsonl.{ending}", data + b"junk")
                self.assert_pack_refused([path], rf"more\.jsonl\.{ending}'")

    def test_a_compressed_table_is_refused(self) -> None:
        data = parquet({"text": ["a"]})
        for ending, compressed in [("gz", gzip.compress(data)), ("zst", zstd(data))]:
            path = self.write(f"x.parquet.{ending}", compressed)
            self.assert_pack_refused([path], rf"x\.parquet\.{ending}'", "compressed")


class Tables(Refusals):
    def test_a_corrupt_table_is_refused(self) -> None:
        data = parquet({"text": ["some text", "more"] * 100})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, pa.schema({"text": pa.string()})) as file:
            file.write_table(pa.table({"text": ["some text", "more"] * 100}))
        arrow = sink.getvalue().to_pybytes()
        for name, bad in {
            "head.parquet": data[:4] + b"\xff" * 40 + data[44:],
            "cut.parquet": data[:-20],
            "length.parquet": data[:-8] + b"\xff\xff\xff\x7fPAR1",
            "magic.parquet": b"PAR1",
            "cut.arrow": arrow[:-20],
            "magic.arrow": arrow[:8],
            "length.arrow": arrow[:-10] + b"\xff\xff\xff\x7fARROW1",
        }.items():
            with self.subTest(name):
                path = self.write(name, bad)
                self.assert_pack_refused([path], name.replace(".", r"\.") + "'")

    def test_a_row_without_text_is_named(self) -> None:
        path = self.write("null.parquet", parquet({"text": ["a", "b", None, "d"]}))
        self.assert_pack_refused([path], r"null\.parquet", "row 2", "no value")

    def test_a_missing_column_is_named_with_those_that_are_there(self) -> None:
        path = self.write("other.parquet", parquet({"body": ["a"], "n": [1]}))
        self.assert_pack_refused([path], r"other\.parquet", "'text'", "'body', 'n'")
        self.assert_pack_refused(
            [path], r"other\.parquet", "'n'", "int64", options=("--text-field", "n")
        )


class Tokens(Refusals):
    def write_megatron(self, name: str, lists: list[list[int]], letter: str, code: int) -> Path:
        lengths, width = [*map(len, lists)], struct.calcsize(letter)
        n = len(lists)
        pointers = [sum(lengths[:i]) * width for i in range(n)]
        index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, n, n + 1)
        index += struct.pack(f"<{n}i{n}q", *lengths, *pointers)
        self.write(f"{name}.idx", index + struct.pack(f"<{n + 1}q", *range(n + 1)))
        ids = [token for ids in lists for token in ids]
        return self.write(f"{name}.bin", struct.pack(f"<{len(ids)}{letter}", *ids))

    def test_an_id_beyond_the_vocabulary_is_named_with_its_place(self) -> None:
        huge = [[1, 2], [3, 257]]
        for path, mentions in [
            (self.write("a.parquet", parquet_of_ids(huge)), ["row 1", "token 1", "257"]),
            (self.write("b.parquet", parquet_of_ids([[2**40]])), ["row 0", str(2**40)]),
            (self.write("c.bin", llm_c([256, 1, 256, 2, 257])), ["token 2", "257"]),
            (self.write_megatron("d", huge, "H", 8), ["document 1", "token 1", "257"]),
            (self.write_megatron("e", [[2**31 - 1]], "i", 4), ["document 0", str(2**31 - 1)]),
        ]:
            with self.subTest(path.name):
                self.assert_pack_refused([path], path.name, *mentions, options=TOKENS)

    def test_a_negative_id_is_named_with_its_place(self) -> None:
        lists = [[1, 2], [3, -1]]
        for path, place in [
            (self.write("a.parquet", parquet_of_ids(lists)), "row 1"),
            (self.write_megatron("b", lists, "h", 3), "document 1"),
            (self.write_megatron("c", lists, "i", 4), "document 1"),
            (self.write_megatron("d", lists, "q", 5), "document 1"),
        ]:
            with self.subTest(path.name):
                told = self.assert_pack_refused([path], path.name, place, options=TOKENS)
                self.assertEqual(told.stderr.count(path.name), 1, told)

    def test_a_document_without_its_separator_is_named(self) -> None:
        lists = [[1, 256], [2]]
        for path, place in [
            (self.write("a.parquet", parquet_of_ids(lists)), "row 1"),
            (self.write("b.parquet", parquet_of_ids([[256], []])), "row 1"),
            (self.write_megatron("c", lists, "H", 8), "document 1"),
        ]:
            with self.subTest(path.name):
                self.assert_pack_refused(
                    [path], path.name, place, "separator 256", options=PRESENT
                )

    def test_text_is_not_taken_for_ids(self) -> None:
        path = self.write("a.txt", b"text")
        self.assert_pack_refused([path], r"a\.txt", "text", "--vocab-size", options=TOKENS)
        self.assert_pack_refused(
            [path], "--separator present", r"a\.txt", options=("--separator", "present")
        )


if __name__ == "__main__":
    program.main()
