#!/usr/bin/env python3
"""What strangers and lying learners can do to a run: one line of JSON a figure.

hostile.py [--short] [--row flood,liars,2of8] [--keep] [--seed N] [--pelago build/pelago] [--liar build/bench_hostile]

  flood   8 paced learners train. A flood of connections from other loopback addresses goes to an inert sink, then
          the same flood goes to the syncer, four times in turns of half a minute: silent ones, garbage, slow drips, oversized TLS records and frames, handshakes
          without a certificate and then nothing, wrong tokens, questions without a certificate. Enrolled learners that lie come
          with it (digests, NaN, infinities, changes a million times too long, claims of tokens and steps, replays).
            hostile           tokens merged a second, beside those while the sink had the flood; the mean of the pairs, and its
                              standard error
            hostile-cost      milliseconds of the syncer's processor a refused connection, beside the quiet phase
            hostile-kept      files and memory that stay when it is over
            hostile-reasons   every kind of stranger, and every liar, has its sentence in the log; none of the lies was merged
  2of8    six honest learners alone, then the same six with two enrolled ones that lead the model back where it came from
          (flip), as far as they get away with (climb), with claims of 16 times the speed (claims), or anywhere (random); the
          loss at the end of the same budget of tokens, so that tokens the liars claim are missing as well
            hostile-2of8      per cent above; the middle of --repeats pairs of runs

--short: the flood alone, seconds of it; goodput is judged by a bar of a half and cost not at all. Losses of runs of seconds differ by more
than 2of8 asks for, so with --short it judges nothing.

Random choices print their seed. Leaves with 1 when a bar is missed.
"""
import argparse
import asyncio
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import MISSED, STEP_TOKENS, Cluster, emit, end_with_what_was_started, paced, read_json  # noqa: E402

KEPT_BYTES = 32 << 20  # what the allocator keeps of 256 handshakes at once; it does not grow with the number of connections
BUSY_MAX = 0.7  # of all processors
PACE_MS = 250  # of a step in the flood: eight learners leave most of two cores to the flood itself
FLOOD_STEP = {"batch": 1, "seq": 64}
LIES = {"digest": "does not match its digest", "nan": "not finite", "inf": "not finite", "huge": "times as long as usual",
        "tokens": "PUSH.tokens is", "steps": "PUSH.steps claims", "reports": "(REPORT|HELLO).steps claims",
        "replay": "the round is over"}
# Kinds of strangers: how many of 20 connections, and the sentence in the log that is about them.
STRANGERS = {"silent": (6, "the handshake did not end in time"), "garbage": (6, "it does not speak TLS"),
             "drip": (2, "the handshake did not end in time"), "record": (2, "it does not speak TLS"),
             "frame": (1, "announces a payload"), "anonymous": (1, "no greeting came in time"),
             "token": (1, "the token is wrong"), "question": (1, "only members of the run may ask")}


# ---- the flood: a process of its own ----

class Flood:
    """count connections at an even pace, each from a random address 127.0.x.y; as many at once as it takes."""

    def __init__(self, port, frames, count, seconds, seed):
        self.port, self.frames, self.count, self.seconds = port, frames, count, seconds
        self.rng = random.Random(seed)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self.tls.set_alpn_protocols(["pelago/1"])
        self.done = {kind: 0 for kind in STRANGERS}
        self.hello = self.client_hello()

    def client_hello(self):
        out = ssl.MemoryBIO()
        conn = self.tls.wrap_bio(ssl.MemoryBIO(), out)
        try:
            conn.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return out.read()

    async def open(self, source, with_tls):
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0),
                                             ssl=self.tls if with_tls else None,
                                             ssl_handshake_timeout=6 if with_tls else None)

    async def drip(self, writer):
        for byte in self.hello[:40]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.2)

    async def one(self, kind, source):
        plain = kind in ("silent", "garbage", "drip", "record")
        reader, writer = await self.open(source, not plain)
        try:
            if kind == "garbage":
                writer.write(self.rng.randbytes(self.rng.randrange(1, 2000)))
            elif kind == "drip":
                await self.drip(writer)
            elif kind == "record":
                writer.write(b"\x16\x03\x01\xff\xff" + bytes(4000))
            elif kind in ("frame", "token", "question"):
                name = {"frame": "oversized", "token": "enrol", "question": "ask"}[kind]
                writer.write(bytes.fromhex(self.frames[name]))
            while await reader.read(4096):  # the other side ends it
                pass
        finally:
            writer.close()

    async def guarded(self, kind, source):
        try:
            await asyncio.wait_for(self.one(kind, source), 12)
        except (OSError, ssl.SSLError, asyncio.TimeoutError):
            pass
        self.done[kind] += 1

    async def run(self):
        begin, tasks, kinds = time.monotonic(), [], []
        for kind, (share, _) in STRANGERS.items():
            kinds += [kind] * share
        self.rng.shuffle(kinds)
        for i in range(self.count):
            source = f"127.0.{self.rng.randrange(1, 250)}.{self.rng.randrange(2, 250)}"
            tasks.append(asyncio.ensure_future(self.guarded(kinds[i % len(kinds)], source)))
            ahead = begin + self.seconds * (i + 1) / self.count - time.monotonic()
            await asyncio.sleep(max(0, ahead))
        await asyncio.gather(*tasks)


