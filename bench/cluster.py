#!/usr/bin/env python3
"""What the cluster must show, measured on real processes: one line of JSON a row.

cluster.py [--short] [--row NAME,...] [--keep] [--faults N] [--repeats N] [--pelago build/pelago]
  quiet        the trainer never waits, without faults; merged/alive; no round ends after its grace; at the end learners' anchors,
               the syncer's broadcast and the journal read back have the same digest, and the recorded events give the same effects
  kills        one kill -9 of a learner every 15 s; the trainer never waits, with faults; rejoin times; no round after its grace
  storm        many faults (kill -9, SIGSTOP) at 1 s mean; loss against the run without them, at equal merged tokens; --repeats: so
               many pairs side by side, each with a seed of its own, where there are processors for them
  crowd        32 learners, a fault every 29 s
  syncer-kills kill -9 of the syncer at random moments: it comes back with at least what any learner holds, and a version has
               one digest for ever; no trainer paused; at the end all hold the same
  partition    half of the learners cut off for 60 s, both ways and one way each: what they did meanwhile is merged after
               healing, once; the others are not slowed
  stale        the same for longer than --staleness allows: that work is dropped, once and no more, and they contribute again
  lines        two learners on lines of 10 and 1 Mbit/s that are reset every few seconds: they train at the pace of one alone,
               both are merged, and the model is better than that one's after the same time
  edge         a learner that is online for 10 s in every 60: its offline work is merged
  durability   the journal synced for every record and every hundredth, in turns: what the difference costs

Learners share the cores of one machine, so each is paced: a step takes a fixed time of which the computation is a
part, and a dead neighbour does not speed the living up. --short takes seconds where the full form takes minutes. Random
choices print their seed (--seed repeats them). Leaves with 1 when a bar is missed.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from harness import (MISSED, STEP_TOKENS, Cluster, emit, end_with_what_was_started, judge_equality, judge_grace,
                     judge_trainers, paced)
from rows_kill import row_crowd, row_kills, row_storm, row_syncer_kills
from rows_link import row_edge, row_lines, row_partition, row_stale


def row_quiet(args):
    learners, seconds = 8, 14 if args.short else 120
    record = os.path.join(args.work, "quiet.events")
    c = Cluster(args, "quiet", *paced(learners, tokens=int(learners * STEP_TOKENS * 10 * seconds)), "--record", record)
    try:
        c.wait_all(learners)
        shares = []
        while c.process.poll() is None:
            s = c.status()
            if s and s["phase"] == "running":
                shares.append(s["merged_alive"])
            time.sleep(1)
        c.finish()
        judge_trainers(args, "never-waits", c, False)
        judge_grace(args, "quiet", c.final_status())
        worst = sorted(shares)[len(shares) // 20] if shares else 0
        mean = sum(shares) / max(1, len(shares))
        bar = 0.8 if args.short else 0.95  # a learner that is not given the processor in time is late
        emit("merged-alive", round(mean, 4), bar, mean >= bar, worst_5_percent=round(worst, 4))
        judge_equality(c, learners)
        replay = subprocess.run([c.pelago, "replay", record], capture_output=True, text=True, check=False)
        emit("equality-replay", replay.returncode, 0, replay.returncode == 0, said=(replay.stdout + replay.stderr).strip()[-200:])
    finally:
        c.stop()


def durability_run(args, name, seconds, *options):
    """What so many seconds cost of a run that has begun: counts of the syncer, their differences."""
    c = Cluster(args, name, *paced(4, 50), *options)
    try:
        c.wait_all(4)
        time.sleep(3)
        a = c.status()
        time.sleep(seconds)
        b = c.status()
        span = b["uptime_s"] - a["uptime_s"]
        merges = b["merges"] - a["merges"]
        return {"durability": b["durability"], "merges_per_s": merges / span, "syncs": b["store_syncs"] - a["store_syncs"], "merges": merges,
                "announce_ms": b["announce_ns"] / 1e6, "store_ms": b["store_ns"] / 1e6, "cpu_per_s": (b["cpu_s"] - a["cpu_s"]) / span,
                "merged_share": (b["merged_tokens"] - a["merged_tokens"]) / max(1, b["tokens"] - a["tokens"])}
    finally:
        c.stop()


def row_durability(args):
    """In turns, because the disk is shared. relaxed syncs every hundredth record; a power cut may then cost the merges since."""
    rounds, seconds = (1, 6) if args.short else (3, 30)
    runs = [durability_run(args, f"durability-{i}-{kind}", seconds, *options) for i in range(rounds)
            for kind, options in (("strict", ()), ("relaxed", ("--relaxed", 100)))]
    kinds = {kind: [run for run in runs if run["durability"] == kind] for kind in ("strict", "relaxed")}
    figures = {kind: {key: round(sum(run[key] for run in of) / len(of), 3) for key in of[0] if key != "durability"}
               for kind, of in kinds.items()}
    strict, relaxed = figures["strict"], figures["relaxed"]
    share = strict["merged_share"]
    # A sync may make several records durable, but in turns of seconds most records come alone.
    synced = strict["syncs"] > 10 * relaxed["syncs"] and strict["merges"] > 0
    good = synced and share >= 0.95
    emit("durability", figures, {"merged_share of strict": 0.95}, None if args.short and synced else good,
         announcement_later_ms=round(strict["announce_ms"] - relaxed["announce_ms"], 3), rounds=rounds, seconds=seconds)


ROWS = {"quiet": row_quiet, "kills": row_kills, "storm": row_storm, "crowd": row_crowd,
        "syncer-kills": row_syncer_kills, "partition": row_partition, "stale": row_stale,
        "edge": row_edge, "lines": row_lines, "durability": row_durability}
SHORT = ["quiet", "kills", "syncer-kills", "partition", "stale", "edge", "durability"]


def main():
    end_with_what_was_started()
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--faults", type=int, default=0, help="of storm")
    p.add_argument("--repeats", type=int, default=1, help="of storm: pairs, side by side")
    p.add_argument("--data", default="builtin:tales", help="of storm: text or a token file, as pelago run takes it")
    p.add_argument("--valid", default="", help="of storm: the same, to validate on")
    p.add_argument("--mbit", type=int, default=0, help="of lines: this rate alone")
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
