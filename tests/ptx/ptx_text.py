"""Parses the text of a PTX module: parameters, shared variables, registers, instructions.

Only the PTX that nvcc writes for kernels without calls is understood; anything else is an error
that names the line, so that nothing is silently ignored."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

SIZES = {
    kind + str(bits): bits // 8
    for kind, widths in {"b": (8, 16, 32, 64, 128), "u": (8, 16, 32, 64), "s": (8, 16, 32, 64),
                         "f": (16, 32, 64)}.items()
    for bits in widths
}


class PtxError(Exception):
    """The text cannot be executed, or the program did something that a device forbids."""


# ---- Operands --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Register:
    number: int
    size: int  # bytes; 0: a predicate
    negated: bool = False


@dataclass(frozen=True)
class Special:
    name: str  # %tid.x and the like


@dataclass(frozen=True)
class Immediate:
    value: int | float


@dataclass(frozen=True)
class Name:
    text: str  # a label or a variable


@dataclass(frozen=True)
class Address:
    base: Register | Name | Immediate
    offset: int


@dataclass(frozen=True)
class Vector:
    parts: tuple


SINK = Name("_")


# ---- Kernels ---------------------------------------------------------------------------------


@dataclass
class Instruction:
    opcode: str
    operands: list
    guard: Register | None
    text: str
    place: str  # line of the PTX, and of the source if it is known


@dataclass
class Variable:
    name: str
    size: int  # 0: the launch decides
    alignment: int
    offset: int = 0


@dataclass
class Kernel:
    name: str
    parameters: list[Variable]
    shared: list[Variable]
    register_sizes: list[int] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    has_inline_assembly: bool = False


def place_variables(variables: list[Variable]) -> int:
    """Assigns each variable an offset, those of unknown size last; returns the end."""
    end = 0
    for variable in sorted(variables, key=lambda v: v.size == 0):
        end = -(-end // variable.alignment) * variable.alignment
        variable.offset = end
        end += variable.size
    return end


VARIABLE = re.compile(
    r"\.(?:param|shared)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?:global|shared)\s+)?(?:\.align\s+\d+\s+)?)?(?P<name>[\w$]+)"
    r"(?P<array>\[(?P<count>\d*)\])?"
)


def parse_variable(text: str) -> Variable:
    match = VARIABLE.fullmatch(text.strip())
    if not match or match["type"] not in SIZES:
        raise PtxError(f"unknown variable: {text.strip()}")
    size = SIZES[match["type"]]
    count = int(match["count"] or 0) if match["array"] else 1
    return Variable(match["name"], size * count, int(match["align"] or size))


# ---- The module ------------------------------------------------------------------------------

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SECTION = re.compile(r"\.section[^{]*\{[^}]*\}")
SOURCE_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(?:[^"]*/)?([^"/]+)"[^\n]*', re.MULTILINE)
ENTRY = re.compile(r"(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
MODULE_SHARED = re.compile(r"(?:\.extern\s+)?(\.shared[^;]*);")
MODULE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size)[^\n]*")
KERNEL_DIRECTIVE = re.compile(r"\.(?:maxntid|reqntid|minnctapersm|maxnreg)[ \d,\t]*")
INLINE_ASSEMBLY = re.compile(r"// begin inline asm\s+(?!// end inline asm)")


def blanked(pattern: re.Pattern, text: str) -> str:
    """Returns the text with all matches made empty, without moving a line."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def parse_module(text: str) -> dict[str, Kernel]:
    files = dict(SOURCE_FILE.findall(text))
    text = blanked(SOURCE_FILE, text)  # before comments are removed: a path may contain two slashes
    assembly_at = [match.start() for match in INLINE_ASSEMBLY.finditer(text)]
    # Comments become spaces, so that positions in the text do not change.
    plain = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    kernels, outside, end = {}, "", 0
    bodies = []
    while match := ENTRY.search(plain, end):
        outside += plain[end : match.start()]
        if rest := blanked(KERNEL_DIRECTIVE, match[3]).strip():
            raise PtxError(f"unknown directive of {match[1]}: {rest}")
        begin, end = match.end(), end_of_block(plain, match.end())
        parameters = [parse_variable(p) for p in match[2].split(",") if p.strip()]
        kernel = Kernel(match[1], parameters, [])
        kernel.has_inline_assembly = any(begin <= at < end for at in assembly_at)
        place_variables(kernel.parameters)
        kernels[kernel.name] = kernel
        bodies.append((kernel, begin, end - 1))
    outside = blanked(SECTION, outside + plain[end:])
    shared = MODULE_SHARED.findall(outside)
    for pattern in (MODULE_SHARED, MODULE_DIRECTIVE):
        outside = blanked(pattern, outside)
    if outside.strip():
        raise PtxError(f"unknown outside of kernels: {outside.split()[:8]}")
    lines = [match.start() for match in re.finditer("\n", plain)]
    for kernel, begin, stop in bodies:
        kernel.shared = [parse_variable(variable) for variable in shared]
        Body(kernel, files, lines).read(plain, begin, stop)
    return kernels


