#!/usr/bin/env python3
"""Runs rows of experiments side by side, each seed of each row in a process of its own, and adds their lines to the results.

    experiments/many.py [--jobs N] [--row NAME]... [--seeds A..B] [--results FILE] FILE... [-- OPTION...]

What follows -- goes to every `pelago sim --experiment` (default: --threads 1); on a GPU that is `-- --threads 1 --backend cuda`, with
some dozens of jobs and, where there is one, NVIDIA's MPS. What the results have is not run again. Rows of one experiment and seed
are started together, so that a sitting that ends early leaves whole pairs; Ctrl-C keeps what is finished.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

lock = threading.Lock()


def setting(text, name, default):
    found = re.search(rf"^{name}: *(.*?) *(#.*)?$", text, re.M)
    return found.group(1) if found else default


def jobs_of(path, rows, seeds):
    """(path, row, seed), seeds outside."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    names = [n.strip() for n in setting(text, "rows", "").strip("[]").split(",")]
    first, _, last = (seeds or setting(text, "seeds", "1")).partition("..")
    return [(path, n, s) for s in range(int(first), int(last or first) + 1) for n in names if not rows or n in rows]


def run(args, options, job):
    path, row, seed = job
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder) / "line.jsonl"
        with lock:
            had = args.results.read_bytes() if args.results.exists() else b""
        own.write_bytes(had)
        words = [args.pelago, "sim", "--experiment", path, "--row", row, "--seeds", f"{seed}..{seed}", "--results", own, *options]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
        new = own.read_bytes()[len(had):]
        said = (done.stdout if new else done.stderr).splitlines() or [f"{pathlib.Path(path).stem} {row} seed {seed}: there already"]
        with lock:
            with open(args.results, "ab") as out:
                out.write(new)
            print(said[0], flush=True)
        return done.returncode


def main():
    words, _, options = "\0".join(sys.argv[1:]).partition("\0--\0")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+", metavar="FILE")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--row", action="append", default=[])
    p.add_argument("--seeds", default="")
    p.add_argument("--results", type=pathlib.Path, default=pathlib.Path("experiments/results.jsonl"))
    p.add_argument("--pelago", default="build/pelago")
    args = p.parse_args(words.split("\0"))
    options = options.split("\0") if options else ["--threads", "1"]
    jobs = [j for f in args.files for j in jobs_of(f, args.row, args.seeds)]
    if not jobs:
        sys.exit("experiments/many.py: no such row")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        codes = list(pool.map(lambda j: run(args, options, j), jobs))
    sys.exit(1 if any(codes) else 0)


main()
