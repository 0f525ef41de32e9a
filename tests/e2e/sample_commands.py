#!/usr/bin/env python3
"""sample_commands.py PELAGO - pelago sample as a person uses it.

The same seed gives the same text whatever the threads and whatever the folder's kind, texts end where they should, an
interrupt ends cleanly, and refusals are one sentence. Needs nothing but python3.
"""
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PELAGO = str(Path(sys.argv[1]).resolve())
TEXT = "Zoë asked the café owner: naïve or clever? Both, said the owner. " * 400


def run(*words, code=0, stdin=None):
    """stdout and stderr of a command that must leave with this code."""
    done = subprocess.run([PELAGO, *map(str, words)], capture_output=True, input=stdin)
    err = done.stderr.decode()
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{err}"
    return done.stdout, err


def sample(*words):
    """The text of a command that must succeed."""
    return run("sample", *words)[0].decode(errors="replace")


def refused(sentence, *words, code=1):
    out, err = run("sample", *words, code=code)
    assert sentence in err and err.count("\n") == 1 and err.endswith(".\n") and out == b"", f"{words}: {err}"


def make_models():
    (temp / "text.txt").write_text(TEXT)
    for name, tokenizer in (("bytes", "byte"), ("chars", "char")):
        run("train", "--layers", 1, "--width", 32, "--context", 64, "--seq", 32, "--batch", 4, "--steps", 30, "--lr",
            0.01, "--tokenizer", tokenizer, "--data", temp / "text.txt", "--out", temp / name)
    run("export", temp / "chars", "--out", temp / "folder")


def same_and_other():
    text = sample(temp / "chars", "--tokens", 30)
    assert 0 < len(text) <= 31 and text.endswith("\n")
    assert sample(temp / "chars", "--tokens", 30, "--threads", 1) == text
    assert sample(temp / "chars", "--tokens", 30, "--seed", 1) == text
    assert sample(temp / "folder", "--tokens", 30) == text
    assert sample(temp / "chars", "--tokens", 30, "--seed", 2) != text
    three = sample(temp / "chars", "--tokens", 30, "--count", 3).split("---\n")
    assert len(three) == 3 and three[0] == text and three[1] != text
    greedy = sample(temp / "chars", "--tokens", 30, "--count", 2, "--temperature", 0).split("---\n")
    assert greedy[0] == greedy[1]
    assert sample(temp / "chars", "--tokens", 30, "--top-k", 1).strip() == greedy[0].strip()


def prompts():
    given = sample(temp / "chars", "--prompt", "Zoë asked", "--tokens", 10)
    assert given.startswith("Zoë asked") and len(given.rstrip("\n")) <= len("Zoë asked") + 10
    read = run("sample", temp / "chars", "--prompt", "-", "--tokens", 10, stdin="Zoë asked\n".encode())[0]
    assert read.decode() == given
    assert sample(temp / "chars", "--prompt", "", "--tokens", 10) == sample(temp / "chars", "--tokens", 10)
    whole = sample(temp / "bytes", "--prompt", "café", "--tokens", 20)
    assert whole.startswith("café")
    assert "�" not in sample(temp / "bytes", "--prompt", "caf", "--temperature", 0, "--tokens", 1).rstrip("\n")[:3]


def ends():
    trained = "the text ends at 32 tokens, the length the model was trained with; --context 64 lets it go on.\n"
    run("import", temp / "folder", "--out", temp / "imported")  # weights of which nobody knows how they were trained
    for words, length, sentence in (((temp / "chars",), 32, trained),
                                    ((temp / "chars", "--context", 16), 16, "the context of 16 tokens is full.\n"),
                                    ((temp / "chars", "--context", 64), 64, "the model's context of 64 tokens is full.\n"),
                                    ((temp / "folder",), 64, "the model's context of 64 tokens is full.\n"),
                                    ((temp / "imported",), 64, "the model's context of 64 tokens is full.\n")):
        full = 0
        for seed in range(8):
            out, err = run("sample", *words, "--tokens", 1000, "--prompt", "Z", "--seed", seed)
            assert "tokens/s" in err
            if f"pelago sample: {sentence}" in err:
                full += 1
                assert len(out.decode()) == length + 1  # what comes after the last token there is room for, and the end of the line
        assert full > 0, (words, err)
    assert "default: as the model was trained with" in " ".join(run("sample", "--help")[0].decode().split())
    # Unbuffered: what a buffer has read ahead is not in what communicate() returns.
    with subprocess.Popen([PELAGO, "sample", temp / "chars", "--count", "1000000"], bufsize=0, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        text = b""
        while len(text) < 200:
            text += p.stdout.read(200 - len(text)) or sys.exit("the texts ended before anybody stopped them")
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=60)
        assert p.returncode == 130 and (text + rest).endswith(b"\n") and "tokens/s" in err.decode(), (p.returncode, rest, err)


def refusals():
    refused("cannot be opened: No such file or directory", temp / "none")
    refused("neither a folder of checkpoints", temp)
    refused("expected one folder", code=2)
    refused("there is no checkpoint of step 7", temp / "chars", "--step", 7)
    refused("temperature must be 0", temp / "chars", "--temperature", "-1", code=2)
    refused("top-p must be from 0 to 1", temp / "chars", "--top-p", 1.5, code=2)
    refused("min-p must be from 0 to 1", temp / "chars", "--min-p", 2, code=2)
    for words in ((), ("--context", 64), ("--context", 16)):
        refused("but the model's context has room for 64", temp / "chars", "--prompt", "Zoë" * 30, *words)
    refused("was trained with sequences of 32: --context 64 lets it read on", temp / "chars", "--prompt", "Zoë" * 12)
    refused("more than --context 16", temp / "chars", "--prompt", "Zoë" * 12, "--context", 16)
    assert sample(temp / "chars", "--prompt", "Zoë" * 12, "--context", 64).startswith("Zoë" * 12)
    refused("--context is 65, but the model's context is 64", temp / "chars", "--context", 65, code=2)
    refused("there is no back end 'abacus'", temp / "chars", "--backend", "abacus", code=2)
    refused("", temp / "chars", "--prompt", "§")
    (temp / "folder" / "tokenizer.json").unlink()
    refused("the model has no tokenizer", temp / "folder")


with tempfile.TemporaryDirectory() as name:
    temp = Path(name)
    make_models()
    same_and_other()
    prompts()
    ends()
    refusals()
