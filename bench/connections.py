#!/usr/bin/env python3
"""How many learners one syncer process carries, and in how much memory: one line of JSON a figure.

connections.py [--short] [--row connections,memory] [--learners N] [--at-once] [--model 14m] [--keep] [--pelago build/pelago]

Row connections: N learner processes without a trainer (`pelago learner --stub-step 1s`: steps by the clock, made-up changes; sockets, TLS, protocol,
encoding and merges are real) on one syncer, all from one address: 1,000, with --short 60. They are started a few at a time,
as fast as they get in, or with --at-once all in one moment; they are nice to the syncer, because on other machines they would
bring processors of their own. The soft limit of open files is 256 when the
syncer starts; raising it is its own business. When everybody is merged it watches for a while:

  connections          every learner merged; the oldest report, of every learner and every look, is at most 2 s old (10 with --short)
  connections-cost     the syncer's memory, and its processor time per second, for the reader

Row memory: eight such learners whose changes fill every update (--stub-dense), steps of 250 ms (100 with --short), on a syncer of --model and on one of the smallest model. The difference of their
peaks (VmHWM) is what the larger model needs; it is compared with the difference of this sum:

  memory               parameters x 12 bytes + (tau_eff + 1) x learners x one encoded fragment + 4 bytes a parameter for the ring;
                       with --short, half as much again: seconds show what is kept for good, not what comes and goes

Leaves with 1 when a bar is missed.
"""
import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import MISSED, emit, end_with_what_was_started  # noqa: E402

STARTING_MAX = 24  # learners on their way in at a time


class Crowd:
    """A syncer and learners without trainers, each a process."""

    def __init__(self, args, learners, model="1m", step="1s", options=()):
        self.step, self.options = step, options
        self.pelago, self.learners = os.path.abspath(args.pelago), learners
        self.folder = os.path.join(args.work, model)
        self.home = os.path.join(self.folder, "home")
        os.mkdir(self.folder)
        self.log = open(os.path.join(self.folder, "syncer.log"), "w", encoding="utf-8")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.syncer = subprocess.Popen(
            [self.pelago, "syncer", "--dir", self.home, "--listen", "127.0.0.1:0", "--learners", str(learners),
             "--learners-max", str(learners), "--model", model, "--data", "builtin:tales", "--batch", "2", "--seq", "128",
             "--tokens", "10000000000"], stdout=self.log, stderr=self.log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
        self.processes = []
        self.token = ""
        self.starting_max = learners if args.at_once else STARTING_MAX

    def ask(self, *words):
        return subprocess.run([self.pelago, *words], capture_output=True, text=True, check=False)

    def status(self):
        if self.syncer.poll() is not None:
            raise SystemExit(f"the syncer ended with {self.syncer.returncode}: {self.folder}/syncer.log")
        answer = self.ask("status", self.home, "--json")
        try:
            return json.loads(answer.stdout) if answer.returncode == 0 else None
        except ValueError:
            return None

    def add(self):
        n = len(self.processes) + 1
        with open(os.path.join(self.folder, f"learner-{n}.log"), "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                [self.pelago, "learner", "--dir", os.path.join(self.folder, f"learner-{n}"), "--join", self.token, "--threads",
                 "1", "--nice", "19", "--stub-step", self.step, *self.options, "--checkpoint-every", "1h"], stdout=log, stderr=log))

    def invite(self, seconds=20):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = self.ask("invite", self.home, "--uses", str(self.learners))
            if answer.returncode == 0:
                self.token = max(answer.stdout.split(), key=len)
                return
            time.sleep(0.2)
        raise SystemExit("the syncer does not invite: " + answer.stderr)

    def gather(self, seconds):
        """Starts them all; the last status, and how long it took until every learner was merged once."""
        begin = time.monotonic()
        s = None
        while time.monotonic() < begin + seconds:
            s = self.status() or s
            alive = s["alive"] if s else 0
            while len(self.processes) < min(self.learners, alive + self.starting_max):
                self.add()
            if s and alive >= self.learners and merged_of(s) >= self.learners:
                break
            time.sleep(0.1 if len(self.processes) < self.learners else 0.5)
        return s, time.monotonic() - begin

    def watch(self, seconds):
        """What was heard least lately, at every look, and the first and last status. A look without an answer is a miss."""
        ages, first, last = [], None, None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s = self.status()
            ages.append(max(x["silent_s"] for x in s["learners"]) if s else float("inf"))
            last = s or last
            first = first or last
            time.sleep(1)
        return ages, first, last

    def stop(self):
        for p in [*self.processes, self.syncer]:
            p.send_signal(signal.SIGKILL)
        for p in [*self.processes, self.syncer]:
            p.wait()
        self.log.close()


