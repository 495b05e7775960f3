"""The interpreter alone: small programs whose results are known from the PTX ISA."""

import unittest

import numpy as np

from conversions import from_bf16, to_bf16
from machine import ORDERS, Launch, Program, Settings
from memory import Memory
from ptx_text import PtxError, parse_module

MODULE = """
.file 1 "/where/..//it/is/sample.cu"
.version 9.0
.target sm_80
.address_size 64
.entry sample(.param .u64 sample_param_0, .param .u64 sample_param_1)
{{
    .reg .pred %p<9>;
    .reg .b16 %rs<9>;
    .reg .b32 %r<40>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<9>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd1, [sample_param_0];
    ld.param.u64 %rd2, [sample_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, {stride};
    add.s64 %rd1, %rd1, %rd3;  // this thread's input
    shl.b32 %r2, %r1, 2;
    cvt.u64.u32 %rd4, %r2;
    add.s64 %rd2, %rd2, %rd4;  // this thread's word of the first output
    {body}
    ret;
}}
"""


def run_sample(body, inputs=None, n_outputs=1, n_threads=32, settings=Settings()):
    """Runs the body by one block; its outputs are words at %rd2 + i * 4 * n_threads. Inputs are
    words, one row for each thread."""
    inputs = np.zeros((n_threads, 1)) if inputs is None else inputs
    words = np.ascontiguousarray(inputs).view(np.uint32).reshape(n_threads, -1)
    memory = Memory()
    source, to = memory.put(words), memory.allocate(4 * n_threads * n_outputs)
    kernel = parse_module(MODULE.format(body=body, stride=4 * words.shape[1]))["sample"]
    addresses = [address.to_bytes(8, "little") for address in (source, to)]
    launch = Launch("sample", (1, 1, 1), (n_threads, 1, 1), 0, addresses)
    Program(kernel).run(launch, memory, settings)
    return memory.read(to, n_threads * n_outputs, np.uint32).reshape(n_outputs, n_threads)


def lanes():
    """Returns lane, and its parts by the names in the ISA's figures of fragments."""
    for lane in range(32):
        yield lane, lane >> 2, lane % 4  # groupID, threadID_in_group


class MatrixTest(unittest.TestCase):
    def test_product_has_the_fragments_of_the_isa(self):
        rng = np.random.default_rng(1)
        a, b = (from_bf16(to_bf16(rng.standard_normal(s))) for s in ((16, 16), (16, 8)))
        c = rng.standard_normal((16, 8)).astype(np.float32)
        words = np.zeros((32, 10), np.uint32)
        halves, floats = words.view(np.uint16), words.view(np.float32)
        at = lambda i, group: group if i % 4 < 2 else group + 8  # noqa: E731
        for lane, group, member in lanes():
            for i in range(8):
                column = member * 2 + (i & 1) + (8 if i >= 4 else 0)
                halves[lane, i] = to_bf16(a[at(i, group), column])
            for i in range(4):
                row = member * 2 + (i & 1) + (8 if i >= 2 else 0)
                halves[lane, 8 + i] = to_bf16(b[row, group])
                floats[lane, 6 + i] = c[at(i, group), member * 2 + (i & 1)]
        got = run_sample(
            """
            ld.global.v2.u32 {%r10,%r11}, [%rd1];
            ld.global.v2.u32 {%r12,%r13}, [%rd1+8];
            ld.global.v2.u32 {%r14,%r15}, [%rd1+16];
            ld.global.v2.f32 {%f1,%f2}, [%rd1+24];
            ld.global.v2.f32 {%f3,%f4}, [%rd1+32];
            mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
                {%f5,%f6,%f7,%f8}, {%r10,%r11,%r12,%r13}, {%r14,%r15}, {%f1,%f2,%f3,%f4};
            st.global.f32 [%rd2], %f5;
            st.global.f32 [%rd2+128], %f6;
            st.global.f32 [%rd2+256], %f7;
            st.global.f32 [%rd2+384], %f8;
            """,
            words, n_outputs=4,
        ).view(np.float32)  # fmt: skip
        wanted = a.astype(np.float64) @ b + c
        for lane, group, member in lanes():
            for i in range(4):
                self.assertAlmostEqual(
                    got[i, lane], wanted[at(i, group), member * 2 + (i & 1)], places=4
                )

    def check_loaded(self, n: int, trans: bool):
        """The value of row r, column c of matrix m is 64 m + 8 r + c."""
        names = ",".join(f"%r{10 + i}" for i in range(n))
        stores = "".join(f"st.global.u32 [%rd2+{128 * i}], %r{10 + i};" for i in range(n))
        words = np.arange(256, dtype=np.uint16).view(np.uint32).reshape(32, 4)
        got = run_sample(
            f"""
            ld.global.v4.u32 {{%r20,%r21,%r22,%r23}}, [%rd1];
            mov.u32 %r3, tile;
            shl.b32 %r4, %r1, 4;
            add.s32 %r5, %r3, %r4;
            st.shared.v4.u32 [%r5], {{%r20,%r21,%r22,%r23}};
            bar.sync 0;
            ldmatrix.sync.aligned.m8n8.x{n}{".trans" if trans else ""}.shared.b16
                {{{names}}}, [%r5];
            {stores}
            """,
            words, n_outputs=n,
        )  # fmt: skip
        for lane, group, member in lanes():
            for m in range(n):
                element = [(group, 2 * member + i) for i in range(2)]
                if trans:
                    element = [(column, row) for row, column in element]
                wanted = [64 * m + 8 * row + column for row, column in element]
                self.assertEqual(list(got[m, lane : lane + 1].view(np.uint16)), wanted)

    def test_matrices_are_loaded_as_the_isa_has_it(self):
        for n in (1, 2, 4):
            for trans in (False, True):
                self.check_loaded(n, trans)


