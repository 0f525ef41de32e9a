#!/usr/bin/env python3
"""Prints how long functions and files are and how dense assertions are, by layer. Information, never a verdict.

A function is a body that begins with { and ends with } in the first column, as clang-format writes them; its length
is counted from the line of its name to the closing brace.
"""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_MAX, FILE_MAX = 70, 600
NAME = re.compile(r"(\w+)\s*\(")


def functions(path):
    """(length, name) of every function in the file."""
    lines = path.read_text().splitlines()
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i - 1
            while start > 0 and (lines[start].startswith((" ", "\t")) or not NAME.search(lines[start])):
                start -= 1
        elif line == "}" and start is not None:
            name = NAME.search(lines[start])
            yield i - start + 1, f"{name.group(1) if name else '?'} ({path.relative_to(ROOT)}:{start + 1})"
            start = None


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def row(title, files):
    lengths = sorted(f for path in files for f in functions(path))
    if not lengths:
        return None
    sizes = [len(path.read_text().splitlines()) for path in files]
    asserts = sum(len(re.findall(r"\b(?:pl_assert|assert_\w+)\(", path.read_text())) for path in files)
    only = [n for n, _ in lengths]
    return (title, len(files), sum(sizes), len(only), percentile(only, 0.5), percentile(only, 0.9),
            percentile(only, 0.99), only[-1], max(sizes), f"{1000 * asserts / sum(sizes):.1f}")


def main():
    folders = sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()) + [ROOT / "tests"]
    by_folder = {p.name: sorted(q for q in p.rglob("*.[ch]")) for p in folders}
    ours = [path for name, files in by_folder.items() if name != "tests" for path in files]
    print(f"{'layer':8}{'files':>6}{'lines':>7}{'funcs':>7}{'median':>8}{'p90':>5}{'p99':>5}{'longest':>9}"
          f"{'largest file':>14}{'asserts/1000':>14}")
    for cells in filter(None, [*(row(n, f) for n, f in by_folder.items()), row("all src", ours)]):
        print("{:8}{:>6}{:>7}{:>7}{:>8}{:>5}{:>5}{:>9}{:>14}{:>14}".format(*cells))
    every = [path for files in by_folder.values() for path in files]
    for length, name in sorted((f for path in every for f in functions(path) if f[0] > FUNCTION_MAX), reverse=True):
        print(f"over {FUNCTION_MAX} lines: {length} {name}")
    for path in every:
        size = len(path.read_text().splitlines())
        if size > FILE_MAX:
            print(f"over {FILE_MAX} lines: {size} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