def end_of_block(text: str, begin: int) -> int:
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    raise PtxError("a kernel does not end")


# ---- A kernel's body -------------------------------------------------------------------------

PIECE = re.compile(
    r"\s*(?:(?P<space>$)|\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)[^\n]*|(?P<label>[\w$]+):"
    r"|(?P<open>\{)|(?P<close>\})|(?P<statement>(?:[^;{}]|\{[^{};]*\})+);)"
)
REGISTERS = re.compile(r"\.reg\s+\.(pred|[busf]\d+)\s+(.*)", re.DOTALL)
STATEMENT = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
SPECIAL = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid)\.[xyz]|%laneid|%warpid|%lanemask_(?:lt|le|gt|ge|eq)"
)


class Body:
    """Reads a kernel's statements. A block in braces, which inline assembly may open, has
    registers of its own."""

    def __init__(self, kernel: Kernel, files: dict[str, str], lines: list[int]):
        self.kernel, self.files, self.lines = kernel, files, lines
        self.scopes: list[dict[str, Register]] = [{}]
        self.source = ""

    def read(self, text: str, begin: int, end: int) -> None:
        at = begin
        while at < end:
            piece = PIECE.match(text, at, end)
            if not piece:
                rest = text[at : at + 60].strip()
                raise PtxError(f"line {self.line(at)}: not understood: {rest}")
            at = piece.end()
            if piece["line"]:
                self.source = f", {self.files.get(piece['file'], '?')}:{piece['line']}"
            elif piece["label"]:
                self.kernel.labels[piece["label"]] = len(self.kernel.code)
            elif piece["open"]:
                self.scopes.append({})
            elif piece["close"]:
                self.scopes.pop()
            elif piece["statement"]:
                self.statement(piece["statement"].strip(), self.line(piece.end("statement")))

    def line(self, at: int) -> int:
        return bisect_right(self.lines, at - 1) + 1

    def statement(self, text: str, line: int) -> None:
        if declared := REGISTERS.fullmatch(text):
            self.declare(declared[1], declared[2])
        elif text.startswith(".shared"):
            self.kernel.shared.append(parse_variable(text))
        elif text.startswith(".pragma"):
            pass  # a hint about unrolling
        else:
            match = STATEMENT.fullmatch(text)
            place = f"line {line}{self.source}"
            if not match:
                raise PtxError(f"{place}: not understood: {text}")
            guard = self.register(match[2], bool(match[1])) if match[2] else None
            try:
                operands = [self.operand(o) for o in OPERAND.findall(match[4])]
            except ValueError as error:
                raise PtxError(f"{place}: {error}: {text}") from error
            self.kernel.code.append(Instruction(match[3], operands, guard, text, place))

    def declare(self, kind: str, names: str) -> None:
        size = SIZES.get(kind, 0)
        for name in re.split(r"\s*,\s*", names.strip()):
            several = re.fullmatch(r"(.+)<(\d+)>", name)
            each = [several[1] + str(i) for i in range(int(several[2]))] if several else [name]
            for one in each:
                self.scopes[-1][one] = Register(len(self.kernel.register_sizes), size)
                self.kernel.register_sizes.append(size)

    def register(self, name: str, negated: bool = False) -> Register | None:
        for scope in reversed(self.scopes):
            if name in scope:
                found = scope[name]
                return Register(found.number, found.size, True) if negated else found
        return None

    def operand(self, text: str):
        if text[0] == "{":
            return Vector(tuple(self.operand(part.strip()) for part in text[1:-1].split(",")))
        if text[0] == "[":
            base, _, offset = text[1:-1].replace(" ", "").partition("+")
            return Address(self.operand(base), int(offset or "0", 0))
        if text[0] == "!":
            return self.register(text[1:], True)
        if "|" in text:  # a result and whether it is valid
            return Vector(tuple(self.operand(part) for part in text.split("|")))
        if register := self.register(text):
            return register
        if SPECIAL.fullmatch(text):
            return Special(text)
        if text[0] == "%":
            raise ValueError(f"unknown register {text}")
        if text[0].isdigit() or text[0] == "-":
            return Immediate(parse_number(text))
        return Name(text)


def parse_number(text: str) -> int | float:
    if floating := re.fullmatch(r"0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", text):
        return FloatBits(int(floating[2], 16), 4 if floating[1] in "fF" else 8)
    return int(text.rstrip("U"), 0)


class FloatBits(int):
    """Returns the bits of a float of `size` bytes, as PTX writes its constants."""

    def __new__(cls, bits: int, size: int):
        number = super().__new__(cls, bits)
        number.size = size
        return number