def merged_of(s):
    return sum(x["rounds_merged"] > 0 for x in s["learners"])


def memory_of_learners(c):
    """Mean proportional memory of a few learners, in bytes."""
    sizes = []
    for p in c.processes[:5]:
        try:
            with open(f"/proc/{p.pid}/smaps_rollup", encoding="utf-8") as f:
                sizes += [int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:")]
        except OSError:
            pass
    return sum(sizes) / max(1, len(sizes))


def row_connections(args):
    learners = args.learners or (60 if args.short else 1000)
    age_bar_s = 10.0 if args.short else 2.0  # the short form runs beside other things
    c = Crowd(args, learners)
    try:
        c.invite()
        _, took = c.gather(22 if args.short else 400)
        ages, first, last = c.watch(6 if args.short else 30)
        merged = merged_of(last)
        lost = last["lost"] - first["lost"]
        emit("connections", {"merged": merged, "oldest_report_s": round(max(ages), 2)},
             {"merged": learners, "oldest_report_s": age_bar_s},
             merged >= learners and max(ages) <= age_bar_s and lost == 0, learners=learners, at_once=args.at_once, alive=last["alive"], lost=lost,
             looks=len(ages), started_in_s=round(took, 1), lost_while_starting=first["lost"])
        span = last["uptime_s"] - first["uptime_s"]
        cpu = (last["cpu_s"] - first["cpu_s"]) / span
        emit("connections-cost", {"memory_bytes": last["memory_bytes"], "cpu_per_s": round(cpu, 3)}, "printed", None,
             connections=last["connections"], bytes_up_per_s=round((last["bytes_up"] - first["bytes_up"]) / span),
             merges_per_s=round((last["merges"] - first["merges"]) / span, 2), merged_alive=last["merged_alive"],
             push_bytes=last["push_bytes"], learner_memory_bytes=round(memory_of_learners(c)))
    finally:
        c.stop()


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def allowed_bytes(s):
    """What the model and the learners of a status may cost a syncer."""
    largest = max(f["values"] for f in s["fragments"])
    encoded = largest / 2 + 2 * -(-largest // 256)  # int4: half a byte a value, and a scale for 256
    return 12 * s["params"] + (s["overlap_eff"] + 1) * s["known"] * encoded + 4 * s["params"]


def peak_of(args, model):
    """(peak, allowed, last status, it came so far) of a syncer, once rings are full and a snapshot was taken; in the short form after
    two rounds."""
    step, seconds, versions, snapshots = ("100ms", 20, 2, 0) if args.short else ("250ms", 150, 17, 1)
    c = Crowd(args, 8, model, step, ["--stub-dense"])
    try:
        c.invite()
        s, _ = c.gather(60)
        full, allowed, deadline = False, 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            s = c.status() or s
            allowed = max(allowed, allowed_bytes(s))
            full = min(f["version"] for f in s["fragments"]) >= versions and s["snapshots"] >= snapshots
            if full:
                break
            time.sleep(0.5)
        return peak_bytes(c.syncer.pid), allowed, s, full
    finally:
        c.stop()


def row_memory(args):
    (small, small_allowed, _, small_full), (large, allowed, s, full) = (peak_of(args, model) for model in ("1m", args.model))
    needs, may = large - small, allowed - small_allowed
    bar = may * 1.5 if args.short else may  # what cannot be seen in seconds is the ring, what can, something that is kept for good
    emit("memory", round(needs / 1e6, 1), round(bar / 1e6, 1), needs <= bar and small_full and full, full=small_full and full, allowed=round(may / 1e6, 1), unit="MB", model=args.model, learners=s["known"],
         params=s["params"], bytes_per_param=round(needs / s["params"], 2), peak_bytes=large, peak_bytes_of_1m=small, tau_eff=s["overlap_eff"],
         versions=min(f["version"] for f in s["fragments"]), snapshots=s["snapshots"])


ROWS = {"connections": row_connections, "memory": row_memory}


def main():
    end_with_what_was_started()
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--learners", type=int, default=0, help="of connections")
    p.add_argument("--at-once", action="store_true", help="of connections")
    p.add_argument("--model", default="14m", help="of memory")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    args = p.parse_args()
    args.work = tempfile.mkdtemp(prefix="pelago-connections-")
    try:
        for row in args.row.split(",") if args.row else ROWS:
            ROWS[row](args)
    finally:
        if args.keep:
            print("kept:", args.work, file=sys.stderr)
        else:
            shutil.rmtree(args.work, ignore_errors=True)
    sys.exit(1 if MISSED else 0)


if __name__ == "__main__":
    main()