class CopyTest(unittest.TestCase):
    BODY = """
        mov.u32 %r3, tile;
        shl.b32 %r4, %r1, 4;
        add.s32 %r5, %r3, %r4;
        mov.u32 %r6, {n_bytes};
        cp.async.cg.shared.global [%r5], [%rd1], 16, %r6;
        cp.async.commit_group;
        cp.async.cg.shared.global [%r5+512], [%rd1], 16;
        cp.async.commit_group;
        ld.shared.u32 %r10, [%r5];
        cp.async.wait_group 1;
        ld.shared.u32 %r11, [%r5];
        ld.shared.u32 %r12, [%r5+512];
        cp.async.wait_all;
        ld.shared.u32 %r13, [%r5+524];
        st.global.u32 [%rd2], %r10;
        st.global.u32 [%rd2+128], %r11;
        st.global.u32 [%rd2+256], %r12;
        st.global.u32 [%rd2+384], %r13;
    """

    def words_seen(self, late: bool, n_bytes: int = 16):
        words = np.arange(128, dtype=np.uint32).reshape(32, 4)
        settings = Settings(copies_land_late=late)
        got = run_sample(self.BODY.format(n_bytes=n_bytes), words, 4, settings=settings)
        return got, words

    def test_late_copies_land_at_the_wait_for_their_group(self):
        got, words = self.words_seen(late=True)
        self.assertTrue((got[[0, 2]] == 0xFFFFFFFF).all())
        np.testing.assert_array_equal(got[1], words[:, 0])
        np.testing.assert_array_equal(got[3], words[:, 3])

    def test_early_copies_land_at_once(self):
        got, words = self.words_seen(late=False)
        for i, column in enumerate((0, 0, 0, 3)):
            np.testing.assert_array_equal(got[i], words[:, column])

    def test_copy_of_nothing_writes_zeros(self):
        got, _ = self.words_seen(late=True, n_bytes=0)
        self.assertTrue((got[1] == 0).all())


