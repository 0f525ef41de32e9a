"""Rows of bench/cluster.py in which lines are cut or thin: partition, stale, edge, lines."""
import random
import time

from harness import STEP_TOKENS, Cluster, emit, final_counts, judge_once, judge_trainers, mean, paced


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
    of nobody and wait for nothing. That nothing is merged twice is judged after the end, by counts of one moment (judge_once)."""
    offline = sum(r["at_end"][n][0] - r["before"][n][0] for n in numbers)
    merged_while_cut = sum(r["at_end"][n][1] - r["before"][n][1] for n in numbers)
    lost = sum(max(0, r["at_end"][n][0] - r["after"][n][1]) for n in numbers)
    bar = 0.85 if args.short else 0.97  # seconds on a machine that does other things, too
    emit(row, {"offline_merged": round(1 - lost / offline, 4), "others_pace": round(r["others"], 3)},
         {"offline_merged": 1.0, "others_pace": bar},
         r["behind"] == 0 and lost == 0 and r["others"] >= bar and merged_while_cut < offline / 2,
         offline_tokens=round(offline), merged_while_cut=round(merged_while_cut), merged_after_s=r["merged_after_s"],
         cut_s=round(r["cut_s"], 1), **more)


def row_partition(args):
    """H x step is 2.4 s, so 60 s are 25 versions; the bound is set above them. The short form has half the learners and steps."""
    learners, pace_ms, seconds, spare = (4, 50, 4, 12) if args.short else (8, 100, 60, 30)
    ways = {"both": [], "out": ["up"], "in": ["down"]}
    half = random.Random(args.seed).sample(range(1, learners + 1), learners // 2)
    c = Cluster(args, "partition", *paced(learners, pace_ms, staleness=64, time=f"{spare + 2 * len(ways) * seconds}s"), "--proxy")
    try:
        c.wait_all(learners)
        time.sleep(50 * pace_ms / 1000)
        for name, way in ways.items():
            judge_cut("partition-" + name, args, half, cut(c, half, way, seconds), seed=args.seed)
        c.finish(60 + 8 * seconds)
        judge_once("partition", c)
        judge_trainers(args, "never-waits", c, True)
    finally:
        c.stop()


def row_stale(args):
    """What is beyond the bound is dropped whole, and the trainer that drops it does not wait either."""
    pace_ms, seconds, spare = (50, 6, 11) if args.short else (100, 60, 30)
    half = [1, 2]
    c = Cluster(args, "stale", *paced(4, pace_ms, staleness=2, time=f"{spare + 2 * seconds}s"), "--proxy")
    try:
        c.wait_all(4)
        time.sleep(50 * pace_ms / 1000)
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
    rounds, online, offline, pace_ms, spare = (2, 4, 8, 50, 10) if args.short else (8, 10, 50, 100, 20)
    c = Cluster(args, "edge", *paced(4, pace_ms, staleness=64, time=f"{spare + rounds * (online + offline)}s"), "--proxy")
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
    c = Cluster(args, name, *lines_options(args, learners, seconds), "--time", f"{seconds}s", "--proxy", *options)
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


def lines_options(args, learners, seconds):
    """With as many tokens as they can take in that time: the schedule ends with it, not in its warm-up."""
    if args.short:
        return paced(learners, tokens=learners * seconds * 10 * STEP_TOKENS)
    return paced(learners, 1000, tokens=learners * seconds * 8 * 256, model="14m", batch=8, seq=256)


def row_lines(args):
    seconds = 60 if args.short else 900
    # One that is alone is merged with nobody: the outer step takes its change as it is.
    alone, pace, _, _ = line_run(args, "lines-alone", seconds, 1, 0, "--outer-lr", 1, "--outer-momentum", 0,
                                 "--outer-decay", 0)
    for mbit in (args.mbit,) if args.mbit else (10, 1):
        report, rates, resets, counts = line_run(args, f"lines-{mbit}", seconds, 2, mbit)
        use = mean(rates) / pace[0]
        merged = min(m / t for t, m in counts.values())
        loss, loss_alone = report["result"]["loss"], alone["result"]["loss"]
        bar = 0.85 if args.short else 0.95  # a minute on a machine that does other things, too
        emit(f"lines-{mbit}", {"utilisation": round(use, 3), "merged": round(merged, 3), "loss": round(loss, 4)},
             {"utilisation": bar, "merged": 0.9, "loss": round(loss_alone, 4)},
             use >= bar and merged >= 0.9 and loss < loss_alone, mbit=mbit, resets=resets, seconds=seconds, seed=args.seed)
