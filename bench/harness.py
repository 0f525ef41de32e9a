"""A cluster of real processes and what is asked of it; bench/cluster.py and its neighbours measure with this.

A row of a table is one line of JSON (emit); MISSED collects the rows that missed their bar. A verdict is "pass", "miss", or
"not judged": a figure for the reader, or a speed in a form too short to judge one. scripts/rows.sh counts them.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

MISSED = []
STEP_TOKENS = 2 * 128


def emit(row, figure, bar, good, **more):
    """good: None where nothing is judged."""
    verdict = "not judged" if good is None else "pass" if good else "miss"
    if verdict == "miss":
        MISSED.append(row)
    print(json.dumps({"row": row, "figure": figure, "bar": bar, "verdict": verdict, **more}), flush=True)


def read_json(path):
    """None while it is not there or being replaced."""
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def lines_of(path, last_bytes=None):
    """The whole lines of a file of JSON lines that may be growing, or those in its last bytes."""
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            begin = max(0, size - last_bytes) if last_bytes else 0
            f.seek(begin)
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = text.split("\n")[1 if begin else 0:-1]
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # cut short by a kill, and the next process wrote on
            pass
    return found


def last_line(path):
    lines = lines_of(path, 1 << 16)
    return lines[-1] if lines else None


def started_at(pid):
    """Seconds on the monotonic clock at which the process began; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            ticks = int(f.read().rsplit(")", 1)[1].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def end_with_what_was_started():
    """SIGTERM ends a measurement as Ctrl-C does, by its finally: whatever it started goes with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class Cluster:
    """`pelago run` in a folder of its own, with what happened to each learner."""

    def __init__(self, args, name, *options):
        self.pelago = os.path.abspath(args.pelago)
        self.folder = os.path.join(args.work, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.output = open(os.path.join(args.work, name + ".out"), "w+", encoding="utf-8")
        self.lives = {}  # (learner, pid) -> [from, to]
        self.start(*options)

    def start(self, *options):
        command = [self.pelago, "run", "--out", self.folder, "--quiet", "--stats", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)

    def end_in(self, seconds):
        """Stops it and lets it come to its end so many seconds later, as if its tokens were trained."""
        self.interrupt()
        self.start("--resume", "--time", f"{seconds}s")
        return self.finish(120 + seconds)

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

    def interrupt(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def stop(self):
        self.interrupt()
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

    def final_lines(self):
        """Learner's name -> the last line of its learner.jsonl; after the end it has the digest of its anchors."""
        run = read_json(os.path.join(self.folder, "run.json"))
        return {one["name"]: last_line(os.path.join(one["folder"], "learner.jsonl")) or {} for one in run["learners"]}

    def stats(self):
        """Every line the learners wrote about themselves, one a second from each of their processes."""
        run = read_json(os.path.join(self.folder, "run.json"))
        return [line for one in run["learners"] for line in lines_of(os.path.join(self.folder, "log", one["name"] + ".stats"))]

    def last_stats(self):
        run = read_json(os.path.join(self.folder, "run.json"))
        lines = [last_line(os.path.join(self.folder, "log", one["name"] + ".stats")) for one in run["learners"]]
        return [line for line in lines if line]

    def final_status(self):
        """The last word of a syncer that has left."""
        return read_json(os.path.join(self.folder, "syncer", "status.json"))


def paced(learners, pace_ms=100, tokens=10_000_000_000, **more):
    """Options of a paced run of 1m: 128 tokens a sequence, two a step."""
    options = {"learners": learners, "threads": 1, "model": "1m", "data": "builtin:tales", "batch": 2, "seq": 128,
               "pace": f"{pace_ms}ms", "tokens": tokens, **more}
    return [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]


def final_counts(c):
    """The same after the end, when closing rounds have taken everybody's remainder: name -> (trained, merged)."""
    run, last = read_json(os.path.join(c.folder, "run.json")), c.final_status()
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
    """Of every process of every learner, killed ones too, the last line: a kill costs at most a second of what is counted."""
    lines = list({line["pid"]: line for line in cluster.stats()}.values())
    timed = [line for line in lines if line["steps_timed"] > 0]
    steps = sum(line["steps_timed"] for line in timed)
    above = sum(line["blocked_above_1ms"] for line in timed)
    longest = max((line["blocked_max_ns"] for line in timed), default=0) / 1e6
    share = sum(line["blocked_ns"] for line in timed) / max(1, sum(line["trained_ns"] for line in timed))
    # 99.9% of all steps. Some hundred of them, as in the short form, have no such percentile: there a longest of 10 ms will do.
    good = steps > 0 and (above <= steps / 1000 or (args.short and longest <= 10))
    emit(row, {"above_1ms": above, "share_percent": round(100 * share, 3)}, {"above_1ms": steps // 1000, "share_percent": 1},
         good and share <= 0.01, faults=with_faults, steps=steps, longest_ms=round(longest, 3), processes=len(lines),
         worst_p999_ms=round(max((line["blocked_p999_ns"] for line in timed), default=0) / 1e6, 3))


def judge_grace(args, row, status):
    """A timer of the syncer's loop ends a round's grace (I7); what can be late is the loop, on a machine that ten processes share."""
    late = status["grace_late_ns"] / 1e6
    bar = 1000 if args.short else 100  # the short form runs beside other things
    emit("no-hostage-grace", round(late, 3), bar, late <= bar, of=row, unit="ms", merges=status["merges"],
         without_waiting=status["rounds_graced"])


def anchors_read_back(c, epoch, seconds=60):
    """What a syncer that begins again in the folder makes of the journal; it compares every version's digest on the way."""
    folder = os.path.join(c.folder, "syncer")
    syncer = subprocess.Popen([c.pelago, "syncer", "--dir", folder, "--listen", "127.0.0.1:0", "--linger", "1h"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and syncer.poll() is None:
            s = c.status()
            if s and s["epoch"] > epoch:
                return s["anchors"]
            time.sleep(0.1)
        return f"nothing: the syncer left with {syncer.poll()}"
    finally:
        if syncer.poll() is None:
            syncer.terminate()
        syncer.wait(timeout=30)


def judge_equality(c, learners):
    """After the end: what learners hold (their own digests of their anchors), what the syncer last announced, what its journal holds."""
    last = c.final_status()
    anchors = {name: line.get("anchors", "none") for name, line in c.final_lines().items()}
    anchors["broadcast"] = last["anchors"]
    anchors["journal"] = anchors_read_back(c, last["epoch"])
    digests = set(anchors.values())
    emit("equality", len(digests), "1 digest at all learners, of the broadcast and of the journal read back",
         len(digests) == 1 and len(anchors) == learners + 2, of=os.path.basename(c.folder), holders=len(anchors),
         **({} if len(digests) == 1 else {"anchors": anchors}))


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
