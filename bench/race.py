#!/usr/bin/env python3
"""The race: pelago's trainer against PyTorch, on two cores of this machine, in one run.

race.py [--rounds 3] [--seconds 5] [--only 14m,124m,124m-short,fp32,scaling,memory] [--python PYTHON] [--bench PROGRAM]

One JSON line per row on stdout, a table on stderr. Each round runs ours and then every variant of PyTorch in turn, and
the best of each counts: hosts are shared, and slow minutes must hit both. A bfloat16 result of PyTorch counts only where
oneDNN says that it used AMX, on a machine that has it: an opponent that misses the tiles is no opponent. Without AMX the
figures are printed and no bar is judged. Needs only build/bench_trainer, this file and torch_trainer.py.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HALF = ["bf16", "bf16-plain", "autocast", "autocast-plain"]
ROWS = [  # name, arguments of both, backend of ours, variants of theirs, bar
    ("14m", dict(model="14m", batch=8, seq=256), None, HALF + ["bf16-plain-compile"], 3.0),
    ("124m", dict(model="124m", batch=4, seq=256), None, HALF, 2.5),
    ("124m-short", dict(model="124m", batch=4, seq=64), None, HALF, 2.0),
    ("fp32", dict(model="14m", batch=8, seq=256), "avx512", ["fp32", "fp32-plain"], 1.2),
]


def words(options):
    return [w for name, value in options.items() for w in (f"--{name}", str(value))]


class Race:
    def __init__(self, args):
        self.args = args
        self.amx = "amx_bf16" in Path("/proc/cpuinfo").read_text()
        cores = sorted(os.sched_getaffinity(0))[:2]
        self.pin = ["taskset", "-c", ",".join(map(str, cores))] if shutil.which("taskset") else []
        self.torch = self.run([args.python, "-c", "import torch; print(torch.__version__)"], 120)
        self.reached = {}  # variant -> whether oneDNN said amx

    @staticmethod
    def run(command, limit, env=None):
        """Its output, or None when it fails or takes too long."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=env)
        except (subprocess.TimeoutExpired, OSError):
            return None
        return done.stdout if done.returncode == 0 else None

    @staticmethod
    def result(output):
        lines = [line for line in (output or "").splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else None

    def ours(self, options, threads=2, backend=None, pin=None):
        options = dict(options, threads=threads, seconds=self.args.seconds, **({"backend": backend} if backend else {}))
        return self.result(self.run((self.pin if pin is None else pin) + [self.args.bench, "--json"] + words(options), 600))

    def theirs(self, options, variant):
        options = dict(options, threads=2, seconds=self.args.seconds, variant=variant)
        return self.result(self.run(self.pin + [self.args.python, str(HERE / "torch_trainer.py")] + words(options), 180))

    def uses_amx(self, variant):
        if variant not in self.reached:
            command = self.pin + [self.args.python, str(HERE / "torch_trainer.py")]
            command += words(dict(model="1m", batch=2, seq=64, threads=2, seconds=0, variant=variant))
            said = self.run(command, 180, dict(os.environ, ONEDNN_VERBOSE="1"))
            self.reached[variant] = "amx" in (said or "")
        return self.reached[variant]

    def row(self, name, options, backend, variants, bar):
        ours, theirs = None, {}
        for _ in range(self.args.rounds):
            got = self.ours(options, backend=backend)
            if got and (ours is None or got["tokens_per_s"] > ours["tokens_per_s"]):
                ours = got
            for variant in variants if self.torch else []:
                if theirs.get(variant, 1) is None:
                    continue  # it failed or took too long before
                got = self.theirs(options, variant)
                best = theirs.get(variant) or 0
                theirs[variant] = max(best, got["tokens_per_s"]) if got else (best or None)
        half = backend is None
        refused = [v for v, speed in theirs.items() if speed and half and self.amx and not self.uses_amx(v)]
        counted = {v: s for v, s in theirs.items() if s and v not in refused}
        best = max(counted, key=counted.get, default=None)
        line = {"row": name, **options, "threads": 2, "backend": ours and ours["backend"],
                "ours": ours and ours["tokens_per_s"], "theirs": counted.get(best), "variant": best,
                "torch": (self.torch or "").strip() or None, "all": theirs, "refused_without_amx": refused,
                "amx": self.amx, "bar": bar}
        if ours and best:
            line["ratio"] = round(ours["tokens_per_s"] / counted[best], 2)
        judged = "ratio" in line and (self.amx or not half)
        line["verdict"] = ("pass" if line["ratio"] >= bar else "miss") if judged else "not judged"
        return line

    def scaling(self):
        options, one, two, pair = dict(model="14m", batch=8, seq=256), 0, 0, 0
        cores = [["taskset", "-c", str(c)] for c in sorted(os.sched_getaffinity(0))[:2]] if self.pin else [[], []]
        for _ in range(self.args.rounds):
            one = max(one, self.ours(options, threads=1, pin=cores[0])["tokens_per_s"])
            two = max(two, self.ours(options)["tokens_per_s"])
            command = [self.args.bench, "--json"] + words(dict(options, threads=1, seconds=self.args.seconds))
            both = [subprocess.Popen(pin + command, stdout=subprocess.PIPE, text=True) for pin in cores]
            pair = max(pair, sum(self.result(p.communicate()[0])["tokens_per_s"] for p in both))
        for name, speed, bar in (("two threads", two, 1.8), ("two processes", pair, 1.9)):
            ratio = round(speed / one, 2)
            yield {"row": name, **options, "ours": speed, "one": one, "ratio": ratio, "bar": bar,
                   "verdict": "pass" if ratio >= bar else "miss"}

    def memory(self):
        got = self.ours(dict(model="124m", batch=4, seq=1024))
        used = got.get("max_rss_bytes") or got["bytes"]
        bar = 18 * got["params"] + 2e9
        return {"row": "memory", "model": "124m", "batch": 4, "seq": 1024, "backend": got["backend"], "bytes": used,
                "params": got["params"], "bytes_per_param_beyond_2GB": round((used - 2e9) / got["params"], 2),
                "bar": 18, "verdict": ("pass" if used <= bar else "miss") if got["backend"] == "amx" or self.amx
                else "not judged"}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=5)
    ap.add_argument("--only", default="")
    ap.add_argument("--python", default=os.environ.get("PYTHON", "python3"))
    ap.add_argument("--bench", default=str(HERE.parent / "build" / "bench_trainer"))
    args = ap.parse_args()
    race, only = Race(args), set(filter(None, args.only.split(",")))
    if not race.torch:
        print(f"race: {args.python} has no torch, so pelago runs alone (PYTHON names another)", file=sys.stderr)
    lines = []

    def show(line):
        lines.append(line)
        print(json.dumps(line), flush=True)

    for row in ROWS:
        if not only or row[0] in only:
            show(race.row(*row))
    if not only or "scaling" in only:
        for line in race.scaling():
            show(line)
    if not only or "memory" in only:
        show(race.memory())
    for line in lines:
        print(f"{line['row']:14} ours {line.get('ours') or line.get('bytes'):>12,}  theirs {line.get('theirs') or '-':>8} "
              f"{line.get('variant') or '':16} ratio {line.get('ratio', '-'):>5}  bar {line['bar']}  {line['verdict']}",
              file=sys.stderr)


if __name__ == "__main__":
    main()