class RefusalTest(unittest.TestCase):
    def refusal(self, body: str, **more) -> str:
        with self.assertRaises(PtxError) as caught:
            run_sample(body, **more)
        return str(caught.exception)

    def test_unknown_instruction_is_refused_even_if_it_is_never_met(self):
        message = self.refusal("bra $done;\nwgmma.fence.sync.aligned;\n$done:\n")
        self.assertIn("unknown instruction: wgmma.fence", message)
        self.assertRegex(message, r"^line 23:")

    def test_message_names_the_line_of_the_source(self):
        message = self.refusal(".loc 1 77 5\n ld.shared.u32 %r3, [tile+2000];\n")
        self.assertRegex(message, r"^line 23, sample\.cu:77: ld\.shared\.u32 ")

    def test_unknown_modifier_is_refused(self):
        for text in ("add.sat.s32 %r3, %r1, %r1;", "mul.rz.f32 %f1, %f2, %f3;",
                     "cvt.rn.relu.bf16x2.f32 %r3, %f1, %f2;", "ld.global.v3.u32 %r3, [%rd1];"):
            self.assertIn("unknown instruction", self.refusal(text))

    def test_registers_of_the_wrong_kind_are_refused(self):
        for text in ("add.s32 %r3, %rd1, %p1;", "add.s64 %rd3, %rd1, %r1;",
                     "ld.global.u64 %r3, [%rd1];", "mov.u32 %q1, 0;"):
            self.refusal(text)

    def test_access_outside_is_refused(self):
        for text in ("ld.global.u32 %r3, [%rd2+4];", "st.global.u32 [%rd1+-4], %r3;",
                     "ld.shared.u32 %r3, [tile+1024];", "st.shared.u32 [tile+-4], %r3;",
                     "ld.param.u64 %rd3, [sample_param_1+8];", "ld.u32 %r3, [%r1];"):
            self.assertIn("are not allocated", self.refusal(text))

    def test_misaligned_access_is_refused(self):
        self.assertIn("not a multiple of 4", self.refusal("ld.shared.u32 %r3, [tile+2];"))
        misaligned = "ld.shared.v4.u32 {%r3,%r4,%r5,%r6}, [tile+8];"
        self.assertIn("not a multiple of 16", self.refusal(misaligned))

    def test_lanes_that_never_come_are_missed(self):
        message = self.refusal(
            """
            setp.lt.u32 %p1, %r1, 7;
            @%p1 bra $other;
            shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;
            ret;
            $other:
            bar.sync 0;
            """
        )
        self.assertIn("wait for others for ever", message)


    def test_word_that_nobody_writes_is_missed(self):
        body = "$look: ld.acquire.gpu.global.u32 %r3, [%rd2]; setp.ne.s32 %p1, %r3, 7;"
        self.assertIn("wait for others for ever", self.refusal(f"{body} @%p1 bra $look;"))


class ThreadTest(unittest.TestCase):
    def test_threads_part_and_meet_again(self):
        """Each thread loops as often as its number says; then all threads exchange their counts."""
        body = """
            mov.u32 %r3, 0;
            $loop:
            setp.ge.u32 %p1, %r3, %r1;
            @%p1 bra $end;
            add.s32 %r3, %r3, 1;
            bra.uni $loop;
            $end:
            shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;
            st.global.u32 [%rd2], %r4;
        """
        for order in ORDERS:
            got = run_sample(body, n_threads=96, settings=Settings(order))
            np.testing.assert_array_equal(got[0], np.arange(96) ^ 1)

    def test_barrier_makes_a_block_wait(self):
        """Each thread reads what its neighbour in another warp has written."""
        body = """
            mov.u32 %r3, tile;
            add.s32 %r4, %r3, %r2;
            st.shared.u32 [%r4], %r1;
            {barrier}
            xor.b32 %r5, %r2, 128;
            add.s32 %r5, %r3, %r5;
            ld.shared.u32 %r6, [%r5];
            st.global.u32 [%rd2], %r6;
        """
        wanted = np.arange(64) ^ 32
        for order in ORDERS:
            got = run_sample(body.format(barrier="bar.sync 0;"), n_threads=64,
                             settings=Settings(order))
            np.testing.assert_array_equal(got[0], wanted)
        got = run_sample(body.format(barrier=""), n_threads=64, settings=Settings("forward"))
        self.assertTrue((got[0, :32] == 0xFFFFFFFF).all())

    LOOKING = """
        setp.ge.u32 %p1, %r1, 32;
        @%p1 bra $other;
        $look:
        ld.{order}.global.u32 %r3, [%rd2+128];
        nanosleep.u32 40;
        setp.ne.s32 %p2, %r3, %r1;
        @%p2 bra $look;
        st.global.u32 [%rd2], %r3;
        ret;
        $other:
        sub.s32 %r4, %r1, 32;
        bar.warp.sync -1;
        {fence};
        {store} [%rd2], %r4;
    """

    def test_thread_that_looks_lets_others_write(self):
        """The first warp waits until the second has written what it wants to see."""
        for order in ORDERS:
            for load, fence, store in (
                ("acquire.gpu", "fence.acq_rel.gpu", "st.release.gpu.global.u32"),
                ("volatile", "membar.gl", "st.volatile.global.u32"),
            ):
                body = self.LOOKING.format(order=load, fence=fence, store=store)
                got = run_sample(body, n_threads=64, settings=Settings(order))
                np.testing.assert_array_equal(got[0], [*range(32)] * 2)

    def test_shuffles_read_the_lane_that_they_name(self):
        lane = np.arange(32)
        for mode, b, c, wanted in (
            ("up", 3, 0, np.where(lane >= 3, lane - 3, lane)),
            ("down", 5, 31, np.where(lane + 5 < 32, lane + 5, lane)),
            ("bfly", 9, 31, lane ^ 9),
            ("idx", 6, 31, np.full(32, 6)),
            ("idx", 2, 0x181F, lane & 24 | 2),  # of segments of 8
        ):
            body = f"shfl.sync.{mode}.b32 %r3, %r1, {b}, {c}, -1; st.global.u32 [%rd2], %r3;"
            np.testing.assert_array_equal(run_sample(body)[0], wanted, mode)

    def test_vote_and_atomics(self):
        body = """
            and.b32 %r3, %r1, 1;
            setp.eq.s32 %p1, %r3, 1;
            vote.sync.ballot.b32 %r4, %p1, -1;
            st.global.u32 [%rd2], %r4;
            st.shared.u32 [tile], 5;
            atom.shared.add.u32 %r5, [tile], 2;
            st.global.u32 [%rd2+128], %r5;
            atom.acq_rel.gpu.shared.max.u32 %r5, [tile], 80;
            atom.shared.exch.b32 %r6, [tile], %r1;
            st.global.u32 [%rd2+256], %r6;
        """
        got = run_sample(body, n_outputs=3)
        self.assertTrue((got[0] == 0xAAAAAAAA).all())
        np.testing.assert_array_equal(got[1], 5 + 2 * np.arange(32))
        np.testing.assert_array_equal(got[2], [80, *range(31)])

    def test_inline_assembly_has_registers_of_its_own(self):
        body = """
            mov.u32 %r3, 0x12345678;
            setp.ne.s32 %p1, 0, 0;
            { .reg .b16 low, high; mov.b32 {low, high}, %r3; mov.b32 %r4, {high, low}; }
            { .reg .b32 low; mov.b32 low, 7; @!%p1 add.s32 %r4, %r4, low; }
            st.global.u32 [%rd2], %r4;
        """
        self.assertEqual(int(run_sample(body)[0, 0]), 0x56781234 + 7)


