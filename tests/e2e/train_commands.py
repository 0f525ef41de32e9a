#!/usr/bin/env python3
"""train_commands.py PELAGO - train, eval and bench as a person uses them.

A run that is interrupted by a signal and resumed ends with the very bytes of one that was not; wrong input is one
sentence with exit code 1 or 2 and leaves nothing behind; a full disk costs the save and nothing else. Needs nothing but
python3; the full disk is a small tmpfs where this user may mount one, else a limit on the size of files.
"""
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PELAGO = str(Path(sys.argv[1]).resolve())
TINY = "--layers 2 --width 32 --heads 2 --context 64 --tokenizer byte --batch 2 --seq 32 --eval-tokens 500".split()


def run(*words, code=0, **options):
    """stdout and stderr of a command that must leave with this code."""
    done = subprocess.run([PELAGO, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=250,
                          **options)
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def refused(sentence, *words, code=1):
    """A failing command says this, in one line, and changes nothing around it."""
    before = sorted(temp.rglob("*"))
    err = run(*words, code=code)[1]
    assert sentence in err and err.count("\n") == 1 and err.endswith(".\n"), f"{words}: {err}"
    assert sorted(temp.rglob("*")) == before, f"{words} left something behind"


def start(*words, **options):
    return subprocess.Popen([PELAGO, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for_steps(process, log, count):
    while not log.exists() or len(log.read_text().splitlines()) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def files(folder, *names):
    return {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.name.split("-")[0] in names}


# ---- a run, interrupted and not ----

def interruptions():
    words = ["train", *TINY, "--steps", 400, "--threads"]
    out = run(*words, 2, "--out", temp / "straight")[0]
    assert "400 steps of 64" in out and "validation: loss" in out and "the floor" in out and "it says" in out, out
    expected = files(temp / "straight", "model", "optimizer", "tokenizer")
    assert len(expected) == 3
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        folder, log = temp / f"cut{code}", temp / f"log{code}"
        process = start(*words, 2, "--out", folder, "--log", log)
        wait_for_steps(process, log, 20)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code and err == "", (process.returncode, err)
        assert f"to go on: pelago train --resume --out {folder}" in out, out
        cut = json.loads(log.read_text().splitlines()[-1])["step"]
        assert 20 <= cut < 400
        out = run("train", "--resume", "--out", folder, "--threads", 1, "--log", log)[0]
        assert f"going on after step {cut}" in out, out
        assert files(folder, "model", "optimizer", "tokenizer").items() >= expected.items(), "other bytes"
        steps = [json.loads(line) for line in log.read_text().splitlines()]
        assert [s["step"] for s in steps if "loss" in s] == list(range(1, 401))
        assert steps[-1]["valid_loss"] < steps[0]["loss"]
    refused("holds a run of 400 steps: --resume goes on with it", "train", *TINY, "--out", temp / "straight", code=2)
    for option in (["--width", 64], ["--model", "1m"], ["--seed", 5], ["--seq", 16], ["--optimizer", "muon"]):
        refused("cannot be changed by --resume", "train", "--resume", "--out", temp / "straight", *option, code=2)
    longer = run("train", "--resume", "--out", temp / "straight", "--steps", 410, "--quiet")[0]
    assert longer.startswith("validation: loss") and longer.count("\n") == 2, longer
    assert (temp / "straight" / "state-00000410.json").exists()


def kept_by_nohup():
    """Whoever says nohup trains on when the terminal goes away."""
    log = temp / "nohup.log"
    process = start("train", *TINY, "--steps", 400, "--threads", 1, "--out", temp / "nohup", "--log", log,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for_steps(process, log, 20)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "400 steps of 64" in out, (process.returncode, out, err)


def one_at_a_time():
    """A folder has one trainer; the one that comes later changes nothing."""
    folder, log = temp / "mine", temp / "mine.log"
    process = start("train", *TINY, "--steps", 100000, "--out", folder, "--log", log)
    wait_for_steps(process, log, 5)
    for words in (TINY, ["--resume"]):
        refused(f"another pelago is at work in {folder}: end it, or choose another with --out FOLDER.", "train", *words, "--out", folder)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and not list(folder.glob("pelago*"))


def others_files():
    """Names that somebody else may have in the folder: they stay as they are, whether the run is refused or not."""
    folder = temp / "theirs"
    folder.mkdir()
    for name in ("lock", "probe", "state.json"):
        (folder / name).write_text(name)
    (folder / "pelago.probe").symlink_to(folder / "probe")
    run("train", *TINY, "--steps", 2, "--out", folder)
    refused("holds a run of 2 steps", "train", *TINY, "--out", folder, code=2)
    (folder / "pelago.lock").write_text("a lock of mine")
    refused("the file pelago.lock in", "train", "--resume", "--steps", 3, "--out", folder, code=2)
    assert (folder / "pelago.lock").read_text() == "a lock of mine"
    assert all((folder / name).read_text() == name for name in ("lock", "probe", "state.json"))


def going_back():
    """Damage in the newest checkpoint: the one before it is named, and its later ones go with the next save."""
    folder = temp / "back"
    run("train", *TINY, "--steps", 6, "--save-every", 2, "--out", folder)
    expected = files(folder, "model")["model-00000006.safetensors"]
    (folder / "model-00000006.safetensors").write_bytes(expected[:-1] + b"x")
    for words in (["train", "--resume", "--out", folder], ["sample", folder],
                  ["eval", folder, "--data", "builtin:tales"], ["export", folder, "--out", temp / "x"]):
        refused("; --step 4 goes back to the checkpoint before it.", *words)
    out = run("train", "--resume", "--step", 4, "--out", folder)[0]
    assert "going on after step 4" in out and "the first save takes the place of the later" in out, out
    # The one that was given up was there until this one was: they have the same step, so its files have other names.
    assert files(folder, "model")["model-00000006-1.safetensors"] == expected
    assert not (folder / "model-00000006.safetensors").exists()
    run("inspect", folder)
    before = {p: p.read_bytes() for p in folder.iterdir()}
    for words in ([], ["--steps", 3]):
        out = run("train", "--resume", "--out", folder, *words)[0]
        assert out == "the run has its 384 tokens already; --tokens 768 goes on.\n", out
    assert {p: p.read_bytes() for p in folder.iterdir()} == before
    (folder / "optimizer-00000006-1.safetensors").unlink()
    run("sample", folder, "--tokens", 3)
    refused("optimizer-00000006-1.safetensors is missing", "train", "--resume", "--out", folder, "--steps", 9)
    refused("--step goes with --resume", "train", "--step", 4, "--out", folder, code=2)


def second_signal():
    """Ends a step of a minute at once; nothing was saved, so no folder is left."""
    process = start("train", *TINY, "--batch", 256, "--accumulate", 1000, "--steps", 2, "--out", temp / "gone")
    while "steps of" not in process.stdout.readline():
        assert process.poll() is None
    begin = time.monotonic()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert process.returncode in (130, -signal.SIGINT) and time.monotonic() - begin < 20
    assert [p.name for p in (temp / "gone").glob("*")] in ([], ["pelago.lock"])  # which holds nothing any more


def without_folder():
    out = run("train", *TINY, "--steps", 3, "--optimizer", "muon", "--schedule", "wsd", "--untied", "--qk-norm",
              "--recompute", "--kv-heads", 1, "--z-loss", 1e-4, "--accumulate", 2)[0]
    assert "not saved (no --out)" in out and "muon" in out, out


LINE = re.compile(r"step (\d+)/(\d+)  (\S+) of (\S+) tokens  loss (\d+\.\d{3})  (\S+) tokens/s(?:, (\d+)% of peak)?  "
                  r"((?:\d+[dhm] )?\d+[hms]) left  (\d+\.\d) GB")


def number(text):
    return float(text.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)


def expect_line(text, steps, losses):
    """What a line of progress says fits together and with the log: 64 tokens a step, the time left at this rate."""
    found = LINE.search(text)
    assert found, text
    step, total, tokens, of, loss, rate, _, left, gigabytes = found.groups()
    assert int(total) == steps and abs(number(of) / (64 * steps) - 1) < 0.01, text
    assert 0 < int(step) < steps and abs(number(tokens) / (64 * int(step)) - 1) < 0.01, text
    smooth = losses[0]
    for x in losses[1:int(step)]:
        smooth += 0.05 * (x - smooth)
    assert abs(float(loss) - smooth) < 0.002, (text, smooth)
    seconds = sum(int(part[:-1]) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[part[-1]] for part in left.split())
    expected = 64 * (steps - int(step)) / number(rate)
    unit = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1  # the last one shown
    assert abs(seconds - expected) < unit + 0.02 * expected, (text, expected)
    assert 0 <= float(gigabytes) < 10, text
    return found


def logged_losses(log):
    return [step["loss"] for step in map(json.loads, log.read_text().splitlines()) if "loss" in step]


def plain_lines():
    """Without a terminal a line every few seconds, each whole."""
    log = temp / "plain.log"
    process = start("train", *TINY, "--steps", 10000000, "--eval-every", 0, "--log", log)
    line = process.stdout.readline()
    while line and not line.startswith("step "):
        line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "" and line.endswith("\n"), (line, out, err)
    assert "\r" not in line + out and "\x1b" not in line + out, (line, out)
    expect_line(line, 10000000, logged_losses(log))


def live_line():
    """On a terminal one line is drawn again and again: step, tokens, loss, rate, share of the peak, time left."""
    main, child = pty.openpty()
    log = temp / "live.log"
    process = subprocess.Popen([PELAGO, "train", *TINY, "--steps", "20000", "--eval-every", "0", "--log", str(log)],
                               stdout=child, stderr=subprocess.PIPE)
    os.close(child)
    seen = b""
    while seen.count(b"\x1b[K") < 3:
        seen += os.read(main, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while part := os.read(main, 4096):
            seen += part
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 130 and process.stderr.read() == b"", seen
    drawn = [part for part in seen.decode().split("\r") if part.startswith("step ")]
    assert len(drawn) >= 3 and all("\x1b[K" in part for part in drawn), seen
    found = [expect_line(part, 20000, logged_losses(log)) for part in drawn]
    assert all(f.group(7) is not None for f in found), seen  # the share of the peak
    assert [int(f.group(1)) for f in found] == sorted({int(f.group(1)) for f in found}), seen


# ---- evaluation and benchmark ----

def evaluations():
    out = run("eval", temp / "straight", "--data", "builtin:tales", "--tokens", 500, "--seq", 32, "--json")[0]
    report = json.loads(out)
    printed = run("train", "--resume", "--out", temp / "straight", "--steps", 411, "--lr", 1e-9, "--quiet")[0]
    assert abs(report["loss"] - float(printed.split()[2])) < 0.01, (report, printed)
    assert report["floor_loss"] < report["loss"] and report["bits_per_byte"] > report["floor_bits_per_byte"]
    # Without --seq as it was trained, by its own figure; what was imported does not know.
    tales = ("--data", "builtin:tales", "--tokens", 500, "--json")
    assert report["seq"] == 32 and json.loads(run("eval", temp / "straight", *tales, "--step", 410)[0]) == report
    other = json.loads(run("eval", temp / "straight", *tales, "--step", 410, "--seq", 64)[0])
    assert other["seq"] == 64 and other["loss"] != report["loss"], (other, report)
    assert "tokens of builtin:tales, in sequences of 32)" in run("eval", temp / "straight", *tales[:4])[0]
    assert "default: as the model was trained with" in " ".join(run("eval", "--help")[0].split())
    choices = temp / "choices.txt"
    choices.write_text("0 2\nThe miller\t went home.\nThe miller\t@@@@@@@@@@@\n" * 3 + "0 1\nOnce\t upon\n")
    text = run("eval", temp / "straight", "--choices", choices)[0]
    assert "accuracy 100.00% by likelihood" in text and "3 questions" in text and "1 endings" in text, text
    limited = json.loads(run("eval", temp / "straight", "--choices", choices, "--limit", 2, "--json")[0])
    assert limited["seq"] == 32 and limited["questions"] == 2 and limited["endings"] == 0 and limited["chance"] == 0.5
    refused("line 2 of", "eval", temp / "straight", "--choices", write("bad.txt", "0 2\nno tab\n"))
    for bad in ("bad.txt", "no choices.txt"):  # said before the loss is computed
        assert run("eval", temp / "straight", "--data", "builtin:tales", "--choices", temp / bad, code=1)[0] == ""
    refused("expected one folder, and --data", "eval", temp / "straight", code=2)
    refused("the model's context is 64", "eval", temp / "straight", "--data", "builtin:tales", "--seq", 65, code=2)
    refused("there is no builtin:sea", "eval", temp / "straight", "--data", "builtin:sea", code=2)
    refused("no step.txt", "eval", temp / "straight", "--data", temp / "no step.txt")
    refused("neither a folder of checkpoints (no state-*.json) nor a Hugging Face folder", "eval", temp, "--data",
            "builtin:tales")
    run("export", temp / "straight", "--out", temp / "hf")
    from_hf = json.loads(run("eval", temp / "hf", "--data", "builtin:tales", "--tokens", 500, "--seq", 32, "--json")[0])
    assert from_hf["loss"] == report["loss"]
    run("import", temp / "hf", "--out", temp / "adopted")
    for folder in ("hf", "adopted"):
        assert json.loads(run("eval", temp / folder, *tales)[0])["seq"] == 64, folder  # its context, which is below 256
    weights = temp / "hf" / "model.safetensors"
    broken = bytearray(weights.read_bytes())
    broken[-4:] = struct.pack("<f", float("nan"))
    weights.write_bytes(broken)
    refused("not a finite number: the model's weights are broken", "eval", temp / "hf", "--choices", choices)
    refused("the validation loss is not a finite number", "eval", temp / "hf", "--data", "builtin:tales", "--tokens", 500)
    for option in (["--context", 32], ["--untied"], ["--qk-norm"], ["--width", 64], ["--model", "1m"], ["--vocab", 300]):
        refused("imported weights have their dimensions", "train", "--resume", "--out", temp / "adopted", *option, code=2)
    refused("imported weights have their tokenizer", "train", "--resume", "--out", temp / "adopted", "--tokenizer", "byte",
            code=2)
    shutil.copytree(temp / "adopted", temp / "adopted long")
    out = run("train", "--resume", "--out", temp / "adopted long", "--batch", 2, "--steps", 1)[0]
    assert " tokens in 1 steps of 128," in out and "as the model was trained with" not in out, out
    out = run("train", "--resume", "--out", temp / "adopted", "--seq", 32, "--batch", 2, "--steps", 3, "--lr", 1e-5)[0]
    assert abs(float(out.split("validation: loss ")[1].split()[0]) - report["loss"]) < 0.3, out


def benchmark():
    line = json.loads(run("bench", "trainer", "--model", "1m", "--batch", 1, "--seq", 32, "--seconds", 0.1, "--json")[0])
    assert line["tokens_per_s"] > 0 and line["model"] == "1m" and line["steps"] >= 3
    assert "tokens/s" in run("bench", "trainer", "--model", "1m", "--batch", 1, "--seq", 32, "--seconds", 0.1)[0]
    refused("there is none called 2m", "bench", "trainer", "--model", "2m", code=2)
    refused("there is none called 2m", "bench", "sample", "--model", "2m", code=2)
    refused("expected what to measure", "bench", code=2)


# ---- things that are wrong ----

def write(name, text):
    path = temp / name
    path.write_text(text)
    return path


def wrong_input():
    text = write("poem.txt", "the sea, the sea, and nothing but the sea\n" * 200)
    out = ["--out", temp / "x"]
    for words, sentence, code in (
            (["--data", temp / "none.txt"], "none.txt", 1),
            (["--data", write("empty.txt", "")], "the corpus is empty", 1),
            (["--data", write("end.txt", "<|endoftext|>\n")], "the corpus is empty", 1),
            (["--data", write("bad.jsonl", '{"text": 5}\n'), "--tokenizer", "byte"], 'no field "text"', 1),
            (["--data", write("few.txt", "a few"), "--tokenizer", "byte"], "fewer than one sequence", 1),
            (["--data", text, "--tokenizer", temp / "none.json"], "none.json", 1),
            (["--data", text, "--model", "1m", "--vocab", 100], "at least 257", 2),
            (["--data", "builtin:sea"], "builtin:tales is the only one built in", 2),
            (["--data", write("t.bin", "text\0")], "t.bin is not text: it has a zero byte at 4", 1),
            (["--data", write("no.tok", "text " * 50)], "is not a token file: it does not begin with PELAGOTK", 1),
            (["--data", text, "--valid", temp / "none"], "none", 1),
            (["--width", 30, "--layers", 1, "--heads", 4, "--vocab", 300], "multiple of its heads", 2),
            (["--width", 32, "--layers", 1, "--heads", 4, "--kv-heads", 3, "--vocab", 300], "divides its heads", 2),
            (["--width", 33, "--layers", 1, "--heads", 3, "--vocab", 300], "head_dim is 11, expected an even", 2),
            (["--width", 32], "--layers and --width are needed", 2),
            (["--layers", 1, "--width", 32], "--vocab is needed", 2),
            (["--model", "3m"], "the presets are 1m", 2),
            (["--lr", -1], "--lr is -1, expected a rate above 0", 2),
            (["--min-lr", -1], "--min-lr is -1, expected a rate from 0 to --lr", 2),
            (["--clip", -1], "--clip is -1, expected 0", 2),
            (["--weight-decay", 101], "--weight-decay is 101, expected 0 to 100", 2),
            (["--beta1", 1], "--beta1 is 1, expected at least 0 and below 1", 2),
            (["--lr", "fast"], "--lr is 'fast'", 2),
            (["--schedule", "linear"], "expected cosine, wsd or constant", 2),
            (["--optimizer", "sgd"], "expected adamw or muon", 2),
            (["--tokens", 5, "--steps", 5], "give one", 2),
            (["--warmup", "2h"], "expected steps such as", 2),
            (["--warmup", "20M", "--tokens", "10M"], "warm-up", 2),
            (["--seq", 2048], "context of 1024", 2),
            (["--backend", "tpu"], "tpu", 2),
            (["words"], "unexpected 'words'", 2),
            (["--resume"], "", 1),
            (["--log", temp / "none" / "log"], "could not be opened", 1),
    ):
        refused(sentence, "train", *words, *out, code=code)
    refused("none.txt", "train", "--data", temp / "none.txt", "--out", temp / "a" / "b//c" / "")
    refused("--resume needs --out", "train", "--resume", code=2)
    refused("cannot be made", "train", *TINY, "--out", text / "x")


def interrupted_encode():
    """Ctrl-C while the text comes in: nothing of the token file is left."""
    text = temp / "poem.txt"
    run("data", "tokenizer", text, "--kind", "byte", "--out", temp / "byte.json")
    before = sorted(temp.rglob("*"))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        words = ["data", "encode", "--tokenizer", temp / "byte.json", "--out", temp / "half.tok", "-"]
        process = subprocess.Popen([PELAGO, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        while not (temp / "half.tok.tmp").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=60) == code, process.communicate()
        process.communicate()
        assert sorted(temp.rglob("*")) == before


def wrong_tokens():
    text = temp / "poem.txt"
    run("data", "tokenizer", text, "--kind", "byte", "--out", temp / "byte.json")
    run("data", "encode", text, "--tokenizer", temp / "byte.json", "--out", temp / "poem.tok")
    run("train", *TINY, "--data", temp / "poem.tok", "--tokenizer", temp / "byte.json", "--steps", 2)
    dims = [w for w in TINY if w not in ("--tokenizer", "byte")]
    out = run("train", *dims, "--data", temp / "poem.tok", "--vocab", 257, "--steps", 2, "--out", temp / "silent")[0]
    assert "pelago sample" not in out and "without a tokenizer" in out and "to train on: pelago train" in out, out
    run("train", "--resume", "--steps", 3, "--out", temp / "silent")
    refused("--vocab 288 would do", "train", *dims, "--data", temp / "poem.tok", "--vocab", 200, "--out", temp / "x")
    run("data", "tokenizer", text, "--kind", "char", "--out", temp / "char.json")
    refused("--from is 999999, but the file has", "data", "decode", temp / "poem.tok", "--tokenizer", temp / "byte.json",
            "--from", 999999, code=2)
    for out in (text, temp / "byte.json"):
        refused("give it another name", "data", "encode", text, "--tokenizer", temp / "byte.json", "--out", out, code=2)
    refused("give it another name", "data", "tokenizer", text, "--out", text, code=2)
    refused("made with another tokenizer", "train", *dims, "--vocab", 300, "--data", temp / "poem.tok", "--tokenizer",
            temp / "char.json")


def no_number():
    """A rate and a decay that blow up within some steps; what was saved before is still there."""
    words = ["train", *TINY, "--lr", 100, "--weight-decay", 100, "--warmup", 0, "--schedule", "constant", "--steps", 99]
    err = run(*words, "--out", temp / "blown", code=1)[1]
    assert "is not" in err and "try a lower learning rate" in err and err.count("\n") == 1, err
    assert not (temp / "blown").exists()
    err = run(*words, "--out", temp / "blown", "--save-every", 1, code=1)[1]
    assert "is saved in" in err, err
    run("inspect", temp / "blown")


def full_disk():
    folder, mounted = temp / "disk", False
    folder.mkdir()
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)]
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    limit = None if mounted else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    try:
        words = ["train", *TINY, "--out", folder, "--layers", 8]
        err = run(*words, "--steps", 5, code=1, preexec_fn=limit)[1]
        assert "no space left" in err and err.count("\n") == 1, err
        assert not list(folder.iterdir()), list(folder.iterdir())
        # With room for one checkpoint and not for the next the first stays whole; saves that fail do not stop training.
        if mounted:
            words[-1] = 2
            out, err = run(*words, "--steps", 8, "--save-every", 3, code=1)
            assert err.count("no space left") == 2 and "is not saved; training goes on" in out, (out, err)
            assert "all checksums agree" in run("inspect", folder)[0]
            names = sorted(p.name.split("-")[0] for p in folder.iterdir())
            assert names == ["model", "optimizer", "state", "tokenizer"], names
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
    print(f"# full disk: {'a tmpfs' if mounted else 'a limit on file sizes (no right to mount)'}")


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup
with tempfile.TemporaryDirectory() as folder_name:
    temp = Path(folder_name)
    for test in (interruptions, kept_by_nohup, one_at_a_time, others_files, going_back, second_signal, without_folder, plain_lines,
                 live_line, evaluations, benchmark, wrong_input, interrupted_encode, wrong_tokens, no_number, full_disk):
        test()
        print(f"ok - {test.__name__.replace('_', ' ')}", flush=True)
