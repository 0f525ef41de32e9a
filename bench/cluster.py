#!/usr/bin/env python3
"""What the cluster must show, measured on real processes: one line of JSON a row.

cluster.py [--short] [--row NAME,...] [--keep] [--pelago build/pelago]
  quiet        the trainer never waits, without faults; merged/alive; digests equal at the end
  kills        one kill -9 of a learner every 15 s; the trainer never waits, with faults; rejoin times
  storm        many faults (kill -9, SIGSTOP) at 1 s mean; loss against the run without them, at equal merged tokens
  crowd        32 learners, a fault every 29 s
  syncer-kills kill -9 of the syncer at random moments: nothing announced is lost, no trainer paused
  partition    half of the learners cut off for 60 s, both ways and one way each: what they did meanwhile is merged after
               healing, once; the others are not slowed
  stale        the same for longer than --staleness allows: that work is dropped, once and no more, and they contribute again
  lines        two learners on lines of 10 and 1 Mbit/s that are reset every few seconds: they train at the pace of one alone,
               both are merged, and the model is better than that one's after the same time
  edge         a learner that is online for 10 s in every 60: its offline work is merged

Learners share the cores of one machine, so each is paced: a step takes a fixed time of which the computation is a
part, and a dead neighbour does not speed the living up. --short takes seconds where the full form takes minutes. Random
choices print their seed (--seed repeats them). Leaves with 1 when a bar is missed.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MISSED = []


def emit(row, figure, bar, good, **more):
    verdict = "pass" if good else "miss"
    if not good:
        MISSED.append(row)
    print(json.dumps({"row": row, "figure": figure, "bar": bar, "verdict": verdict, **more}), flush=True)


def read_json(path):
    """None while it is not there or being replaced."""
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def last_line(path):
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line for line in f if line.endswith("\n")]
        return json.loads(lines[-1]) if lines else None
    except (OSError, ValueError):
        return None


def started_at(pid):
    """Seconds on the monotonic clock at which the process began; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            ticks = int(f.read().rsplit(")", 1)[1].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class Cluster:
    """`pelago run` in a folder of its own, with what happened to each learner."""

    def __init__(self, args, name, *options):
        self.pelago = os.path.abspath(args.pelago)
        self.folder = os.path.join(args.work, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.output = open(os.path.join(args.work, name + ".out"), "w+", encoding="utf-8")
        command = [self.pelago, "run", "--out", self.folder, "--quiet", "--stats", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)
        self.lives = {}  # (learner, pid) -> [from, to]

    def status(self):
        answer = subprocess.run([self.pelago, "status", os.path.join(self.folder, "syncer"), "--json"],
                                capture_output=True, text=True, check=False)
        try:
            return json.loads(answer.stdout) if answer.returncode == 0 else None
        except ValueError:
            return None

    def learners(self):
        """Learner number -> pid of those that run, as run.json has it; keeps the book of lives."""
        run = read_json(os.path.join(self.folder, "run.json")) or {"learners": []}
        now = time.monotonic()
        alive = {}
        for i, one in enumerate(run["learners"]):
            begin = started_at(one["pid"]) if one["pid"] else None
            if begin is not None:
                alive[i + 1] = one["pid"]
                life = self.lives.setdefault((i + 1, one["pid"]), [begin, now])
                life[1] = now
        return alive

    def syncer(self):
        run = read_json(os.path.join(self.folder, "run.json"))
        return run["syncers"][0]["pid"] if run else None

    def identity(self, learner):
        run = read_json(os.path.join(self.folder, "run.json"))
        return run["learners"][learner - 1]["identity"]

    def alive_seconds(self, begin, end):
        return sum(max(0, min(to, end) - max(since, begin)) for since, to in self.lives.values())

    def wait_all(self, count, seconds=60):
        """Until so many are alive and merged."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            s = self.status()
            self.learners()
            if s and s["alive"] >= count and s["merges"] > 0:
                return s
            time.sleep(0.2)
        raise SystemExit(f"{self.folder}: the learners did not come together: {self.said()}")

    def check(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{self.folder}: pelago run ended with {self.process.returncode}: {self.said()}")

    def said(self):
        self.output.flush()
        self.output.seek(0)
        return self.output.read()[-2000:]

    def finish(self, seconds=120):
        """Waits for its own end; the report."""
        self.process.wait(timeout=seconds)
        if self.process.returncode != 0:
            raise SystemExit(f"{self.folder}: pelago run ended with {self.process.returncode}: {self.said()}")
        return read_json(os.path.join(self.folder, "report.json"))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()

    def tell(self, *order):
        """An order to the proxy of a run with --proxy."""
        subprocess.run([self.pelago, "chaos", "tell", os.path.join(self.folder, "proxy.sock"), *map(str, order)],
                       check=True, capture_output=True)

    def counts(self, seconds=20):
        """Learner number -> (tokens trained, by its own count; of these merged, by the syncer's). Waits until all have one: a
        line about itself comes once a second, and the status of a busy syncer may take its time."""
        deadline = time.monotonic() + seconds
        while True:
            merged = {one["identity"]: one.get("merged_tokens", 0) for one in (self.status() or {"learners": []})["learners"]}
            run = read_json(os.path.join(self.folder, "run.json")) or {"learners": []}
            found = {}
            for i, one in enumerate(run["learners"]):
                line = last_line(os.path.join(self.folder, "log", one["name"] + ".stats"))
                if line and one["identity"] in merged:
                    found[i + 1] = (line["tokens"], merged[one["identity"]])
            if (found and len(found) == len(run["learners"])) or self.process.poll() is not None:
                return found
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.folder}: only learners {sorted(found)} have counts: {self.said()}")
            time.sleep(0.1)

    def trainer_lines(self):
        """The last line each learner's process wrote about its trainer."""
        lines = []
        run = read_json(os.path.join(self.folder, "run.json"))
        for one in run["learners"]:
            line = last_line(os.path.join(one["folder"], "learner.jsonl"))
            if line:
                lines.append(line)
        return lines


def paced(learners, pace_ms=100, tokens=10_000_000_000, **more):
    """Options of a paced run of 1m: 128 tokens a sequence, two a step."""
    options = {"learners": learners, "threads": 1, "model": "1m", "data": "builtin:tales", "batch": 2, "seq": 128,
               "pace": f"{pace_ms}ms", "tokens": tokens, **more}
    return [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]


STEP_TOKENS = 2 * 128


def judge_trainers(args, row, cluster, with_faults):
    lines = cluster.trainer_lines()
    share = max(line["blocked_share"] for line in lines)
    longest = max(line["blocked_p999_ns"] for line in lines) / 1e6
    steps = sum(line["steps_timed"] for line in lines)
    # Some hundred steps have no 99.9th percentile: in the short form this is the longest of all steps.
    bar_ms = 10 if args.short else 1
    emit(row, {"p999_ms": round(longest, 3), "share_percent": round(100 * share, 3)},
         {"p999_ms": bar_ms, "share_percent": 1}, longest <= bar_ms and share <= 0.01, faults=with_faults, steps=steps, learners=len(lines))


def row_quiet(args):
    learners, seconds = 8, 20 if args.short else 120
    c = Cluster(args, "quiet", *paced(learners, tokens=int(learners * STEP_TOKENS * 10 * seconds)))
    try:
        c.wait_all(learners)
        shares = []
        while c.process.poll() is None:
            s = c.status()
            if s and s["phase"] == "running":
                shares.append(s["merged_alive"])
            time.sleep(1)
        c.finish()
        lines = c.trainer_lines()
        judge_trainers(args, "never-waits", c, False)
        worst = sorted(shares)[len(shares) // 20] if shares else 0
        mean = sum(shares) / max(1, len(shares))
        emit("merged-alive", round(mean, 4), 0.95, mean >= 0.95, worst_5_percent=round(worst, 4))
        digests = {line["anchors"] for line in lines}
        emit("equality", len(digests), "1 digest at all learners", len(digests) == 1 and len(lines) == learners)
    finally:
        c.stop()


def kill_learner(c, rng, numbers=None):
    alive = c.learners()
    choices = [n for n in alive if numbers is None or n in numbers]
    if not choices:
        return None
    n = rng.choice(sorted(choices))
    try:
        os.kill(alive[n], signal.SIGKILL)
    except ProcessLookupError:
        return None
    c.lives[(n, alive[n])][1] = time.monotonic()
    return n


def standing(c, learner):
    """What the syncer knows of a learner: its process and how often it was merged."""
    identity = c.identity(learner)
    s = c.status() or {"learners": []}
    one = next((x for x in s["learners"] if x["identity"] == identity), None)
    return (one["incarnation"], one["rounds_merged"]) if one else None


def wait_contribution(c, learner, before, killed_at, seconds):
    """Seconds from the kill until a push of the new process was merged; inf when it took too long."""
    while time.monotonic() < killed_at + seconds:
        c.check()
        c.learners()
        now = standing(c, learner)
        if now and before and now[0] != before[0] and now[1] != before[1]:
            return time.monotonic() - killed_at
        time.sleep(0.05)
    return float("inf")


def run_kills(args, row, learners, every_s, seconds, bar, pace_ms=100):
    rng = random.Random(args.seed)
    c = Cluster(args, row, *paced(learners, pace_ms))
    try:
        c.wait_all(learners)
        time.sleep(8)  # several periods: from here on as much is merged as is trained
        c.learners()
        s0, t0 = c.status(), time.monotonic()
        kills, rejoins, due = 0, [], t0 + every_s
        while time.monotonic() < t0 + seconds:
            c.check()
            c.learners()
            if time.monotonic() >= due:
                due += every_s
                n = rng.choice(sorted(c.learners()))
                before = standing(c, n)
                if kill_learner(c, rng, [n]) is not None:
                    kills += 1
                    rejoins.append(wait_contribution(c, n, before, time.monotonic(), every_s * 0.9))
            time.sleep(0.05)
        c.learners()
        s1, t1 = c.status(), time.monotonic()
        judge_kills(row, c, (s0, t0), (s1, t1), kills, bar, pace_ms, args)
        judge_rejoins(row, rejoins, pace_ms)
        judge_trainers(args, "never-waits", c, True)
        emit("no-hostage", s1["merged_alive"], 0.95, s1["merged_alive"] >= 0.95)
    finally:
        c.stop()


def judge_kills(row, c, before, after, kills, bar, pace_ms, args):
    (s0, t0), (s1, t1) = before, after
    step_s = pace_ms / 1000
    alive = c.alive_seconds(t0, t1)
    merged = s1["merged_tokens"] - s0["merged_tokens"]
    share = merged / (STEP_TOKENS / step_s * alive)
    period = 24
    limit = 1 - kills * (period / 2 + 2) * step_s / alive
    trained = (s1["tokens"] - s0["tokens"]) / (STEP_TOKENS / step_s * alive)
    if args.short:  # a machine that is busy with other things trains less; that is not what seconds can show
        share /= trained
    emit(row, round(share, 4), bar, share >= bar, limit=round(limit, 4), trained=round(trained, 4), kills=kills, seconds=round(t1 - t0),
         seed=args.seed, alive_seconds=round(alive))


def judge_rejoins(row, rejoins, pace_ms):
    if not rejoins:
        return
    bar = 2 + 2 * pace_ms / 1000 + 0.1  # the model goes over loopback in less than a tenth of a second
    rejoins.sort()
    emit("rejoin", round(rejoins[-1], 2), round(bar, 2), rejoins[-1] <= bar, of=row, count=len(rejoins),
         median=round(rejoins[len(rejoins) // 2], 2))


def row_kills(args):
    # The short form compares with what was trained, and kills twice as often.
    run_kills(args, "kills", 8, 7 if args.short else 15, 36 if args.short else 1800, 0.9 if args.short else 0.97)


def row_crowd(args):
    run_kills(args, "crowd", 32, 29, 60 if args.short else 1800, 0.977, pace_ms=400)


def row_storm(args):
    """Loss at equal merged tokens, with and without faults."""
    faults = 30 if args.short else 2000
    losses = []
    for faulty in (False, True):
        rng = random.Random(args.seed)
        tokens = int(8 * STEP_TOKENS * 10 * (faults + 20) * 0.9)
        c = Cluster(args, "storm" if faulty else "storm-control", *paced(8, tokens=tokens))
        try:
            c.wait_all(8)
            done = 0
            while c.process.poll() is None:
                if faulty and done < faults:
                    time.sleep(rng.expovariate(1))
                    done += fault(c, rng)
                else:
                    time.sleep(0.5)
            report = c.finish(600)
            losses.append(report["result"]["loss"])
        finally:
            c.stop()
    off = losses[1] / losses[0] - 1
    emit("storm", round(100 * off, 2), "at most 0.5% above", off <= 0.005, faults=faults, loss=losses[1],
         loss_without=losses[0], seed=args.seed)


def fault(c, rng):
    """A kill, or a stop of up to three seconds."""
    alive = c.learners()
    if not alive:
        return 0
    if rng.random() < 0.7:
        return 1 if kill_learner(c, rng) else 0
    n = rng.choice(sorted(alive))
    try:
        os.kill(alive[n], signal.SIGSTOP)
        time.sleep(min(3, rng.expovariate(1)))
        os.kill(alive[n], signal.SIGCONT)
    except ProcessLookupError:
        return 0
    return 1


def row_syncer_kills(args):
    kills = 25 if args.short else 1000
    rng = random.Random(args.seed)
    c = Cluster(args, "syncer-kills", *paced(4, 50))
    lost = []
    try:
        s = c.wait_all(4)
        known = {f["fragment"]: (f["version"], f["digest"]) for f in s["fragments"]}
        for i in range(kills):
            time.sleep(rng.uniform(0.2, 2.0 if not args.short else 1.0))
            s = c.status()
            if s:
                check_versions(known, s, lost)
            pid = c.syncer()
            os.kill(pid, signal.SIGKILL)
            s = wait_syncer(c, pid)
            check_versions(known, s, lost)
        c.wait_all(4)
        emit("syncer-kills", kills, f"{kills} kills, nothing announced lost", not lost, lost=lost[:5], seed=args.seed)
        judge_trainers(args, "never-waits", c, True)
    finally:
        c.stop()


def wait_syncer(c, old_pid, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        c.check()
        if c.syncer() not in (old_pid, None):
            s = c.status()
            if s:
                return s
        time.sleep(0.02)
    raise SystemExit("the syncer did not come back")


def check_versions(known, status, lost):
    """Versions only grow, and a version has one digest for ever."""
    for f in status["fragments"]:
        version, digest = known[f["fragment"]]
        if f["version"] < version or (f["version"] == version and f["digest"] != digest):
            lost.append({"fragment": f["fragment"], "was": [version, digest], "is": [f["version"], f["digest"]]})
        known[f["fragment"]] = (f["version"], f["digest"])


def final_counts(c):
    """The same after the end, when closing rounds have taken everybody's remainder: name -> (trained, merged)."""
    run, last = read_json(os.path.join(c.folder, "run.json")), read_json(os.path.join(c.folder, "syncer", "status.json"))
    merged = {one["identity"]: one.get("merged_tokens", 0) for one in last["learners"]}
    found = {}
    for one in run["learners"]:
        line = last_line(os.path.join(one["folder"], "learner.jsonl"))
        found[one["name"]] = (line["tokens"], merged.get(one["identity"], 0))
    return found


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def judge_once(row, c):
    """Every token trained is in the model, none of them twice."""
    counts = final_counts(c)
    missing = max(trained - merged for trained, merged in counts.values())
    twice = max(merged - trained for trained, merged in counts.values())
    # Steps that were under way while the closing rounds were taken come to nothing.
    bar = 8 * STEP_TOKENS
    emit(row + "-once", {"missing_tokens": round(missing), "twice_tokens": max(0, round(twice))},
         {"missing_tokens": bar, "twice_tokens": 0}, missing <= bar and twice < 1, learners=len(counts),
         tokens=round(sum(trained for trained, _ in counts.values())))


def cut(c, numbers, way, seconds):
    """Cuts them off for a while, takes counts before and at its end, and waits until they are merged again."""
    others = [n for n in c.learners() if n not in numbers]
    before, t0 = c.counts(), time.monotonic()
    for n in numbers:
        c.tell("set", n, *way, "hold", "on")
    while time.monotonic() < t0 + seconds:
        c.check()
        c.learners()
        time.sleep(0.2)
    at_end, t1 = c.counts(), time.monotonic()
    for n in numbers:
        c.tell("clear", n)
    healed = time.monotonic()
    behind = numbers
    while behind and time.monotonic() < healed + max(30, seconds):
        time.sleep(0.5)
        c.check()
        now = c.counts()
        behind = [n for n in numbers if n not in now or now[n][1] < at_end[n][0]]
    after = c.counts()
    return {"before": before, "at_end": at_end, "after": after, "cut_s": t1 - t0,
            "others": mean(at_end[n][0] - before[n][0] for n in others) / mean(at_end[n][0] - before[n][0] for n in numbers),
            "merged_after_s": round(time.monotonic() - healed, 1), "behind": len(behind)}


def judge_cut(row, args, numbers, r, **more):
    """Of what the cut-off learners trained meanwhile: how much is merged; and the pace of the others beside theirs, who hear
    of nobody and wait for nothing."""
    offline = sum(r["at_end"][n][0] - r["before"][n][0] for n in numbers)
    merged_while_cut = sum(r["at_end"][n][1] - r["before"][n][1] for n in numbers)
    lost = sum(max(0, r["at_end"][n][0] - r["after"][n][1]) for n in numbers)
    twice = max(r["after"][n][1] - r["after"][n][0] for n in numbers)
    bar = 0.85 if args.short else 0.97  # seconds on a machine that does other things, too
    emit(row, {"offline_merged": round(1 - lost / offline, 4), "others_pace": round(r["others"], 3)},
         {"offline_merged": 1.0, "others_pace": bar},
         r["behind"] == 0 and lost == 0 and twice < 1 and r["others"] >= bar and merged_while_cut < offline / 2,
         offline_tokens=round(offline), merged_while_cut=round(merged_while_cut), merged_after_s=r["merged_after_s"],
         cut_s=round(r["cut_s"], 1), **more)


def row_partition(args):
    """H x step is 2.4 s, so 60 s are 25 versions; the bound is set above them."""
    learners, seconds = 8, 8 if args.short else 60
    ways = {"both": [], "out": ["up"], "in": ["down"]}
    half = random.Random(args.seed).sample(range(1, learners + 1), learners // 2)
    c = Cluster(args, "partition", *paced(learners, staleness=64, time=f"{30 + 2 * len(ways) * seconds}s"), "--proxy")
    try:
        c.wait_all(learners)
        time.sleep(5)
        for name, way in ways.items():
            judge_cut("partition-" + name, args, half, cut(c, half, way, seconds), seed=args.seed)
        c.finish(60 + 8 * seconds)
        judge_once("partition", c)
        judge_trainers(args, "never-waits", c, True)
    finally:
        c.stop()


def row_stale(args):
    """What is beyond the bound is dropped whole, and the trainer that drops it does not wait either."""
    seconds, half = 12 if args.short else 60, [1, 2]
    c = Cluster(args, "stale", *paced(4, staleness=2, time=f"{30 + 2 * seconds}s"), "--proxy")
    try:
        c.wait_all(4)
        time.sleep(5)
        before = c.counts()
        for n in half:
            c.tell("set", n, "hold", "on")
        time.sleep(seconds)
        at_end = c.counts()
        for n in half:
            c.tell("clear", n)
        c.finish(60 + 4 * seconds)
        counts = final_counts(c)
        twice = max(merged - trained for trained, merged in counts.values())
        dropped = {n: counts[f"learner-{n}"][0] - counts[f"learner-{n}"][1] for n in half}
        offline = {n: at_end[n][0] - before[n][0] for n in half}
        again = min(counts[f"learner-{n}"][1] - at_end[n][1] for n in half)
        # Two periods: work that was not merged yet when the line broke, and steps until the new value was there.
        worst = max(dropped[n] - offline[n] for n in half)
        bar = 2 * 24 * STEP_TOKENS
        emit("stale", {"dropped_beyond_offline": round(worst), "twice_tokens": max(0, round(twice))},
             {"dropped_beyond_offline": bar, "twice_tokens": 0},
             worst <= bar and twice < 1 and again > 0 and min(dropped.values()) > 0, merged_again=round(again),
             dropped=round(sum(dropped.values())), offline_tokens=round(sum(offline.values())))
        judge_trainers(args, "never-waits", c, True)
    finally:
        c.stop()


def row_edge(args):
    """One learner is away for 50 s of every 60, three are not."""
    rounds, online, offline = (2, 8, 16) if args.short else (8, 10, 50)
    c = Cluster(args, "edge", *paced(4, staleness=64, time=f"{20 + rounds * (online + offline)}s"), "--proxy")
    try:
        c.wait_all(4)
        merged, trained = [], []
        for _ in range(rounds):
            before = c.counts()[1]
            c.tell("set", 1, "hold", "on")
            time.sleep(offline)
            c.check()
            trained.append(c.counts()[1][0] - before[0])
            c.tell("clear", 1)
            time.sleep(online)
            merged.append(c.counts()[1][1] - before[1])
        c.finish(120)
        share = min(m / t for m, t in zip(merged, trained))
        emit("edge", round(share, 4), "1.0 of its offline work within the time online", share >= 1.0, rounds=rounds,
             online_s=online, offline_s=offline, offline_tokens=sum(trained))
        judge_once("edge", c)
    finally:
        c.stop()


def line_run(args, name, seconds, learners, mbit, *options):
    """Trains for so long, on lines of that rate (0: open) with resets; the report, steps a second of each learner, resets."""
    rng = random.Random(args.seed)
    c = Cluster(args, name, *lines_options(args, learners), "--time", f"{seconds}s", "--proxy", *options)
    resets = 0
    try:
        c.wait_all(learners)
        if mbit:
            c.tell("set", "all", "rate", f"{mbit}Mbit", "latency", "25ms")
        first = last = c.counts()
        t0 = t1 = time.monotonic()
        while c.process.poll() is None and (s := c.status()) and s["phase"] == "running":
            last, t1 = c.counts() or last, time.monotonic()
            time.sleep(min(5, rng.expovariate(1 / 3)))
            if mbit and c.process.poll() is None:
                c.tell("reset", rng.randrange(learners) + 1)
                resets += 1
        if mbit and c.process.poll() is None:  # the end of a run is not what is measured
            c.tell("clear", "all")
        report = c.finish(300)
        rates = [(last[n][0] - first[n][0]) / (t1 - t0) for n in last]
        return report, rates, resets, final_counts(c)
    finally:
        c.stop()


def lines_options(args, learners):
    if args.short:
        return paced(learners)
    return paced(learners, 1000, model="14m", batch=8, seq=256)


def row_lines(args):
    seconds = 60 if args.short else 900
    # One that is alone is merged with nobody: the outer step takes its change as it is.
    alone, pace, _, _ = line_run(args, "lines-alone", seconds, 1, 0, "--outer-lr", 1, "--outer-momentum", 0)
    for mbit in (10, 1):
        report, rates, resets, counts = line_run(args, f"lines-{mbit}", seconds, 2, mbit)
        use = mean(rates) / pace[0]
        merged = min(m / t for t, m in counts.values())
        loss, loss_alone = report["result"]["loss"], alone["result"]["loss"]
        bar = 0.85 if args.short else 0.95  # a minute on a machine that does other things, too
        emit(f"lines-{mbit}", {"utilisation": round(use, 3), "merged": round(merged, 3), "loss": round(loss, 4)},
             {"utilisation": bar, "merged": 0.9, "loss": round(loss_alone, 4)},
             use >= bar and merged >= 0.9 and loss < loss_alone, mbit=mbit, resets=resets, seconds=seconds, seed=args.seed)


ROWS = {"quiet": row_quiet, "kills": row_kills, "storm": row_storm, "crowd": row_crowd,
        "syncer-kills": row_syncer_kills, "partition": row_partition, "stale": row_stale,
        "edge": row_edge, "lines": row_lines}
SHORT = ["quiet", "kills", "syncer-kills", "partition", "stale", "edge"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = p.parse_args()
    args.work = tempfile.mkdtemp(prefix="pelago-cluster-")
    rows = args.row.split(",") if args.row else SHORT if args.short else list(ROWS)
    try:
        for row in rows:
            ROWS[row](args)
    finally:
        if args.keep:
            print("kept:", args.work, file=sys.stderr)
        else:
            shutil.rmtree(args.work, ignore_errors=True)
    sys.exit(1 if MISSED else 0)


if __name__ == "__main__":
    main()
