#!/usr/bin/env python3
"""How many more steps decoupled training takes to a loss than data-parallel: one line of JSON, for bench/wan.sh --steps-ratio.

steps_to_loss.py [--model 14m] [--batch 8] [--seq 256] [--steps 600] [--threads 1] [--backend NAME] [--short] [--pelago build/pelago]

Two learners on an open line, first decoupled, then data_parallel, the same tokens; with 14m on two cores half an hour in all, with --backend cuda
minutes.
The loss asked for is the higher of the two last ones (means over the last tenth of each curve of training losses), so that
both reach it; the steps to it are those after which the mean over a tenth is there for the first time. --short: 1m for some
seconds, which shows that it works and nothing about the ratio.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import emit, read_json  # noqa: E402

LEARNERS = 2


def curve(args, algorithm):
    """(steps of a learner, loss), as the run went."""
    folder = os.path.join(args.work, algorithm)
    subprocess.run([str(word) for word in (args.pelago, "run", "--out", folder, "--quiet", "--algorithm", algorithm, "--learners", LEARNERS, "--threads", args.threads,
                    "--model", args.model, "--batch", args.batch, "--seq", args.seq, "--data", "builtin:tales", "--tokens",
                    LEARNERS * args.batch * args.seq * args.steps,
                    *(("--backend", args.backend) if args.backend else ()))], check=True, stdout=subprocess.DEVNULL)
    points = read_json(os.path.join(folder, "report.json"))["curve"]
    return [(p["tokens"] / (LEARNERS * args.batch * args.seq), p["loss"]) for p in points if p["loss"] is not None]


def smooth(points):
    """Each with the mean over the tenth of the curve that ends with it."""
    width = max(1, len(points) // 10)
    return [(points[i][0], sum(loss for _, loss in points[i - width + 1:i + 1]) / width) for i in range(width - 1, len(points))]


def steps_to(points, loss):
    return next(steps for steps, now in points if now <= loss)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="14m")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--backend", default="", help="of the learners: what pelago run --backend takes")
    p.add_argument("--short", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    args = p.parse_args()
    if args.short:
        args.model, args.batch, args.seq, args.steps = "1m", 2, 128, 200
    args.work = tempfile.mkdtemp(prefix="pelago-steps-")
    try:
        curves = {name: smooth(curve(args, name)) for name in ("decoupled", "data_parallel")}
    finally:
        shutil.rmtree(args.work, ignore_errors=True)
    loss = max(points[-1][1] for points in curves.values())
    steps = {name: steps_to(points, loss) for name, points in curves.items()}
    emit("steps-to-loss", {name: round(n) for name, n in steps.items()}, "printed", None, loss=round(loss, 4), model=args.model,
         steps_ratio=round(steps["decoupled"] / steps["data_parallel"], 3))


if __name__ == "__main__":
    main()
