#!/usr/bin/env python3
"""A tiny experiment from the command line: run, known again, renamed, and made into a table.

    tests/e2e/experiment_commands.py PELAGO
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = 0


def check(what, good):
    global CHECKS
    CHECKS += 1
    if not good:
        sys.exit(f"FAILED: {what}")


def sim(*words, code=0):
    done = subprocess.run([PELAGO, "sim", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    check(f"exit {code} of sim {' '.join(words)}: {done.stdout}{done.stderr}", done.returncode == code)
    return done.stdout + done.stderr


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_runs(folder):
    results = folder / "results.jsonl"
    tiny = ["--experiment", "experiments/tiny.yaml", "--short", "--results", str(results)]
    check("nothing is there", "0 there, 3 missing" in sim(*tiny, "--list") and not results.exists())
    check("three runs", "3 runs, 0 known before, 0 failed" in sim(*tiny))
    before = results.read_bytes()
    check("all are there", "3 there, 0 missing" in sim(*tiny, "--list") and results.read_bytes() == before)
    check("known again", "0 runs, 3 known before, 0 failed" in sim(*tiny))
    lines = lines_of(results)
    check("a line a run", [line["row"] for line in lines] == ["dp", "m1", "m4"])
    for line in lines:
        check("a loss below that of guessing", 0 < line["eval_loss"] < 7.7)
        check("bytes both ways", line["row"] == "dp" or min(line["outcome"]["bytes_up"], line["outcome"]["bytes_down"]) > 0)
    merged = {line["row"]: line["outcome"] for line in lines}
    check("as many tokens", merged["m4"]["merged_tokens"] >= merged["dp"]["merged_tokens"])
    check("fewer bytes", merged["m4"]["bytes_up"] * 10 < merged["dp"]["bytes_up"])
    whole = results.read_text(encoding="utf-8")
    results.write_text(whole[: whole.rindex('{"experiment"') + 40], encoding="utf-8")  # the last one was cut off
    check("one run is made again", "1 runs, 2 known before, 0 failed" in sim(*tiny))
    check("the same loss", lines_of_good(results)[-1]["eval_loss"] == lines[-1]["eval_loss"])
    return results


def lines_of_good(path):
    good = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            good.append(json.loads(line))
        except ValueError:
            pass
    return good


def test_another_name(folder, results):
    """A row that another experiment has made is noted, not made again."""
    text = (ROOT / "experiments/tiny.yaml").read_text(encoding="utf-8")
    other = folder / "other.yaml"
    other.write_text(text.replace("m4", "four"), encoding="utf-8")
    words = ["--experiment", str(other), "--short", "--results", str(results)]
    listed = sim(*words, "--list")
    check(f"listed: {listed}", "four seed 1 key" in listed and listed.count("there under another name") == 3)
    check("all known", "0 runs, 3 known before, 0 failed" in sim(*words))
    check("under its name", lines_of_good(results)[-1]["row"] == "four")


def test_table(folder, results):
    page = folder / "page.md"
    subprocess.run([sys.executable, ROOT / "experiments/tables.py", results, "--out", page], check=True,
                   stderr=subprocess.DEVNULL)
    text = page.read_text(encoding="utf-8")
    check("the rows", "| four |" in text and "| dp |" in text)
    check("marked as too few", "no verdict: 1 of 5 seeds" in text)


def test_table_follows_the_file(folder, results):
    """What a row is compared with and its bar are those of the experiment's file, not of the time when the line was written; so is the
    order of the rows. Rows that the file has no more, and pairs of two back ends, are named."""
    copy = folder / "experiments"
    copy.mkdir()
    for name in ("tables.py", "notes.md"):
        (copy / name).write_bytes((ROOT / "experiments" / name).read_bytes())
    lines = [line for line in lines_of_good(results) if line["experiment"] == "tiny"]
    for line in lines:
        line.update(experiment="learners", short=False, bar=9.0)
        line["outcome"]["backend"] = "abacus" if line["row"] == "m1" else "slide rule"
        line["outcome"]["merged_tokens"] = 20 * line["outcome"]["params"]
    copies = [dict(line, seed=seed) for seed in range(1, 6) for line in lines]
    (folder / "copies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in copies), encoding="utf-8")
    (copy / "learners.yaml").write_text("rows: [m4, m1]\nagainst: m4\nm1/bar: 55  # per cent\n", encoding="utf-8")
    page = folder / "page.md"
    command = [sys.executable, copy / "tables.py", folder / "copies.jsonl", "--out", page]
    subprocess.run(command, check=True)
    rows = [line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if " | 20.00 | " in line]
    check(f"the file's order: {rows}", [row[0] for row in rows] == ["| m4", "| m1", "| dp"])
    check(f"the file's bar: {rows[1]}", rows[1][4] == "m4" and rows[1][6] == "+55.0")
    check(f"both back ends: {rows[1]}", rows[1][7] == "holds; abacus against slide rule")
    check(f"no such row: {rows[2]}", "the file has no such row any more" in rows[2][7])
    check("the page is up to date", subprocess.run([*command, "--check"], check=False).returncode == 0)
    page.write_text(page.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    stale = subprocess.run([*command, "--check"], check=False, capture_output=True, text=True)
    check(f"a stale page: {stale.stderr}", stale.returncode == 1 and "run it" in stale.stderr)


def test_every_line_is_known():
    """Of every line behind docs/results.md this program says that it has it: the files still describe what was run."""
    wanted = {}
    for text in (ROOT / "experiments/results.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if not line["short"]:
            wanted.setdefault(line["experiment"], set()).add((line["row"], line["seed"], line["key"]))
    check("there are lines", len(wanted) > 10)
    for experiment, lines in sorted(wanted.items()):
        said = sim("--experiment", f"experiments/{experiment}.yaml", "--seeds", f"1..{max(seed for _, seed, _ in lines)}", "--list")
        for row, seed, key in sorted(lines):
            check(f"{experiment} {row} seed {seed} key {key}", f"{experiment} {row} seed {seed} key {key}: there\n" in said)


def test_wrong_use(folder):
    sim("--experiment", "nowhere.yaml", code=1)
    for what in ("--plan", "--script"):
        sim(what, "nowhere.txt", code=1)
    sim("--goodput", "--trace", "nowhere.csv", code=1)
    sim("--experiment", "experiments/tiny.yaml", "--row", "m9", code=2)
    sim("--experiment", "experiments/tiny.yaml", "--trace", code=2)
    sim("--short", code=2)
    sim("--list", code=2)
    bad = folder / "bad.yaml"
    bad.write_text("rows: [a]\nsync.nothing: 1\n", encoding="utf-8")
    said = sim("--experiment", str(bad), "--results", str(folder / "none.jsonl"), code=1)
    check("says which setting", "there is no setting sync.nothing" in said)


def test_files():
    """Every file of experiments/ can be read; what this build does not know is said row by row."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "experiments").glob("*.yaml")):
            said = sim("--experiment", str(path), "--row", "nobody", "--results", folder + "/none.jsonl", code=2)
            check(f"{path.name}: {said}", "has no row 'nobody'" in said)


PELAGO = str(pathlib.Path(sys.argv[1]).resolve())
with tempfile.TemporaryDirectory() as name:
    where = pathlib.Path(name)
    made = test_runs(where)
    test_another_name(where, made)
    test_table(where, made)
    test_table_follows_the_file(where, made)
    test_wrong_use(where)
test_files()
test_every_line_is_known()
print(f"{CHECKS} checks passed")
