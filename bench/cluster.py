#!/usr/bin/env python3
"""What the cluster must show, measured on real processes: one line of JSON a row.

cluster.py [--short] [--row NAME,...] [--keep] [--faults N] [--pelago build/pelago]
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
import random
import shutil
import sys
import tempfile
import time

from harness import MISSED, STEP_TOKENS, Cluster, emit, judge_trainers, paced
from rows_kill import row_crowd, row_kills, row_storm, row_syncer_kills
from rows_link import row_edge, row_lines, row_partition, row_stale


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


ROWS = {"quiet": row_quiet, "kills": row_kills, "storm": row_storm, "crowd": row_crowd,
        "syncer-kills": row_syncer_kills, "partition": row_partition, "stale": row_stale,
        "edge": row_edge, "lines": row_lines}
SHORT = ["quiet", "kills", "syncer-kills", "partition", "stale", "edge"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--faults", type=int, default=0, help="of storm")
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
