"""Shows the functions and rows of SFrame sections: a second reader, for tests.

Usage: rows.py ADDRESS FILE...

It follows include/sframe.h of binutils and shares nothing with package sframe. Each
function is a line "START +SIZE signal=BOOL"; each row "  AT CFA FP RA", where u is a
register that still has its value, (x) the word at x, c the CFA, and AT an offset where
blocks repeat; "  AT outermost" has no return address. A line "FILE:" comes first.
"""
import struct
import sys

START = {0: "<B", 1: "<H", 2: "<I"}
DATA = {0: "<b", 1: "<h", 2: "<i"}
CONTROL = {0: "<B", 1: "<H", 2: "<I"}


class Words:
    """The data words of a row, all of one size."""

    def __init__(self, raw, code):
        self.raw, self.code, self.at = raw, code, 0

    def left(self):
        return len(self.raw) - self.at

    def take(self, formats):
        form = formats[self.code]
        (value,) = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return value


def place(base, offset, deref):
    text = f"{base}{offset:+d}"
    return f"({text})" if deref else text


def register(number):
    return {6: "fp", 7: "sp"}.get(number, f"r{number}")


def flexible(words):
    """A control word and an offset; a control word of 0 stands alone: None."""
    control = words.take(CONTROL)
    if control == 0:
        return None
    assert control & 4 == 0, control
    base = register(control >> 3 & 31) if control & 1 else "c"
    return place(base, words.take(DATA), control >> 1 & 1)


def rules(words, sp, flex, fixed_fp, fixed_ra):
    ra = place("c", fixed_ra, True) if fixed_ra else None
    fp = place("c", fixed_fp, True) if fixed_fp else "u"
    if flex:
        cfa = flexible(words)
        if words.left():
            ra = flexible(words) or ra
        if words.left():
            fp = flexible(words) or fp
    else:
        cfa = place("sp" if sp else "fp", words.take(DATA), False)
        if ra is None:
            ra = place("c", words.take(DATA), True)
        if words.left():
            fp = place("c", words.take(DATA), True)
    assert words.left() == 0 and cfa and ra
    return f"{cfa} {fp} {ra}"


def show(data, address):
    magic, version, flags, abi, fixed_fp, fixed_ra, aux = struct.unpack_from("<HBBBbbB", data, 0)
    count, rows, size, fdes, fres = struct.unpack_from("<IIIII", data, 8)
    assert magic == 0xDEE2 and abi == 3 and version in (1, 2, 3)
    fdes, fres = 28 + aux + fdes, 28 + aux + fres
    each = {1: 17, 2: 20, 3: 16}[version]
    seen, last = 0, None
    for i in range(count):
        at = fdes + each * i
        signal = flex = False
        if version == 3:
            start, length, where = struct.unpack_from("<qII", data, at)
            pos = fres + where
            num, info, info2, _ = struct.unpack_from("<HBBB", data, pos)
            pos += 5
            signal, flex = bool(info >> 7), info2 & 15 == 1
        else:
            start, length, where, num, info = struct.unpack_from("<iIIIB", data, at)
            pos = fres + where
        start += address + (at if flags & 4 else 0)
        assert not flags & 1 or last is None or start >= last, "not ascending"
        last = start
        yield f"{start:x} +{length} signal={str(signal).lower()}"
        masked = info >> 4 & 1
        for _ in range(num):
            (offset,) = struct.unpack_from(START[info & 15], data, pos)
            pos += struct.calcsize(START[info & 15])
            what = data[pos]
            n, code = what >> 1 & 15, what >> 5 & 3
            length = n << code
            words = Words(data[pos + 1:pos + 1 + length], code)
            assert len(words.raw) == length and pos + 1 + length <= fres + size
            pos += 1 + length
            seen += 1
            if not masked:
                offset += start
            yield f"  {offset:x} " + (rules(words, what & 1, flex, fixed_fp, fixed_ra) if n else "outermost")
    assert seen == rows, (seen, rows)


for path in sys.argv[2:]:
    print(path + ":")
    with open(path, "rb") as f:
        for line in show(f.read(), int(sys.argv[1], 0)):
            print(line)
