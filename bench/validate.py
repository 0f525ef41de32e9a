#!/usr/bin/env python3
"""The same plan of faults on real processes and in the simulator, side by side: one line of JSON a scenario.

validate.py [--short] [--stub] [--row NAME,...] [--keep] [--pelago build/pelago]

Real: `pelago run --proxy` with 8 paced learners of 1m, broken by `pelago chaos`. Simulated: `pelago sim --plan` with the same
file, whose `sim` lines give the cluster the same shape. Both are looked at from 10 s after the plan's start, when all is
steady, to its end:

  utilisation   tokens trained, of what 8 learners at their pace would train
  goodput       tokens merged, of the same

The bar is 3 points for both, in each scenario. Leaves with 1 when one is missed. With --stub learners count steps by the clock
and train nothing: host, links and protocol alone, for a machine that has other things to do.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import harness

LEARNERS, PACE_MS, FROM_S = 8, 100, 10
BAR = 0.03

# Statements of docs/chaos.md; LAST leaves ten seconds and more to come back in. What begins at once has ten seconds to become
# steady.
SCENARIOS = {
    "quiet": [],
    "kills": ["every 5s from 10s kill random learner for 2s"],
    "mass": ["at 15s kill half learners for 8s"],
    "stops": ["every 6s from 10s stop random learner for 3s"],
    "stragglers": [],
    "slow-lines": ["at 1s link learners 1-4 rate 3Mbit latency 40ms"],
    "thin-lines": ["at 1s link learners 1-4 rate 1Mbit latency 40ms"],
    "resets": ["every 2s from 10s reset link random learner"],
    "partition": ["at 15s partition half learners for 12s"],
    "syncer": ["every 9s from 6s to LAST kill syncer 0 for 1s"],
}

# Learners that are slow all the time.
SPEEDS = {"stragglers": [1, 1, 1, 1, 1, 0.7, 0.5, 0.4]}

# The shape of the real cluster below; a fragment has as many bytes on the line as one of 1m in int4.
SIM = [f"set learners {LEARNERS}", f"set step {PACE_MS}ms", f"set step-tokens {harness.STEP_TOKENS}", "set fragments 24", "set period 24",
       "set overlap 2", "set quorum 1", "set spread 0", "set latency 100us", "set bandwidth 1000000000", "set dimensions 500000",
       "set local-data 0", "set checkpoint 60s", "set merge 1ms", "set sync 2ms"]


def speeds_of(name):
    return SPEEDS.get(name, [1] * LEARNERS)


def write_plan(path, name, until_s, *sim):
    plan = [line.replace("LAST", f"{until_s - 14}s") for line in SCENARIOS[name]]
    steps = [f"at 0s step learner {n + 1} {round(PACE_MS / x)}ms" for n, x in enumerate(speeds_of(name))]  # without jitter, as --pace
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(["seed 1", f"until {until_s}s", *plan, *("sim " + line for line in [*SIM, *steps, *sim])]) + "\n")


def simulated(args, name, until_s):
    """Tokens trained and merged until then."""
    plan = os.path.join(args.work, f"{name}-sim.plan")
    write_plan(plan, name, args.until_s, "set budget 1000000000", f"until {until_s}s")
    answer = subprocess.run([args.pelago, "sim", "--plan", plan], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) tokens trained, (\d+) merged", answer.stdout)
    if answer.returncode != 0 or not found:
        raise SystemExit(f"{name}: the simulation failed: {answer.stdout}{answer.stderr}")
    return int(found[1]), int(found[2])


def counts(c, patience_s=20):
    """Tokens trained and merged, of the run so far; a syncer may be on its way back."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        s = c.status()
        if s:
            return s["tokens"], s["merged_tokens"], time.monotonic()
        c.check()
        time.sleep(0.05)
    raise SystemExit(f"{c.folder}: no status within {patience_s} s: {c.said()}")


def real(args, name):
    """Tokens trained and merged between FROM_S and the plan's end, and how long that was."""
    plan = os.path.join(args.work, f"{name}.plan")
    write_plan(plan, name, args.until_s)
    c = harness.Cluster(args, name, "--proxy", "--checkpoint-every", "60s", *(["--stub-step", f"{PACE_MS}ms"] if args.stub else []),
                        *harness.paced(LEARNERS), "--pace", ",".join(f"{round(PACE_MS / x)}ms" for x in speeds_of(name)))
    try:
        c.wait_all(LEARNERS)
        chaos = subprocess.Popen([args.pelago, "chaos", c.folder, "--plan", plan], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        began = time.monotonic()
        time.sleep(FROM_S)
        before = counts(c)
        time.sleep(max(0, began + args.until_s - 0.5 - time.monotonic()))
        after = counts(c)
        if chaos.wait(timeout=60) != 0:
            raise SystemExit(f"{name}: pelago chaos failed")
        c.check()
    finally:
        c.stop()
    return tuple(b - a for a, b in zip(before, after))


def compare(args, name):
    trained, merged, seconds = real(args, name)
    early, late = simulated(args, name, FROM_S), simulated(args, name, args.until_s)
    rate = LEARNERS * harness.STEP_TOKENS * 1000 / PACE_MS
    sim_full, full = rate * (args.until_s - FROM_S), rate * seconds
    figures = {"utilisation": (trained / full, (late[0] - early[0]) / sim_full), "goodput": (merged / full, (late[1] - early[1]) / sim_full)}
    apart = max(abs(a - b) for a, b in figures.values())
    harness.emit(name, round(apart, 4), args.bar, apart <= args.bar,
                 **{key: {"real": round(a, 4), "simulated": round(b, 4)} for key, (a, b) in figures.items()}, seconds=round(seconds, 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--stub", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    args = p.parse_args()
    args.pelago = os.path.abspath(args.pelago)
    args.until_s = 35 if args.short else 70
    args.bar = 0.1 if args.short else BAR  # seconds on a machine that does other things, too
    args.work = tempfile.mkdtemp(prefix="pelago-validate-")
    try:
        for name in args.row.split(",") if args.row else SCENARIOS:
            compare(args, name)
    finally:
        if args.keep:
            print("kept:", args.work, file=sys.stderr)
        else:
            shutil.rmtree(args.work, ignore_errors=True)
    sys.exit(1 if harness.MISSED else 0)


if __name__ == "__main__":
    main()
