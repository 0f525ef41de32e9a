#!/usr/bin/env python3
"""bench_commands.py PELAGO - pelago bench as scripts/bench_trainer.sh uses it: the lines of JSON and the refusals.

How fast this machine is decides nothing here. Needs nothing but python3.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PELAGO = str(Path(sys.argv[1]).resolve())
EOT = "<|endoftext|>\n"
TEXT_MAX = 32 << 20


def run(*words, code=0):
    done = subprocess.run([PELAGO, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def refused(sentence, *words, code):
    done = run("bench", *words, code=code)
    assert sentence in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, f"{words}: {done.stderr}"


def line_of(*words):
    return json.loads(run("bench", *words, "--json", "--seconds", 0).stdout)


def tokenizer_counts():
    """A token for each byte and one after each document; --seconds 0 still makes three passes."""
    documents = ["Zoë was here.\n", "So was I.\n" * 1000]
    (temp / "text.txt").write_text(EOT.join(documents))
    size = sum(len(d.encode()) for d in documents)
    for threads in (1, 3):
        line = line_of("tokenizer", "--tokenizer", bytes_json, "--threads", threads, temp / "text.txt")
        assert line["bench"] == "tokenizer" and line["threads"] == threads and line["passes"] == 3, line
        assert line["text_bytes"] == size and line["tokens"] == size + 2, line
        assert line["mb_per_s"] >= line["mb_per_s_mean"] > 0 and line["mb_per_core_s"] > 0, line


def tokenizer_cuts():
    """Of a long text the first 32 MiB."""
    (temp / "long.txt").write_text("a line of text, 32 bytes long..\n" * (TEXT_MAX // 32 + 1000))
    line = line_of("tokenizer", "--tokenizer", bytes_json, temp / "long.txt")
    assert line["text_bytes"] == TEXT_MAX and line["tokens"] == TEXT_MAX + 1, line


def tokenizer_refusals():
    refused("--tokenizer is missing", "tokenizer", temp / "text.txt", code=2)
    refused("name at least one file", "tokenizer", "--tokenizer", bytes_json, code=2)
    refused("nowhere could not be read", "tokenizer", "--tokenizer", bytes_json, temp / "nowhere", code=1)
    refused("the corpus is empty", "tokenizer", "--tokenizer", bytes_json, "/dev/null", code=1)
    refused("expected what to measure: trainer, sample, tokenizer", "nothing", code=2)


def sample_share():
    line = line_of("sample", "--model", "1m", "--tokens", 8, "--threads", 2)
    assert line["tokens_per_s"] > 0 and line["read_gb_per_s"] > 0 and line["share"] > 0, line


with tempfile.TemporaryDirectory() as folder:
    temp = Path(folder)
    bytes_json = temp / "bytes.json"
    run("data", "tokenizer", "--kind", "byte", "--out", bytes_json)
    for test in (tokenizer_counts, tokenizer_cuts, tokenizer_refusals, sample_share):
        test()
        print(f"ok - {test.__name__}", flush=True)
