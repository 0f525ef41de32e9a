#!/usr/bin/env python3
"""traces.py PELAGO - recorded failures of real clusters become plans of faults, and the simulated cluster lives through them.

Reads ../shared/data/traces/*.csv beside the source; leaves with 77, skipped, where they are not. Each trace is squeezed into two
minutes for eight learners, both as slots and folded; what the plan must hold is counted in the trace itself.
"""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

SPAN_S, LEARNERS = 120, 8
STATEMENT = re.compile(r"at (\d+\.\d+)s (down|up|kill) learner (\d+)$")


def events_of(path):
    with open(path, encoding="utf-8", newline="") as f:
        return [(float(row["t_s"]), row["event"], row["node"]) for row in csv.DictReader(f)]


def plan_of(pelago, path, scale, fold):
    out = subprocess.run([pelago, "chaos", "--trace", path, "--time-scale", str(scale), "--learners", str(LEARNERS), "--print-plan",
                          *(["--fold"] if fold else [])], capture_output=True, text=True, check=True).stdout
    plan = [STATEMENT.match(line) for line in out.splitlines()]
    assert plan and all(plan), out[:500]
    return out, [(float(m[1]), m[2], int(m[3])) for m in plan]


def check_plan(events, plan, scale, fold):
    times = [t for t, _, _ in plan]
    assert times == sorted(times) and 0 <= times[0] and times[-1] <= SPAN_S + 0.001, times[-1]
    assert all(1 <= n <= LEARNERS for _, _, n in plan)
    recorded = {round(t / scale, 3) for t, _, _ in events}
    assert all(any(abs(t - r) <= 0.002 for r in recorded) for t in set(times)), "a fault at a time the trace does not have"
    down = set()
    for _, action, n in plan:  # nobody goes down twice or comes back from nowhere
        assert (n in down) == (action == "up"), (action, n)
        if action == "up":
            down.discard(n)
        elif action == "down":
            down.add(n)
    falls = sum(action != "up" for _, action, _ in plan)
    downs = sum(event == "down" for _, event, _ in events)
    came_back = {node for t, event, node in events if event == "up" and any(e == "down" and n == node and s < t for s, e, n in events)}
    if fold and not came_back:  # then every fall in the trace is one of the plan
        assert falls == downs, (falls, downs)
    assert 0 < falls <= downs, (falls, downs)


def main():
    pelago = sys.argv[1]
    folder = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data" / "traces"
    traces = sorted(folder.glob("*.csv"))
    if not traces:
        print(f"traces: skipped, there are no traces in {folder}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as temp:
        for path in traces:
            events = events_of(path)
            scale = max(t for t, _, _ in events) / SPAN_S
            for fold in (False, True):
                text, plan = plan_of(pelago, path, scale, fold)
                check_plan(events, plan, scale, fold)
                dry = subprocess.run([pelago, "chaos", "--trace", path, "--time-scale", str(scale), "--learners", str(LEARNERS), "--dry-run",
                                      *(["--fold"] if fold else [])], capture_output=True, text=True, check=True).stdout
                assert len(dry.splitlines()) == len(plan), dry[:500]
                file = pathlib.Path(temp) / "trace.plan"
                file.write_text(f"until {SPAN_S + 1}s\n" + text, encoding="utf-8")
                sim = subprocess.run([pelago, "sim", "--plan", file], capture_output=True, text=True, check=False)
                assert sim.returncode == 0 and ": good," in sim.stdout + sim.stderr, sim.stdout + sim.stderr
                print(f"ok {path.name}{' folded' if fold else ''}: {len(plan)} faults and returns of {len(events)} lines")


if __name__ == "__main__":
    main()
