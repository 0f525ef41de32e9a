#!/usr/bin/env python3
"""run_algorithms.py PELAGO - pelago run with each algorithm, from the command line to the report: real processes, some seconds each."""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

TOKENS = 2 * 2 * 64 * 40


def run(pelago, folder, algorithm):
    """The report of two learners that train a little together."""
    done = subprocess.run([pelago, "run", "--out", folder, "--algorithm", algorithm, "--learners", "2", "--threads", "1", "--model", "1m",
                           "--batch", "2", "--seq", "64", "--warmup", "4", "--tokens", str(TOKENS), "--eval-tokens", "20k", "--quiet"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validation: loss" in done.stdout, done.stdout
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def check(pelago, report, algorithm, folder):
    result, learners = report["result"], report["learners"]
    assert report["settings"]["algorithm"] == algorithm
    assert sum(one["tokens"] for one in learners) >= TOKENS and all(one["starts"] == 1 for one in learners), learners
    model = subprocess.run([pelago, "inspect", folder, "--json"], capture_output=True, text=True, check=True)  # and whole
    nothing = math.log(json.loads(model.stdout)["config"]["vocab"])  # the loss of a model that knows nothing
    assert 0 < result["loss"] < nothing - 0.2, (result["loss"], nothing)
    if algorithm != "decoupled":  # everybody takes every step
        assert learners[0]["steps"] == learners[1]["steps"] == TOKENS // (2 * 2 * 64), learners
    assert (folder / "report.md").stat().st_size > 0


def words_of(pelago, *words, code=0):
    done = subprocess.run([pelago, *map(str, words)], capture_output=True, timeout=120, check=False)
    assert done.returncode == code, (words, done)
    return done.stdout, done.stderr.decode()


def cleaned(text):
    """As a report has it: what a terminal may obey, and what is no text, is a question mark."""
    return re.sub("[\x00-\x09\x0b-\x1f\x7f-\x9f\udc80-\udcff]", "?", text.decode(errors="surrogateescape"))


def check_again(pelago, report, algorithm, folder):
    """Those who ask later get the report's figures without saying how the model was trained, wherever they find it."""
    result, tales = report["result"], ("--data", "builtin:tales", "--tokens", "20k", "--json")
    places = [folder, folder / "syncer"]
    if algorithm != "decoupled":
        places = [folder] + [path.parent for path in folder.glob("learner-*/state-*.json")]
        err = words_of(pelago, "sample", folder / "syncer", code=1)[1]
        where = f"the model of a {algorithm} run is in the folder of a learner, the --dir of the one that joined first"
        assert where in err and err.count("\n") == 1, err
        assert any("the learner that joined first has the model" in log.read_text() for log in folder.glob("log/syncer*"))
    assert len(places) >= 2, sorted(folder.rglob("*"))
    for place in places:
        again = json.loads(words_of(pelago, "eval", place, *tales)[0])
        assert again["seq"] == 64 and again["tokens"] == result["eval_tokens"], (again, result)
        assert abs(again["loss"] - result["loss"]) < 1e-5, (place, again, result)
        text, err = words_of(pelago, "sample", place)
        assert cleaned(text).rstrip("\n ") == result["sample"].rstrip("\n "), (place, text, result["sample"])
        assert "pelago sample: 64 tokens" not in err or "the text ends at 64 tokens, the length the model was trained with" in err, err


def main():
    pelago = sys.argv[1]
    with tempfile.TemporaryDirectory() as temp:
        for algorithm in ("decoupled", "diloco", "data_parallel"):
            folder = pathlib.Path(temp) / algorithm
            report = run(pelago, folder, algorithm)
            check(pelago, report, algorithm, folder)
            check_again(pelago, report, algorithm, folder)
            print(f"ok {algorithm}: loss {report['result']['loss']:.3f} in {report['result']['seconds']:.1f} s")


if __name__ == "__main__":
    main()
