#!/usr/bin/env python3
"""Checks who includes whom: tools/layers.txt for our own headers, tools/libs.txt for everybody else's.

check_layers.py             checks src/ and says what is wrong, file by file; exit 1 on a breach
check_layers.py --self-test proves on small made-up sources that each kind of breach is seen
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
C11 = set("assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg "
          "stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar "
          "wctype".split())
PURE = {"base", "wire", "optim", "store", "core"}  # never a header of the system beyond C11
POSIX = re.compile(r"(unistd|fcntl|getopt|dirent|pthread|poll|sched|spawn|sys/\w+|bits/\w+)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def read_table(text):
    """name: words -> {name: {words}}"""
    rows = (line.split("#")[0].partition(":") for line in text.splitlines())
    return {name.strip(): set(words.split()) for name, colon, words in rows if colon}


def breaches(path, text, layers, libs):
    """Sentences about what the file at src/<path> includes and may not."""
    layer = path.split("/")[0]
    if layer not in layers:
        yield f"src/{path}: layer {layer} is not in tools/layers.txt"
        return
    for own, system in INCLUDE.findall(text):
        target = own.split("/")[0]
        if own and "/" not in own or own.startswith("."):
            yield f'src/{path}: "{own}" must be named by its full path from src/'
        elif own and target != layer and target not in layers[layer]:
            yield f'src/{path}: {layer} may not include "{own}" (tools/layers.txt)'
        elif system and system.removesuffix(".h") not in C11:
            users = [users for lib, users in libs.items() if system.startswith(lib)]
            if users and layer not in users[0]:
                yield f"src/{path}: {layer} may not include <{system}> (tools/libs.txt)"
            elif not users and (layer in PURE or not POSIX.match(system)):
                yield f"src/{path}: <{system}> is not C11 and not in tools/libs.txt"


def self_test():
    layers, libs = read_table("base:\ncore: base # lowest first\nsim: base core"), read_table("uv: net sim")
    cases = [("core/a.c", '#include "base/x.h"\n#include <stdint.h>', 0), ("core/a.c", '#include "core/b.h"', 0),
             ("sim/a.c", "#include <unistd.h>\n#include <uv.h>", 0), ("core/a.c", '#include "sim/x.h"', 1),
             ("base/a.c", '# include "core/x.h"', 1), ("core/a.c", '#include "b.h"', 1),
             ("core/a.c", '#include "../base/x.h"', 1), ("core/a.c", "#include <unistd.h>", 1),
             ("core/a.c", "#include <uv.h>", 1), ("sim/a.c", "#include <zstd.h>", 1), ("new/a.c", "", 1)]
    wrong = [case for case in cases if len(list(breaches(*case[:2], layers, libs))) != case[2]]
    for case in wrong:
        print("self-test: wrong verdict on", case)
    return bool(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    layers, libs = (read_table((ROOT / "tools" / f).read_text()) for f in ("layers.txt", "libs.txt"))
    files = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".c", ".h", ".def"))
    found = [b for p in files for b in breaches(str(p.relative_to(ROOT / "src")), p.read_text(), layers, libs)]
    print("\n".join(found) if found else f"layers: {len(files)} files, no breach")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