# instruction with %r4 as result of %r10 and up (or floats %f1 and up), values, result
INTEGERS = (
    ("add.s32 %r4, %r10, %r11", (0xFFFFFFFF, 3), 2),
    ("mul.hi.u32 %r4, %r10, %r11", (0x80000000, 6), 3),
    ("mul.hi.s32 %r4, %r10, %r11", (-0x80000000, 6), -3),
    ("mad.lo.s32 %r4, %r10, %r11, %r12", (-3, 5, 1), -14),
    ("div.s32 %r4, %r10, %r11", (-7, 2), -3),
    ("rem.s32 %r4, %r10, %r11", (-7, 2), -1),
    ("div.u32 %r4, %r10, %r11", (0xFFFFFFFF, 2), 0x7FFFFFFF),
    ("shr.s32 %r4, %r10, %r11", (-8, 40), -1),
    ("shr.u32 %r4, %r10, %r11", (-8, 40), 0),
    ("shl.b32 %r4, %r10, %r11", (3, 31), 0x80000000),
    ("shf.l.wrap.b32 %r4, %r10, %r11, %r12", (0x80000000, 1, 33), 3),
    ("shf.r.clamp.b32 %r4, %r10, %r11, %r12", (0x80000000, 5, 32), 5),
    ("lop3.b32 %r4, %r10, %r11, %r12, 0xE8", (12, 10, 6), 14),  # at least two of three
    ("prmt.b32 %r4, %r10, %r11, %r12", (0x33221100, 0x77665584, 0xC410), 0xFF841100),
    ("bfi.b32 %r4, %r10, %r11, 4, 8", (0xABC, 0xFFFFFFFF), 0xFFFFFBCF),
    ("bfi.b32 %r4, %r10, %r11, 3, 29", (5, 2), 42),
    ("bfe.u32 %r4, %r10, 4, 8", (0xABCD,), 0xBC),
    ("popc.b32 %r4, %r10", (0xF0F0,), 8),
    ("clz.b32 %r4, %r10", (0x0000FFFF,), 16),
    ("min.s32 %r4, %r10, %r11", (-1, 1), -1),
    ("max.u32 %r4, %r10, %r11", (-1, 1), -1),
    ("selp.b32 %r4, %r10, %r11, %p1", (8, 9), 8),
    ("setp.hi.u32 %p2, %r10, %r11; selp.b32 %r4, 1, 0, %p2", (-1, 1), 1),
    ("setp.lt.and.s32 %p2, %r10, %r11, !%p1; selp.b32 %r4, 1, 0, %p2", (-1, 1), 0),
    ("cvt.s64.s32 %rd5, %r10; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r4, %rd5", (-5,), -1),
    ("cvt.u16.u32 %rs1, %r10; cvt.s32.s8 %r4, %rs1", (0x1FF,), -1),
    ("mul.wide.s32 %rd5, %r10, %r11; mov.b64 {_, %r4}, %rd5", (-2, 3), -1),
    ("@!%p1 add.s32 %r10, %r10, 1; mov.u32 %r4, %r10", (4,), 4),
)
FLOATS = (
    ("fma.rn.f32 %f8, %f1, %f2, %f3", (1 + 2**-23, 1 - 2**-23, -1), -(2.0**-46)),
    ("fma.rm.f32 %f8, %f1, %f2, %f3", (1, 1, 2**-30), 1.0),
    ("fma.rm.f32 %f8, %f1, %f2, %f3", (1, 1, -(2**-30)), 1 - 2**-24),
    ("max.f32 %f8, %f1, %f2", (np.nan, 3), 3.0),
    ("max.NaN.f32 %f8, %f1, %f2", (np.nan, 3), np.nan),
    ("ex2.approx.ftz.f32 %f8, %f1", (-130,), 0.0),
    ("ex2.approx.ftz.f32 %f8, %f1", (-np.inf,), 0.0),
    ("ex2.approx.f32 %f8, %f1", (-130,), 2.0**-130),
    ("lg2.approx.f32 %f8, %f1", (8,), 3.0),
    ("rcp.rn.f32 %f8, %f1", (3,), np.float32(1) / np.float32(3)),
    ("cvt.sat.f32.f32 %f8, %f1", (np.nan,), 0.0),
    ("cvt.rni.s32.f32 %r4, %f1; cvt.rn.f32.s32 %f8, %r4", (2.5,), 2.0),
    ("cvt.rzi.s32.f32 %r4, %f1; cvt.rn.f32.s32 %f8, %r4", (-3e9,), -(2.0**31)),
    ("setp.ltu.f32 %p2, %f1, %f2; selp.f32 %f8, 0f3F800000, 0f00000000, %p2", (np.nan, 1), 1.0),
    ("setp.ne.f32 %p2, %f1, %f2; selp.f32 %f8, 0f3F800000, 0f00000000, %p2", (np.nan, 1), 0.0),
    ("setp.neu.f32 %p2, %f1, %f2; selp.f32 %f8, 0f3F800000, 0f00000000, %p2", (np.nan, 1), 1.0),
    ("cvt.rn.bf16.f32 %rs1, %f1; mov.b32 %f8, {0, %rs1}", (1 + 2**-8,), 1.0),  # ties to even
    ("cvt.rn.bf16.f32 %rs1, %f1; cvt.f32.bf16 %f8, %rs1", (1 + 3 * 2**-8,), 1 + 2**-6),
    ("cvt.rn.bf16x2.f32 %r4, %f1, %f2; and.b32 %r4, %r4, 0xFFFF0000; mov.b32 %f8, %r4",
     (2, 3), 2.0),
)  # fmt: skip


class ArithmeticTest(unittest.TestCase):
    def test_integers(self):
        for text, values, wanted in INTEGERS:
            moves = "".join(f"mov.b32 %r{10 + i}, {v};" for i, v in enumerate(values))
            body = f"setp.eq.s32 %p1, 0, 0; {moves} {text}; st.global.u32 [%rd2], %r4;"
            self.assertEqual(int(run_sample(body)[0, 0]), wanted & 0xFFFFFFFF, text)

    def test_floats(self):
        for text, values, wanted in FLOATS:
            bits = np.array(values, np.float32).view(np.uint32)
            moves = "".join(f"mov.f32 %f{1 + i}, 0f{v:08X};" for i, v in enumerate(bits))
            got = run_sample(f"{moves} {text}; st.global.f32 [%rd2], %f8;")[0, :1]
            np.testing.assert_equal(got.view(np.float32)[0], np.float32(wanted), text)


if __name__ == "__main__":
    unittest.main()
