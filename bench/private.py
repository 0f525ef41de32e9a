#!/usr/bin/env python3
"""What a learner with private data says: one line of JSON.

private.py [--short] [--keep] [--seed N] [--pelago build/pelago]

A syncer, a learner on the run's data, and a learner with --local-data on a text that exists nowhere else train together. All that
the private one sends is seen twice: by --capture, which writes the frames, and, not believing that, by a small library put in
front of OpenSSL's SSL_write, which also sees enrolment, questions, and whatever else the process might encrypt. Neither
may hold any 16 bytes that stand in the text in a row; every window is looked up. That the looking finds what is there is
tried first, on the same bytes with a line of the text among them.

  private   windows of 16 bytes that are in the text; at least one contribution of the private learner was merged

Random choices print their seed. Leaves with 1 when the bar is missed.
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import MISSED, emit  # noqa: E402

WINDOW = 16
TAP = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
static int tap = -1;
static void keep(const void *bytes, size_t len)
{
    if (tap < 0)
        tap = open(getenv("TAP_FILE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (write(tap, bytes, len) != (ssize_t)len)
        abort();
}
int SSL_write_ex(void *ssl, const void *bytes, size_t len, size_t *written)
{
    int (*real)(void *, const void *, size_t, size_t *) = dlsym(RTLD_NEXT, "SSL_write_ex");
    int good = real(ssl, bytes, len, written);
    if (good == 1)
        keep(bytes, *written);
    return good;
}
int SSL_write(void *ssl, const void *bytes, int len)
{
    int (*real)(void *, const void *, int) = dlsym(RTLD_NEXT, "SSL_write");
    int n = real(ssl, bytes, len);
    if (n > 0)
        keep(bytes, (size_t)n);
    return n;
}
"""


def private_text(rng, size):
    """Words that nobody uses, in lines."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randrange(3, 11))) for _ in range(3000)]
    out = []
    while size > 0:
        line = " ".join(rng.choices(words, k=12)) + ".\n"
        out.append(line)
        size -= len(line)
    return "".join(out)


def windows(data):
    return {data[i:i + WINDOW] for i in range(len(data) - WINDOW + 1)}


def found(known, data):
    """How many windows of data are known."""
    return sum(data[i:i + WINDOW] in known for i in range(len(data) - WINDOW + 1))


def build_tap(folder):
    source, library = os.path.join(folder, "tap.c"), os.path.join(folder, "tap.so")
    with open(source, "w", encoding="utf-8") as f:
        f.write("#define _GNU_SOURCE\n" + TAP)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Pair:
    def __init__(self, args, work):
        self.pelago, self.work, self.home = os.path.abspath(args.pelago), work, os.path.join(work, "home")
        self.processes = []
        self.start("syncer", "--dir", self.home, "--listen", "127.0.0.1:0", "--learners", "2", "--model", "1m", "--data",
                   "builtin:tales", "--batch", "2", "--seq", "128", "--tokens", "1000000000")

    def start(self, *words, **more):
        with open(os.path.join(self.work, f"{len(self.processes)}.log"), "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([self.pelago, *words], stdout=log, stderr=log, **more))
        return self.processes[-1]

    def invite(self):
        for _ in range(100):
            answer = subprocess.run([self.pelago, "invite", self.home, "--uses", "2"], capture_output=True, text=True,
                                    check=False)
            if answer.returncode == 0:
                return max(answer.stdout.split(), key=len)
            time.sleep(0.2)
        raise SystemExit("the syncer does not invite: " + answer.stderr)

    def merged(self):
        """Rounds in which each learner was merged, by identity."""
        answer = subprocess.run([self.pelago, "status", self.home, "--json"], capture_output=True, text=True, check=False)
        try:
            return {x["identity"]: x["rounds_merged"] for x in json.loads(answer.stdout)["learners"]}
        except (ValueError, KeyError):
            return {}

    def stop(self):
        for p in reversed(self.processes):
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in self.processes:
            try:
                p.wait(timeout=15)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def run(args, work, text_file):
    """Rounds of the private learner that were merged."""
    rounds = 24 if args.short else 240
    pair = Pair(args, work)
    try:
        token = pair.invite()
        common = ["--threads", "1", "--pace", "50ms", "--join", token]
        env = {**os.environ, "LD_PRELOAD": build_tap(work), "TAP_FILE": os.path.join(work, "tap")}
        private = pair.start("learner", "--dir", os.path.join(work, "one"), "--local-data", text_file, "--capture",
                             os.path.join(work, "capture"), *common, env=env)
        merged = {}
        deadline = time.monotonic() + (20 if args.short else 120)
        while time.monotonic() < deadline and not merged:  # it is the first: identity 1
            time.sleep(0.2)
            merged = pair.merged()
        pair.start("learner", "--dir", os.path.join(work, "two"), *common)
        while time.monotonic() < deadline and merged.get(1, 0) < rounds:
            time.sleep(0.5)
            merged = pair.merged() or merged
        private.send_signal(signal.SIGTERM)  # what it says when it leaves is looked at, too
        private.wait(timeout=15)
        return merged.get(1, 0)
    finally:
        pair.stop()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = p.parse_args()
    work = tempfile.mkdtemp(prefix="pelago-private-")
    try:
        text = private_text(random.Random(args.seed), 200_000)
        text_file = os.path.join(work, "diary.txt")
        with open(text_file, "w", encoding="utf-8") as f:
            f.write(text)
        merged = run(args, work, text_file)
        known = windows(text.encode())
        sizes, hits = {}, {}
        for name in ("tap", "capture"):
            with open(os.path.join(work, name), "rb") as f:
                data = f.read()
            sizes[name], hits[name] = len(data), found(known, data)
            spoilt = data[:1000] + text[500:540].encode() + data[1000:2000]
            if found(known, spoilt) < 40 - WINDOW + 1:
                raise SystemExit("private: the check does not find what is there")
        complete = sizes["tap"] >= sizes["capture"] > 0
        emit("private", hits["tap"] + hits["capture"], 0, complete and merged > 0 and not any(hits.values()), windows=len(known),
             bytes_sent=sizes["tap"], bytes_captured=sizes["capture"], rounds_merged=merged, seed=args.seed)
    finally:
        if args.keep:
            print("kept:", work, file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if MISSED else 0)


if __name__ == "__main__":
    main()
