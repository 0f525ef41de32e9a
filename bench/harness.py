"""A cluster of real processes and what is asked of it; bench/cluster.py and its neighbours measure with this.

A row of a table is one line of JSON (emit); MISSED collects the rows that missed their bar.
"""
import json
import os
import shutil
import signal
import subprocess
import time

MISSED = []
STEP_TOKENS = 2 * 128


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


def judge_trainers(args, row, cluster, with_faults):
    lines = cluster.trainer_lines()
    share = max(line["blocked_share"] for line in lines)
    longest = max(line["blocked_max_ns"] for line in lines) / 1e6
    steps = sum(line["steps_timed"] for line in lines)
    above = sum(line["blocked_above_1ms"] for line in lines)
    # 99.9% of all steps. Some hundred of them, as in the short form, have no such percentile: there a longest of 10 ms will do.
    good = above <= steps / 1000 or (args.short and longest <= 10)
    emit(row, {"above_1ms": above, "share_percent": round(100 * share, 3)}, {"above_1ms": steps // 1000, "share_percent": 1},
         good and share <= 0.01, faults=with_faults, steps=steps, longest_ms=round(longest, 3),
         worst_p999_ms=round(max(line["blocked_p999_ns"] for line in lines) / 1e6, 3), learners=len(lines))


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
