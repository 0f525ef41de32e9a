#!/usr/bin/env python3
"""Writes src/data/unicode.inc: classes of characters and canonical composition, as Hugging Face tokenizers know them.

    pip install unicodedata2==16.0.0 && tools/gen_unicode.py > src/data/unicode.inc

The version matters: text is cut into words by these classes, and a token is what it is because of the cuts. Those programs
know Unicode 16 when they cut, but 9 when they compose: marks and compositions of later versions are left out.
"""
import sys

import unicodedata2 as u

VERSION = "16.0.0"
SPACES = {9, 10, 11, 12, 13, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
BLOCK = 128

# Characters with a combining class or a canonical decomposition that Unicode 9 did not have.
AFTER_9 = """7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 105C9 105E4 10D24-10D27 10D69-10D6D 10EAB-10EAC
    10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11383 11385 1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A
    11938 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 16121-16128 1612F 16D68-16D6A
    16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF"""
NEWER = set()
for word in AFTER_9.split():
    first, _, last = word.partition("-")
    NEWER.update(range(int(first, 16), int(last or first, 16) + 1))


def canonical(c):
    """The canonical decomposition of one step, as a list; empty when there is none. Hangul is arithmetic, not table."""
    text = "" if c in NEWER else u.decomposition(chr(c))
    return [int(word, 16) for word in text.split()] if text and not text.startswith("<") else []


def combining(c):
    return 0 if c in NEWER else u.combining(chr(c))


def is_plain(c, seconds):
    """Whether a character stays as it is under NFC, whatever stands before it."""
    return combining(c) == 0 and (c in NEWER or u.normalize("NFC", chr(c)) == chr(c)) and c not in seconds


def rows(values, width):
    for i in range(0, len(values), width):
        print("    " + ", ".join(values[i:i + width]) + ",")


def print_classes(seconds):
    nibbles = [0] * 0x110000
    for c in CODES:
        kind = u.category(chr(c))[0]
        nibbles[c] = 3 if c in SPACES else {"L": 1, "N": 2}.get(kind, 0)
        nibbles[c] |= 0 if is_plain(c, seconds) else 4
    end = (max(i for i, n in enumerate(nibbles) if n) // BLOCK + 1) * BLOCK
    blocks, index = {}, []
    for at in range(0, end, BLOCK):
        block = tuple(nibbles[at:at + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) < 65536
    print(f"#define CLASS_END 0x{end:x}u\nenum {{ CLASS_BLOCK = {BLOCK} }};\n")
    print(f"static const uint16_t class_index[{len(index)}] = {{")
    rows([str(i) for i in index], 24)
    print(f"}};\n\n/* Eight characters a word, the lowest in the lowest four bits. */\n"
          f"static const uint32_t class_blocks[{len(blocks)}][{BLOCK // 8}] = {{")
    for block in blocks:
        words = [sum(n << (4 * i) for i, n in enumerate(block[at:at + 8])) for at in range(0, BLOCK, 8)]
        lines = [", ".join(f"0x{w:x}" for w in words[at:at + 8]) for at in range(0, BLOCK // 8, 8)]
        print("    {" + ",\n     ".join(lines) + "},")
    print("};\n")


def print_marks():
    ranges = []
    for c in CODES:
        k = combining(c)
        if k and ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == k:
            ranges[-1][1] = c
        elif k:
            ranges.append([c, c, k])
    print(f"static const struct mark_range mark_ranges[{len(ranges)}] = {{")
    rows([f"{{0x{a:x}, 0x{b:x}, {k}}}" for a, b, k in ranges], 5)
    print("};\n")


def main():
    if u.unidata_version != VERSION:
        sys.exit(f"gen_unicode.py needs Unicode {VERSION}, this is {u.unidata_version}.")
    table = [(c, canonical(c)) for c in CODES if canonical(c)]
    composed = sorted((parts[0], parts[1], at) for at, (c, parts) in enumerate(table)
                      if len(parts) == 2 and u.normalize("NFC", chr(c)) == chr(c))
    seconds = {b for _, b, _ in composed} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    print(f"/* Unicode {VERSION}, composition as in 9.0.0; written by tools/gen_unicode.py. */\n")
    print_classes(seconds)
    print_marks()
    print(f"/* One step of canonical decomposition, by character; 0: no second part. */\n"
          f"static const struct decomposition decompositions[{len(table)}] = {{")
    rows([f"{{0x{c:x}, 0x{p[0]:x}, 0x{p[1] if len(p) == 2 else 0:x}}}" for c, p in table], 4)
    print(f"}};\n\n/* Those of them that compose again, as places in that table, by first and second part. */\n"
          f"static const uint16_t compositions[{len(composed)}] = {{")
    rows([str(at) for _, _, at in composed], 20)
    print("};")


main()
