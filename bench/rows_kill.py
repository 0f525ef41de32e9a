"""Rows of bench/cluster.py in which processes die or stand still: kills, crowd, storm, syncer-kills."""
import os
import random
import signal
import time

from harness import STEP_TOKENS, Cluster, emit, judge_equality, judge_grace, judge_trainers, mean, paced


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


def judge_kept(row, c, learners):
    """Who has lived for seconds has moments on its disk: a process that begins without any is worth less for a while."""
    def has(n):
        return any(os.path.exists(os.path.join(c.folder, f"learner-{n}", name)) for name in ("checkpoint", "checkpoint.old"))
    kept = sum(has(n) for n in range(1, learners + 1))
    emit("kept", kept, learners, kept == learners, of=row)


def run_kills(args, row, learners, every_s, seconds, bar, pace_ms=100):
    rng = random.Random(args.seed)
    c = Cluster(args, row, *paced(learners, pace_ms))
    try:
        c.wait_all(learners)
        time.sleep(8)  # several periods: from here on as much is merged as is trained
        judge_kept(row, c, learners)
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
        judge_grace(args, row, s1)
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
    run_kills(args, "kills", 8, 6 if args.short else 15, 24 if args.short else 1800, 0.9 if args.short else 0.97)


def row_crowd(args):
    run_kills(args, "crowd", 32, 29, 60 if args.short else 1800, 0.977, pace_ms=400)


class Storm:
    """Faults of a cluster, one a second on average until its run ends: kill -9, and stops of up to three seconds. Whoever stands still
    delays no other fault."""

    def __init__(self, cluster, seed):
        self.c, self.rng, self.kills, self.stops = cluster, random.Random(seed), 0, 0
        self.standing = []  # (until, learner, pid)
        self.next = time.monotonic() + self.rng.expovariate(1)

    def cause(self):
        alive = self.c.learners()
        if not alive:
            return
        if self.rng.random() < 0.7:
            self.kills += kill_learner(self.c, self.rng) is not None
            return
        n = self.rng.choice(sorted(alive))
        if signal_process(alive[n], signal.SIGSTOP):
            self.standing.append((time.monotonic() + min(3, self.rng.expovariate(1)), n, alive[n]))
            self.stops += 1

    def look(self):
        """Does what is due; when to look again."""
        now = time.monotonic()
        for one in [one for one in self.standing if one[0] <= now]:
            self.standing.remove(one)
            if self.c.learners().get(one[1]) == one[2]:
                signal_process(one[2], signal.SIGCONT)
        while self.next <= now:
            self.cause()
            self.next += self.rng.expovariate(1)
        return min([self.next, *(one[0] for one in self.standing)])

    def calm(self):
        for _, _, pid in self.standing:
            signal_process(pid, signal.SIGCONT)


def signal_process(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def runs_side_by_side(args, name, tokens, stormy):
    """What the reports say of a run of so many tokens for each seed, all at the same time, and how many faults each had."""
    clusters, storms = [], []
    # 100,000, the default, are few for differences of half a per cent.
    text = {"data": args.data, **({"valid": args.valid} if args.valid else {}), "eval_tokens": 1_000_000}
    try:
        for i, budget in enumerate(tokens):
            clusters.append(Cluster(args, f"{name}-{i}", *paced(8, tokens=budget, seed=1 + (args.seed + i) % 1000, **text)))
        for c in clusters:
            c.wait_all(8)
        storms = [Storm(c, args.seed + i) for i, c in enumerate(clusters)]
        while any(c.process.poll() is None for c in clusters):
            again = time.monotonic() + 0.5
            for c, storm in zip(clusters, storms):
                if stormy and c.process.poll() is None:
                    again = min(again, storm.look())
            time.sleep(max(0, again - time.monotonic()))
        return [(c.finish()["result"], storm.kills, storm.stops) for c, storm in zip(clusters, storms)]
    finally:
        for storm in storms:
            storm.calm()
        for c in clusters:
            c.stop()


def row_storm(args):
    """Loss with and without faults. Work that dies is not merged, so a run without them gets as many tokens as were merged with them."""
    faults = args.faults or (30 if args.short else 2000)
    budget = int(8 * STEP_TOKENS * 10 * (faults + 20) * (1.1 if args.short else 0.97))
    stormy = runs_side_by_side(args, "storm", [budget] * args.repeats, True)
    calm = runs_side_by_side(args, "storm-control", [result["merged_tokens"] for result, _, _ in stormy], False)
    pairs = [{"percent": round(100 * (a["loss"] / b["loss"] - 1), 2), "loss": a["loss"], "loss_without": b["loss"], "merged": a["merged_tokens"],
              "merged_without": b["merged_tokens"], "trained": a["tokens"], "kills": kills, "stops": stops}
             for (a, kills, stops), (b, _, _) in zip(stormy, calm)]
    off = mean(pair["percent"] for pair in pairs)
    enough = all(pair["kills"] + pair["stops"] >= faults for pair in pairs)
    emit("storm", round(off, 2), "at most 0.5% above", off <= 0.5 and enough, faults=faults, enough=enough, data=os.path.basename(args.data),
         pairs=pairs, seed=args.seed)


class Versions:
    """Who showed which version of a fragment with which digest, and what contradicts it."""

    def __init__(self):
        self.digests = {}  # (fragment, version) -> (digest, who)
        self.wrong = []

    def see(self, who, fragment, version, digest):
        first = self.digests.setdefault((fragment, version), (digest, who))
        if first[0] != digest:
            self.wrong.append({"fragment": fragment, "version": version, first[1]: first[0], who: digest})

    def see_line(self, line):
        for fragment, (version, digest) in enumerate(line["versions"]):
            self.see(f"learner {line['identity']}", fragment, version, digest)

    def see_status(self, status):
        for f in status["fragments"]:
            self.see("syncer", f["fragment"], f["version"], f["digest"])

    def behind(self, lines, status):
        """Learners that were seen to hold more than the syncer has, which was asked later: that was announced and is lost."""
        has = {f["fragment"]: f["version"] for f in status["fragments"]}
        for line in lines:
            for fragment, (version, _) in enumerate(line["versions"]):
                if version > has[fragment]:
                    self.wrong.append({"fragment": fragment, f"learner {line['identity']}": version, "syncer": has[fragment]})


def row_syncer_kills(args):
    """Learners write the versions they build on once a second, so of what one holds at a kill a second may be missing; the
    end catches that, too: every version that anybody ever showed has one digest, and the last holds all."""
    kills = 25 if args.short else 1000
    rng = random.Random(args.seed)
    c = Cluster(args, "syncer-kills", *paced(4, 50))
    seen, compared = Versions(), 0
    try:
        seen.see_status(c.wait_all(4))
        for _ in range(kills):
            time.sleep(rng.uniform(0.2, 0.7 if args.short else 2.0))
            pid = c.syncer()
            os.kill(pid, signal.SIGKILL)
            held = c.last_stats()
            s = wait_syncer(c, pid)
            seen.behind(held, s)
            seen.see_status(s)
            compared += sum(version > 0 for line in held for version, _ in line["versions"])
        c.wait_all(4)
        c.end_in(4)
        everything = c.stats()
        for line in everything:
            seen.see_line(line)
        seen.see_status(c.final_status())
        seen.behind(everything, c.final_status())
        emit("syncer-kills", kills, f"{kills} kills, nothing that a learner held is lost", compared > 0 and not seen.wrong, wrong=seen.wrong[:5],
             compared=compared, versions=len(seen.digests), seed=args.seed)
        judge_equality(c, 4)
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
