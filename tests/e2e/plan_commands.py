#!/usr/bin/env python3
"""plan_commands.py PELAGO - pelago plan as people use it: pages, JSON, refusals, and a configuration that others take."""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PELAGO = str(Path(sys.argv[1]).resolve())
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "plan"
WAN = ROOT.parent / "shared" / "data" / "wan"
SITES = "--params 1G --chips 64,64 --link 1Gbit".split()


def run(*words, code=0):
    done = subprocess.run([PELAGO, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def refused(sentence, *words):
    """One sentence on stderr and nothing on stdout."""
    out, err = run("plan", *words, code=2)
    assert out == "" and err.count("\n") == 1 and err.startswith("pelago plan: ") and sentence in err, err


def test_examples():
    for example in sorted(EXAMPLES.glob("*.yaml")):
        began = time.monotonic()
        out, _ = run("plan", "--config", example)
        assert time.monotonic() - began < 2, f"{example} took long"
        assert max(map(len, out.split("\n"))) <= 160 and out.count("\n") <= 60, out
        for word in ("fragments", "period", "codecs", "syncer", "goodput", "time", "cost", "bottleneck"):
            assert word in out, f"{word} is missing:\n{out}"
        plan = json.loads(run("plan", "--config", example, "--json")[0])
        assert 0 < plan["goodput"] <= 1 and plan["time_s"] > 0 and len(plan["sites"]) > 1


def test_files(temp):
    """What is read is not written over, and what cannot be written leaves nothing behind."""
    plan = temp / "mine.yaml"
    plan.write_text("params: 1G\nchips: [64, 64]\n")
    refused("--write would go over --config, expected another file", "--config", plan, "--write", plan)
    run("plan", "--config", plan, "--write", temp / "no" / "run.yaml", code=1)
    if Path("/dev/full").exists():
        run("plan", "--config", plan, "--write", "/dev/full", code=1)
    assert sorted(p.name for p in temp.iterdir() if "mine" in p.name) == ["mine.yaml"]
    assert plan.read_text().startswith("params: 1G")


def test_worth():
    out, _ = run("plan", *SITES, "--price", "1,9")
    assert "warning: site-2 costs" in out and "site-1 costs" not in out, out


def test_refusals():
    refused("chips of site-2 is 0, expected a slice (4) to 100000000", "--params", "1G", "--chips", "64,0")
    refused("link is '-5Mbit', expected 1 kbit/s to 1000 Tbit/s, such as 500Mbit", *SITES, "--link", "-5Mbit")
    refused("quorum is 3, expected 1 to 2, the sites", *SITES, "--quorum", 3)
    refused("link of site-2 is 1000 kbit/s, expected at least", *SITES, "--link", "1Gbit,1Mbit", "--batch", "4M")
    refused("--chips is not given", "--params", "1G")
    refused("--params is not given, expected 1000 to 1000G, or --model", "--chips", 64)
    refused("--params and --model both say", *SITES, "--model", "1b")
    refused("--tflops has 3 values, expected one, or one for each of the 2 chips", *SITES, "--tflops", "1,2,3")
    refused("price of site-1 is out of its range, expected 0 to", *SITES, "--price", -1)
    refused("--up is 'int5', expected fp32, bf16, int8, int4, e3m0, int2, topk128, topk64 or topk32", *SITES, "--up", "int5")
    refused("--seeds is 'x', expected a range", "--check", "--seeds", "x")
    refused("--seeds is '1..2000', expected a range such as 1..10, of at most 1000", "--check", "--seeds", "1..2000")
    refused("--seeds goes with --check only", *SITES, "--seeds", "1..2")
    refused("--check and --bandwidth do not go together", "--check", "--bandwidth")
    refused("--check plans nothing of yours", "--check", *SITES)
    refused("--syncer names a region of --wan, which is not given", *SITES, "--syncer", "rome")
    refused("tokens is 2000, expected at least", *SITES, "--tokens", 2000)
    refused("unexpected 'word'", *SITES, "word")


def test_links_from_a_table(temp):
    _, err = run("plan", *SITES, "--wan", temp / "none.csv")
    assert "none.csv cannot be read" in err and "going on with link and latency" in err, err
    table = temp / "pairs.csv"
    table.write_text("region_a,region_b,delay_ms,bandwidth_gbps\nrome,oslo,50,2.5\nrome,kyiv,40,0.5\n")
    words = ("--params", "1G", "--chips", 64, "--wan", table, "--json")
    plan = json.loads(run("plan", "--sites", "rome,oslo,kyiv", *words)[0])
    assert plan["syncer"] == "rome" and [s["link_bits_s"] for s in plan["sites"]] == [1e10, 2.5e9, 5e8], plan
    refused("wan has no link between", "--sites", "rome,oslo", "--syncer", "paris", *words)
    table.write_text("a,b\n")
    refused("wan is neither", "--sites", "rome,oslo", *words)


def test_measured_tables():
    if not WAN.is_dir():
        print("no measured links here: skipped")
        return
    plan = json.loads(run("plan", "--config", EXAMPLES / "aws.yaml", "--wan", WAN / "skyplane_throughput.csv", "--json")[0])
    assert plan["syncer"].startswith("aws:") and min(s["link_bits_s"] for s in plan["sites"]) > 1e8
    plan = json.loads(run("plan", "--params", "1G", "--chips", 64, "--sites", "Oregon,Ohio,Tokyo", "--syncer", "Ohio",
                          "--wan", WAN / "dtfm_aws10.csv", "--json")[0])
    assert plan["sites"][0]["link_bits_s"] == 1.1e9


def test_the_configuration_is_taken(temp):
    config = temp / "run.yaml"
    run("plan", "--model", "1m", "--tokens", "64k", "--batch", 1024, "--chips", "1,1", "--slice", 1, "--tflops", 0.05,
        "--link", "10Mbit", "--write", config)
    report = temp / "run"
    run("run", "--config", config, "--out", report, "--threads", 1, "--quiet", "--eval-tokens", 1000)
    assert (report / "report.json").exists()
    large = temp / "large.yaml"
    run("plan", *SITES, "--write", large)
    keys = [line.split(":")[0] for line in large.read_text().split("\n") if ":" in line and not line.startswith("#")]
    help_page = run("syncer", "--help")[0]
    for key in keys:
        assert f"--{key} " in help_page, f"pelago syncer has no option {key}"


def test_tables():
    out, _ = run("plan", "--bandwidth")
    assert "130 cells" in out and " 0 more (a step" in out, out
    counts = json.loads(run("plan", "--bandwidth", "--json")[0])
    assert counts["more"] == 0 and counts["cells"] == 130
    out, _ = run("plan", "--check", "--seeds", "1..2")
    assert "held" in out, out


with tempfile.TemporaryDirectory() as folder:
    test_examples()
    test_files(Path(folder))
    test_worth()
    test_refusals()
    test_links_from_a_table(Path(folder))
    test_measured_tables()
    test_the_configuration_is_taken(Path(folder))
    test_tables()
print("good")