def flood_main(text):
    """Entry of the flood's own process."""
    o = json.loads(text)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logging.disable(logging.CRITICAL)  # asyncio has a word about every connection that is closed on us
    flood = Flood(o["port"], o["frames"], o["count"], o["seconds"], o["seed"])
    asyncio.run(flood.run())
    print(json.dumps({"done": flood.done, "cpu_s": round(time.process_time(), 2)}))


class Sink(threading.Thread):
    """Takes connections, reads what comes, says nothing, and closes after a while."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        async def take(reader, writer):
            try:
                end = time.monotonic() + 2
                while time.monotonic() < end and await asyncio.wait_for(reader.read(4096), 2):
                    pass
            except (OSError, asyncio.TimeoutError):
                pass
            writer.close()
        server = await asyncio.start_server(take, sock=self.listener)
        async with server:
            await server.serve_forever()


def start_flood(port, frames, count, seconds, seed):
    text = json.dumps({"port": port, "frames": frames, "count": count, "seconds": seconds, "seed": seed})
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--flood", text], stdout=subprocess.PIPE, text=True)


# ---- the cluster ----

def invite(c, uses):
    """A token for so many learners."""
    answer = subprocess.run([c.pelago, "invite", os.path.join(c.folder, "syncer"), "--uses", str(uses)],
                            capture_output=True, text=True, check=True)
    return next(word for word in answer.stdout.split() if word.startswith("pelago1") or len(word) > 60)


def start_liar(args, token, mode, seconds, *more):
    return subprocess.Popen([args.liar, "--join", token, "--mode", mode, "--seconds", str(seconds), *map(str, more)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process, now=False):
    """What it has to say, at its end or at once."""
    if now and process.poll() is None:
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    try:
        return json.loads(out)
    except ValueError:
        return {"failed": (out + err)[-300:]}


def files_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def at_merge(c):
    """The status at a moment when a version has just been made: rates between two such moments have no remainder."""
    s = c.status()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        t = c.status()
        if t and s and t["merges"] != s["merges"]:
            return t
        s = t or s
    return s


def phase(c, seconds, during):
    """Status before and after so many seconds; during() begins and returns what has to be waited for."""
    before, busy, begin = at_merge(c), busy_seconds(), time.monotonic()
    waiting = during()
    time.sleep(seconds)
    after = at_merge(c)
    after["machine_busy"] = round((busy_seconds()[0] - busy[0]) / (time.monotonic() - begin) / busy[1], 2)
    return before, after, waiting


def of_pace(c, before, after):
    """Tokens of the run's own learners merged in a phase, of what their pace allows (a liar's first pushes may be honest ones).
    Above 1 where work of the time before is merged."""
    own = {one["identity"] for one in read_json(os.path.join(c.folder, "run.json"))["learners"]}
    counts = [sum(one["merged_tokens"] for one in s["learners"] if one["identity"] in own) for s in (before, after)]
    full = 8 * FLOOD_STEP["batch"] * FLOOD_STEP["seq"] * 1000 / PACE_MS
    return round((counts[1] - counts[0]) / (after["uptime_s"] - before["uptime_s"]) / full, 4)


def busy_seconds():
    """Processor time all processes of the machine have used, and its processors."""
    with open("/proc/stat", encoding="utf-8") as f:
        words = [int(x) for x in f.readline().split()[1:]]
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK"), os.cpu_count()


def refused_of(s):
    return s["refused"]  # everybody: strangers, the door, learners


def log_of(c):
    with open(os.path.join(c.folder, "log", "syncer.log"), encoding="utf-8") as f:
        return f.read()


def calm_phase(c, args, sink, frames, count, seconds):
    before, after, flood = phase(c, seconds, lambda: start_flood(sink.port, frames, count, seconds - 1, args.seed))
    flood.communicate(timeout=60)
    return record(c, before, after)


def flood_phase(c, args, token, frames, count, seconds, ends):
    port = int(frames["address"].rsplit(":", 1)[1])

    def attack():
        liars = {mode: start_liar(args, token, mode, seconds - 1, "--step-ms", PACE_MS) for mode in ([] if args.no_liars else LIES)}
        return start_flood(port, frames, count, seconds - 1, args.seed), liars

    before, after, (flood, liars) = phase(c, seconds, attack)
    sent = json.loads(flood.communicate(timeout=60)[0])
    ends += [(mode, told(p)) for mode, p in liars.items()]
    return record(c, before, after) | {"connections": sum(sent["done"].values()), "refused": refused_of(c.status()) - refused_of(before)}


def record(c, before, after):
    return {"of_pace": of_pace(c, before, after), "cpu_s": after["cpu_s"] - before["cpu_s"], "busy": after["machine_busy"],
            "lost": after["lost"] - before["lost"], "merged_alive": after["merged_alive"]}


def row_flood(args):
    """Pairs of phases, in turns calm first and flood first: what else the machine has to do changes within minutes."""
    pairs, seconds, count = (1, 7, 800) if args.short else (4, 30, 5_000)
    c = Cluster(args, "flood", *paced(8, PACE_MS, **FLOOD_STEP))
    calm, flooded, ends = [], [], []
    try:
        c.wait_all(8)
        token = invite(c, pairs * len(LIES))
        frames = json.loads(subprocess.run([args.liar, "--join", token, "--mode", "frames"], capture_output=True, text=True,
                                           check=True).stdout)
        sink = Sink()
        sink.start()
        time.sleep(1 if args.short else 25)  # some periods: the first merges of a fragment are of fewer steps
        pid, files, memory = c.syncer(), files_of(c.syncer()), c.status()["memory_bytes"]
        for i in range(2 * pairs):
            if i % 4 in (0, 3):
                calm.append(calm_phase(c, args, sink, frames, count, seconds))
            else:
                flooded.append(flood_phase(c, args, token, frames, count, seconds, ends))
        judge_flood(args, c, calm, flooded, seconds)
        if ends:
            judge_liars(args, c, ends)
        judge_kept(c, pid, files, memory)
    finally:
        c.stop()


def judge_flood(args, c, calm, flooded, seconds):
    shares = [f["of_pace"] / q["of_pace"] for q, f in zip(calm, flooded)]
    share = statistics.mean(shares)
    error = statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0
    bar = 0.5 if args.short else 0.99  # a few seconds hold too few merges for more
    # On a busy machine, or where the phases differ by more than what is asked, they cannot be compared: no pass.
    busy = [x["busy"] for x in calm + flooded]
    comparable = args.short or (max(busy) <= BUSY_MAX and share <= 2 - bar and 2 * error <= 1 - bar)
    emit("hostile", round(share, 4), bar, share >= bar and comparable, error=round(error, 4), comparable=comparable,
         pairs=[round(x, 4) for x in shares], seconds=seconds, merged_alive=min(x["merged_alive"] for x in flooded),
         lost=sum(x["lost"] for x in flooded), machine_busy=[min(busy), max(busy)],
         merged_of_pace=[[x["of_pace"] for x in calm], [x["of_pace"] for x in flooded]], seed=args.seed)
    refused, connections = sum(x["refused"] for x in flooded), sum(x["connections"] for x in flooded)
    spent = [sum(x["cpu_s"] for x in phases) for phases in (calm, flooded)]
    cost = (spent[1] - spent[0]) / max(1, refused) * 1000
    many = refused >= 0.9 * connections
    emit("hostile-cost", round(cost, 3), "at most 1 ms", None if args.short and many else cost <= 1 and many, connections=connections,
         refused=refused, calm_cpu_s=round(spent[0], 2), flood_cpu_s=round(spent[1], 2))
    said = log_of(c)
    silent = [kind for kind, (_, words) in STRANGERS.items() if words not in said]
    emit("hostile-reasons", len(STRANGERS) - len(silent), len(STRANGERS), not silent, without=silent, of="strangers")


def judge_liars(args, c, ends):
    """ends: (mode, what it said at its end), of every flood. In seconds, on a busy machine, a liar may not come to its lie."""
    said = log_of(c)
    silent = [mode for mode, words in LIES.items() if not re.search(words, said)]
    failed = {mode: end["failed"] for mode, end in ends if "failed" in end}
    # The first push of replay is an ordinary one; a claim of steps is only lied about in its pushes.
    merged = {mode: end["merged"] for mode, end in ends if end.get("merged", 0) > (24 if mode == "replay" else 0)}
    pushes = {mode: sum(end.get("pushes") or 0 for m, end in ends if m == mode) for mode in LIES}
    bar = len(LIES) - (2 if args.short else 0)
    emit("hostile-reasons", len(LIES) - len(silent), bar, len(LIES) - len(silent) >= bar and not (merged or failed), without=silent,
         merged=merged, failed=failed, pushes=pushes, of="liars")


def judge_kept(c, pid, files, memory):
    """Connections that were refused take a few seconds to be gone. Asking for the status is a connection, too: files go first."""
    deadline, more_files = time.monotonic() + 20, files_of(pid) - files
    while time.monotonic() < deadline and more_files > 0:
        time.sleep(0.2)
        more_files = files_of(pid) - files
    s = c.status()
    more = s["memory_bytes"] - memory
    emit("hostile-kept", {"files": more_files, "memory_bytes": more}, {"files": 0, "memory_bytes": KEPT_BYTES},
         more_files <= 0 and more <= KEPT_BYTES, handshaking=s["handshaking"], memory_before=memory)


def loss_in(report):
    """Validation loss, wherever the report has it."""
    found = [v["loss"] for v in report.values() if isinstance(v, dict) and "loss" in v and "eval_tokens" in v]
    return found[0]


def loss_of(args, name, tokens, liars, seed):
    """Validation loss of six honest learners, with or without company."""
    c = Cluster(args, name, *paced(6, tokens=int(tokens), seed=seed))
    processes = []
    try:
        c.wait_all(6)
        if liars:
            token = invite(c, len(liars))
            processes = [start_liar(args, token, mode, 3600, *more) for mode, more in liars]
        report = c.finish(3600)
        ends = [told(p, True) for p in processes]
        said = log_of(c)
        refused = len(re.findall(r"push\.refused|learner\.refused", said))
        doubted = sorted({int(x) for x in re.findall(r"learner\.doubted learner=(\d+)", said)})
        return loss_in(report), ends, refused, doubted
    finally:
        for p in processes:
            if p.poll() is None:
                p.send_signal(signal.SIGKILL)
        c.stop()


def row_2of8(args):
    """The budget is that of the six alone. Runs of real processes differ by themselves: the spread is printed beside."""
    seconds = args.seconds or (10 if args.short else 180)
    budget = 6 * STEP_TOKENS * 10 * seconds
    repeats = args.repeats or (1 if args.short else 3)
    attacks = {"flip": [("flip", ["--norm", "1"])] * 2, "climb": [("climb", ["--norm", "2"])] * 2,
               "claims": [("flip", ["--norm", "1", "--rate", "16"])] * 2, "random": [("random", ["--norm", "1"])] * 2}
    names = args.attack.split(",") if args.attack else ["climb"] if args.short else list(attacks)
    alone = [loss_of(args, f"2of8-alone-{i}", budget, [], 7 + i)[0] for i in range(repeats)]
    for name in names:
        ends = [loss_of(args, f"2of8-{name}-{i}", budget, attacks[name], 7 + i) for i in range(repeats)]
        off = sorted(100 * (end[0] / one - 1) for end, one in zip(ends, alone))
        middle = statistics.median(off)
        emit("hostile-2of8", round(middle, 2), "at most 0.3% above", None if args.short else middle <= 0.3, attack=name, pairs=[round(x, 2) for x in off],
             loss=[end[0] for end in ends], loss_without=alone, seconds=seconds, doubted=[end[3] for end in ends],
             refused=[end[2] for end in ends], liars=ends[0][1])


ROWS = {"flood": row_flood, "2of8": row_2of8}


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--flood":
        flood_main(sys.argv[2])
        return
    end_with_what_was_started()
    p = argparse.ArgumentParser()
    p.add_argument("--short", action="store_true")
    p.add_argument("--row", default="")
    p.add_argument("--attack", default="", help="of 2of8: flip, climb, claims, random")
    p.add_argument("--repeats", type=int, default=0, help="pairs of runs of 2of8")
    p.add_argument("--seconds", type=int, default=0, help="of one run of 2of8")
    p.add_argument("--no-liars", action="store_true", help="of flood: strangers only")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--pelago", default="build/pelago")
    p.add_argument("--liar", default="")
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = p.parse_args()
    args.liar = args.liar or os.path.join(os.path.dirname(args.pelago), "bench_hostile")
    args.work = tempfile.mkdtemp(prefix="pelago-hostile-")
    try:
        for row in args.row.split(",") if args.row else ["flood"] if args.short else ROWS:
            ROWS[row](args)
    finally:
        if args.keep:
            print("kept:", args.work, file=sys.stderr)
        else:
            shutil.rmtree(args.work, ignore_errors=True)
    sys.exit(1 if MISSED else 0)


if __name__ == "__main__":
    main()
