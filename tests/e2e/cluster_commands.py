#!/usr/bin/env python3
"""cluster_commands.py PELAGO [PART...] - syncer, learner, invite, status, top, replay and run as people use them.

Real processes, sockets and TLS on loopback. A run goes on through kill -9 of a learner and of the syncer and through Ctrl-C;
whatever a person can do wrong is one sentence with exit code 1 or 2. Needs nothing but python3.
"""
import fcntl
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

PELAGO = str(Path(sys.argv[1]).resolve())
TINY = ("--layers 2 --width 32 --heads 2 --context 64 --tokenizer byte --batch 2 --seq 32 --eval-tokens 500 "
        "--period 8 --fragments 4 --data builtin:tales").split()
PATIENCE = 120
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def words_of(words):
    return [PELAGO, *map(str, words)]


def run(*words, code=0, **options):
    """stdout and stderr of a command that must leave with this code."""
    done = subprocess.run(words_of(words), capture_output=True, text=True, errors="replace", timeout=PATIENCE, **options)
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def refused(sentence, *words, code=1, **options):
    """A failing command says this as its last line, which is one sentence."""
    err = run(*words, code=code, **options)[1]
    last = err.rstrip("\n").split("\n")[-1]
    assert sentence in last and last.startswith("pelago ") and last[-1] in ".?", f"{words}:\n{err}"


def until(condition, what, process=None):
    """Waits for what must come; a process that ends meanwhile is told apart from one that hangs."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process is None or process.poll() is None, f"ended before {what}: {process.args}"
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.02)


class Process:
    """A pelago of ours with its output in a file."""
    all = []

    def __init__(self, *words, **options):
        self.log = temp / f"process-{len(Process.all)}.log"
        self.popen = subprocess.Popen(words_of(words), stdout=open(self.log, "w"), stderr=subprocess.STDOUT, **options)
        Process.all.append(self)

    def said(self):
        return self.log.read_text(errors="replace")

    def until_says(self, text):
        until(lambda: text in self.said(), f"'{text}' in\n{self.said()}", self.popen)

    def end(self, number=signal.SIGTERM):
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(PATIENCE)


def syncer(folder, *words):
    s = Process("syncer", "--dir", folder, "--listen", "127.0.0.1:0", *words)
    s.until_says("syncer.listen")
    return s


def token_of(s):
    s.until_says("--join ")
    return s.said().split("--join ")[1].split()[0]


def status(folder):
    return json.loads(run("status", folder, "--json")[0])


# ---- what there is ----

def help_pages():
    """Every command has a page of help, none of them wider than a terminal."""
    commands = re.findall(r"^  (\w+) ", run("help")[0], re.M)
    assert {"run", "syncer", "sim"} <= set(commands), commands
    parts = {"data": re.findall(r"^  (\w+) ", run("data", "--help")[0], re.M),
             "bench": re.search(r"bench (\S+) ", run("bench", "--help")[0])[1].split("|"), "chaos": ["proxy"], "sim": ["--goodput"]}
    assert "encode" in parts["data"] and "link" in parts["bench"], parts
    pages = [["help"], *([c, "--help"] for c in commands if c not in ("help", "version")),
             *([c, part, "--help"] for c in parts for part in parts[c])]
    for words in pages:
        out, err = run(*words)
        assert err == "" and out.startswith("usage: pelago "), (words, out, err)
        wide = [line for line in out.split("\n") if len(line) > 80]
        assert not wide, (words, wide)


# ---- one by one, as on several machines ----

def join_and_finish():
    """A syncer, two learners by one invitation each, until the model is there; every role restarts on the way."""
    home = temp / "home"
    s = syncer(home, *TINY, "--tokens", "150k")
    first = Process("learner", "--join", token_of(s), "--dir", temp / "one", "--threads", 1, "--pace", "20ms")
    token = run("invite", home, "--bare", "--valid", "1h")[0].strip()
    assert token.startswith("pelago1-"), token
    line = run("invite", home, "--uses", 3)[0]
    assert line.startswith("pelago learner --join pelago1-") and line.count("\n") == 1, line
    (temp / "token").write_text(f"pelago learner --join {token}\n")  # the whole line, as it was printed, will do
    second = Process("learner", "--join", f"@{temp}/token", "--dir", temp / "two", "--threads", 1, "--pace", "20ms", "--streams", 4)
    until(lambda: status(home)["alive"] == 2, "two learners", s.popen)
    until(lambda: all(x["rounds_merged"] > 0 for x in status(home)["learners"]), "both to be merged", s.popen)

    text = run("status", home)[0]
    assert "learner" in text and "tokens" in text and "alive 2 of 2" in text, text
    refused("expected one folder", "status", code=2)
    refused("holds no run", "status", temp)
    refused("is of a learner or a further shard: this asks the home shard", "status", temp / "one")
    second.end()
    refused("two is a learner's folder: give another --dir", "syncer", "--dir", temp / "two", "--listen", "127.0.0.1:0", code=2)
    second = Process("learner", "--dir", temp / "two", "--threads", 1, "--pace", "20ms")
    until(lambda: status(home)["alive"] == 2, "two learners", s.popen)
    refused("whoever has goes on with the same --dir", "learner", "--join", token, "--dir", temp / "three")
    assert (temp / "three" / "joining").exists() and not (temp / "two" / "joining").exists()  # a key is kept until it is somebody's

    # kill -9 and start again, with the same lines
    second.end(signal.SIGKILL)
    s.until_says("learner.lost learner=2 reason=LEAVING")  # when it was told to, above
    s.until_says("learner.lost learner=2 reason=DISCONNECTED")
    s.until_says("learner.disconnected learner=2")
    assert "during the handshake" not in s.said(), s.said()  # it was long over
    second = Process("learner", "--dir", temp / "two", "--threads", 1, "--pace", "20ms")
    before = status(home)["tokens"]
    assert s.end(signal.SIGKILL) == -signal.SIGKILL
    refused("nobody listens", "status", home)
    s = syncer(home)
    until(lambda: status(home)["alive"] == 2 and status(home)["tokens"] > before, "both to come back", s.popen)
    second.end(signal.SIGKILL)
    second = Process("learner", "--dir", temp / "two", "--threads", 1, "--pace", "20ms")
    until(lambda: re.search(r"^ *2 .* 1$", run("status", home)[0], re.M), "a learner that has rejoined once", s.popen)

    # SIGTERM: politely, and on with it
    assert first.end() == 128 + signal.SIGTERM and f"pelago learner --dir {temp / 'one'}" in first.said(), first.said()
    first = Process("learner", "--dir", temp / "one", "--threads", 1)
    assert s.end() == 128 + signal.SIGTERM
    s = syncer(home, "--record", temp / "events")
    for p in (s, first, second):
        assert p.popen.wait(PATIENCE) == 0, p.said()
    assert "run.complete" in s.said() and "learner.complete" in first.said()
    assert f"run.saved the folder holds the global model: pelago sample {home}" in s.said()
    assert "is complete already" in run("learner", "--dir", temp / "one")[1]  # and does not train for nobody

    assert "loss" in run("eval", home, "--data", "builtin:tales", "--tokens", 500)[0]
    assert len(run("sample", home, "--tokens", 20)[0]) > 0
    run("export", home, "--out", temp / "exported")
    assert status(home)["phase"] == "done"  # the last word of a syncer that has left
    refused("--model is not what the run in this folder has", "syncer", "--dir", home, "--model", "1m", code=2)
    refused("--tokens is not what the run", "syncer", "--dir", home, "--tokens", "1M", code=2)
    out, err = run("syncer", "--dir", home)
    assert "is complete already" in out and "syncer.listen" not in err, (out, err)
    late = syncer(home, "--linger", "1h")  # for who comes late
    assert status(home)["phase"] == "done"
    late.end()
    replays()


def replays():
    """What the recorder wrote gives the same effects again; another file does not."""
    out = run("replay", temp / "events")[0]
    assert "the same effects again" in out, out
    brief = syncer(temp / "brief", "--record", temp / "brief.events", *TINY)
    brief.end(signal.SIGKILL)
    out = run("replay", temp / "brief.events")[0]
    assert "the same effects again" in out and " 0 messages" in out, out
    brief = syncer(temp / "brief", "--record", temp / "brief.events")
    brief.end()
    for name in ("brief.events", "brief.events.1"):  # one for each life
        assert "the same effects again" in run("replay", temp / name)[0]
    longest = temp / ("x" * 254)  # there is no name for it to be kept under
    longest.write_bytes(b"somebody's")
    refused("the recording", "syncer", "--dir", temp / "brief", "--listen", "127.0.0.1:0", "--record", longest)
    assert longest.read_bytes() == b"somebody's"
    whole = bytearray((temp / "events").read_bytes())
    for at in random.sample(range(len(whole)), 40):  # an assertion would leave with 134
        damaged = whole[:]
        damaged[at] ^= 1 << random.randrange(8)
        (temp / "damaged").write_bytes(damaged)
        done = subprocess.run(words_of(("replay", temp / "damaged")), capture_output=True, text=True, check=False)
        # A length that is longer than what is there looks like a file that ends early.
        whole_sentence = done.returncode == 1 and done.stderr.startswith("pelago replay: ") and done.stderr.count("\n") == 1
        assert whole_sentence or "ends inside" in done.stdout, (at, done)
    (temp / "noise").write_bytes(b"PELAGOR3" + os.urandom(100))
    refused(f"pelago replay: the recording {temp}/noise: it is not one of a syncer, or it is cut off.", "replay", temp / "noise")
    whole[-9] ^= 1
    (temp / "damaged").write_bytes(whole)
    refused(f"pelago replay: the recording {temp}/damaged is damaged: event ", "replay", temp / "damaged")
    run("replay", temp / "nothing", code=1)
    refused("expected one file", "replay", code=2)


# ---- what a person meets ----

def mistakes_of_syncers():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused("choose another port with --listen", "syncer", "--dir", temp / "p1", "--listen", f"127.0.0.1:{port}", *TINY)
    again = syncer(temp / "p1", *TINY)  # nothing was left behind: the same line begins
    assert token_of(again).startswith("pelago1-")
    again.end()
    refused("an address is written host:port", "syncer", "--dir", temp / "p2", "--listen", "nonsense", *TINY, code=2)
    refused("nobody can dial the address foo", "syncer", "--dir", temp / "p2", "--advertise", "foo", *TINY, code=2)
    (temp / "three.txt").write_text("abc")
    words = [temp / "three.txt" if word == "builtin:tales" else word for word in TINY]
    refused("fewer than one sequence of 32", "syncer", "--dir", temp / "p2", "--listen", "127.0.0.1:0", *words)
    refused("exists and is not empty: give another one", "syncer", "--dir", temp, "--listen", "127.0.0.1:0", *TINY)
    assert not (temp / "p2").exists()  # the corrected line begins a run
    refused("this machine has no such address: 192.0.2.1:7441; use one of its own", "syncer", "--dir", temp / "p3", "--listen",
            "192.0.2.1:7441", *TINY)
    refused("--dir FOLDER is needed", "syncer", code=2)
    refused("--up is 'int3', expected", "syncer", "--dir", temp / "p4", "--up", "int3", code=2)
    refused("--shard 1 needs --join TOKEN", "syncer", "--dir", temp / "p5", "--shard", 1, code=2)
    refused("there is none called 2m", "syncer", "--dir", temp / "p5", "--model", "2m", code=2)
    refused("at least 257", "syncer", "--dir", temp / "p5", "--vocab", 100, code=2)
    refused("none.txt", "syncer", "--dir", temp / "p5", "--data", temp / "none.txt")
    refused("nowhere cannot be read", "chaos", "--plan", "nowhere", "--dry-run", "--learners", 2)
    err = run("sim", "--plan", "nowhere", code=1)[1]
    assert err == "pelago sim: nowhere cannot be read: No such file or directory.\n", err
    refused("is no address", "chaos", "proxy", "--to", "nonsense", code=2)
    refused("written host:port", "bench", "link", "--to", "nonsense", "--keys", temp / "keys", code=2)
    (temp / "file").write_text("x")
    refused("cannot be made: Not a directory; what should be a folder is a file", "syncer", "--dir", temp / "file" / "inside", *TINY)
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))}
    refused("cannot be written: File too large; raise the limit of file sizes", "syncer", "--dir", temp / "full", "--listen", "127.0.0.1:0", *TINY, **limit)
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))}
    refused("there is nothing to wait for events with", "syncer", "--dir", temp / "p1", "--listen", "127.0.0.1:0", **few)
    for stream in (0, 2):  # closed: nothing of ours takes its place
        run("status", temp / "p1", code=1, preexec_fn=lambda: os.close(stream))
    refused("nobody can dial the address 0.0.0.0:7441", "syncer", "--dir", temp / "p2", "--advertise", "0.0.0.0:7441", *TINY, code=2)
    if os.getuid() == 0:
        (temp / "locked").mkdir(mode=0o700)
        out, err = run("syncer", "--dir", temp / "locked" / "run", *TINY, code=1, user=65534)
        assert "cannot be made: Permission denied; choose a folder that this user may use" in err, err
        refused("Permission denied; choose a folder that this user may use", "learner", "--dir", temp / "locked" / "run", user=65534)


def mistakes_of_learners():
    home = temp / "home2"
    s = syncer(home, *TINY, "--tokens", "100M")
    token = token_of(s)
    refused("--join TOKEN is needed", "learner", code=2)
    refused("--join TOKEN is needed", "learner", "--dir", temp, code=2)
    wrong = token[:40] + ("A" if token[40] != "A" else "B") + token[41:]
    refused("the token is mistyped or cut off: copy the whole line", "learner", "--join", wrong, "--dir", temp / "l1", code=2)
    refused("the token is cut off: copy the whole line", "learner", "--join", token[:60], "--dir", temp / "l1", code=2)
    refused("this is no token: one begins with pelago1-", "learner", "--join", "hello", "--dir", temp / "l1", code=2)
    refused("--speed is 2", "learner", "--join", token, "--speed", 2, code=2)
    refused("expected a rate such as", "learner", "--join", token, "--max-up", "20", code=2)

    once = run("invite", home, "--bare", "--uses", 1)[0].strip()
    for option in ("--data", "--local-data"):
        refused("no such.txt could not be read: No such file", "learner", "--join", once, "--dir", temp / "l0", option,
                temp / "no such.txt")
    for option in ("--stats", "--capture"):
        refused("cannot be written: No such file", "learner", "--join", once, "--dir", temp / "l0", option, temp / "none" / "x")
    first = Process("learner", "--join", once, "--dir", temp / "l0", "--threads", 1, "--pace", "50ms")  # it is still good
    until(lambda: status(home)["alive"] == 1, "the learner of the token that was not used up", first.popen)
    assert first.end() == 128 + signal.SIGTERM, first.said()
    until(lambda: status(home)["alive"] == 0, "its leave", s.popen)
    assert status(home)["lost"] == 0 and status(home)["loss"] > 0, status(home)  # who says goodbye is not lost, and its loss is known
    shutil.rmtree(temp / "l0")

    brief = run("invite", home, "--bare", "--valid", "1s")[0].strip()
    time.sleep(2.1)  # that is what it is about
    refused("the token has expired; ask for a new one", "learner", "--join", brief, "--dir", temp / "l2")

    learner = Process("learner", "--join", token, "--dir", temp / "l3", "--threads", 1, "--pace", "50ms")
    until(lambda: status(home)["alive"] == 1, "a learner", learner.popen)
    refused("another pelago is at work in", "learner", "--dir", temp / "l3")
    refused(": end it, or choose another with --dir FOLDER.", "learner", "--dir", temp / "l3")
    refused(": end it, or choose another with --dir FOLDER.", "syncer", "--dir", home, "--listen", "127.0.0.1:0")
    assert learner.end() == 128 + signal.SIGTERM

    # other settings than the run's: another model, another version
    path = temp / "l3" / "settings.json"
    right = path.read_text()
    path.write_text(right.replace('"width": 32', '"width": 64'))
    refused("this folder's settings give another model than the syncer has: use the same version of pelago on both sides, or join anew",
            "learner", "--dir", temp / "l3")
    other_format = re.sub(r'"pelago_settings": \d+', '"pelago_settings": 9999', right)
    assert other_format != right
    path.write_text(other_format)
    refused("use the same version of pelago everywhere", "learner", "--dir", temp / "l3", code=2)
    path.write_text(right)

    # nobody can be called at what is left of an address
    path = temp / "l3" / "address"
    right = path.read_bytes()
    for left in (b"", b"\n", bytes(16), bytes(400), right.split(b":")[0], right.split(b":")[0] + b":", right + b"\0"):
        path.write_bytes(left)
        refused("l3 does not say where the syncer is: start once with --address HOST:PORT", "learner", "--dir", temp / "l3")
    learner = Process("learner", "--dir", temp / "l3", "--threads", 1, "--pace", "50ms", "--address", right.decode().strip())
    learner.until_says("shard.live")
    assert learner.end() == 128 + signal.SIGTERM

    # a token of another run, a run that is not there any more
    other = syncer(temp / "home3", *TINY)
    refused("another run", "learner", "--join", token_of(other), "--dir", temp / "l3", code=2)
    gone = run("invite", temp / "home3", "--bare")[0].strip()
    other.end()
    refused("nobody listens", "learner", "--join", gone, "--dir", temp / "l4", "--patience", "1s")
    refused("nobody listens", "invite", temp / "home3")
    early = Process("learner", "--join", gone, "--dir", temp / "l5", "--threads", 1, "--pace", "50ms")
    early.until_says("is this its port? (trying again for a while)")
    other = syncer(temp / "home3")  # it was waited for
    until(lambda: status(temp / "home3")["alive"] == 1, "the early learner", early.popen)
    early.end()
    other.end()
    s.end()


def pipes():
    """Nobody waits for a pipe in the place of a folder's file; one that a person names is read: a token comes through it."""
    home = temp / "pipes"
    syncer(home, *TINY, "--tokens", "100M").end()
    for name in ("listen", "advertise"):
        (home / name).unlink(missing_ok=True)
        os.mkfifo(home / name)
        s = syncer(home)
        assert status(home)["phase"] != "done" and run("invite", home, "--bare")[0].startswith("pelago1-")
        s.end()
    s = syncer(home)
    for name, sentence in (("listen", None), ("address", "address cannot be read: it is not a regular file")):
        kept = (home / name).read_text()
        (home / name).unlink()
        os.mkfifo(home / name)
        for command in ("status", "invite"):
            run(command, home) if sentence is None else refused(sentence, command, home)
        (home / name).unlink()
        (home / name).write_text(kept)
    token = run("invite", home, "--bare", "--uses", 2)[0]
    os.mkfifo(temp / "token-pipe")
    first = Process("learner", "--join", f"@{temp}/token-pipe", "--dir", temp / "pipe1", "--threads", 1, "--pace", "50ms")
    (temp / "token-pipe").write_text(token)
    second = Process("learner", "--join", "@/dev/stdin", "--dir", temp / "pipe2", "--threads", 1, "--pace", "50ms", stdin=subprocess.PIPE)
    second.popen.stdin.write(token.encode())
    second.popen.stdin.close()
    until(lambda: status(home)["alive"] == 2, "both learners", s.popen)
    for one in (first, second, s):
        one.end()


def lost_settings():
    """A folder that has lost its settings.json says so; the learner's copy, and the mirror's, let the run go on."""
    home, copy = temp / "lost", temp / "lost-mirror"
    s = syncer(home, *TINY, "--tokens", "100M", "--mirror", copy)
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "lost1", "--threads", 1, "--pace", "20ms")
    learner.until_says("shard.live")
    learner.end()
    s.end()
    sentence = "has a run, but its settings.json is missing: put it back, from the mirror's or a learner's folder"
    for words in ((), TINY):
        for folder in (temp / "lost1", copy):
            (home / "settings.json").unlink()
            there = sorted(home.iterdir())
            refused(sentence, "syncer", "--dir", home, "--listen", "127.0.0.1:0", *words)
            (home / "authority").rename(temp / "authority")
            refused(sentence, "syncer", "--dir", home, "--listen", "127.0.0.1:0", *words)
            (temp / "authority").rename(home / "authority")
            assert sorted(home.iterdir()) == there
            shutil.copy(folder / "settings.json", home)
            s = syncer(home, *words, "--mirror", copy)
            learner = Process("learner", "--dir", temp / "lost1", "--threads", 1, "--pace", "20ms")
            learner.until_says("shard.live")
            learner.end()
            s.end()
    (temp / "lost1" / "settings.json").unlink()
    refused("lost1 is a learner's folder: give another --dir", "syncer", "--dir", temp / "lost1", "--listen", "127.0.0.1:0", code=2)


def other_versions():
    """Whoever speaks another version is refused, with a sentence that names both."""
    s = syncer(temp / "versions", *TINY)
    host, port = (temp / "versions" / "address").read_text().split(":")
    for names, frame, sentence in ((["pelago/2"], b"", "not pelago/1"),
                                   (["pelago/1"], b"PL\x02\x01" + bytes(12), "protocol version 2, this build speaks version 1: use the same version of pelago")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(names)
        try:
            with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as line:
                line.sendall(frame)
                while line.recv(4096):
                    pass
        except OSError:
            pass
        s.until_says(sentence)
    s.end()


def skewed_clocks():
    """The date matters to nobody but a certificate: a learner's may be wrong, a syncer's must not go back."""
    library, day = os.environ.get("PELAGO_SKEW"), 86400
    if library is None:
        return

    def at(seconds):
        return {"env": {**os.environ, "LD_PRELOAD": library, "PELAGO_SKEW_S": str(seconds)}}

    home = temp / "skewed"
    s = syncer(home, *TINY, "--tokens", "100M")
    token = run("invite", home, "--bare", "--uses", 2)[0].strip()
    for skew, word in ((3 * day, "ahead of"), (-3 * day, "behind")):
        learner = Process("learner", "--join", token, "--dir", temp / f"skew{skew}", "--threads", 1, "--pace", "20ms", **at(skew))
        learner.until_says(f"this machine's clock is {abs(skew)} seconds {word} the syncer's; it does not matter here")
        until(lambda: any(x["alive"] and x["rounds_merged"] > 0 for x in status(home)["learners"]), "it to be merged", learner.popen)
        assert learner.end() == 128 + signal.SIGTERM
    s.end()
    # two days later by the syncer's clock: certificates have run out, and are renewed by their owners
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.1:0", **at(2 * day))
    s.until_says("syncer.listen")
    learner = Process("learner", "--dir", temp / f"skew{3 * day}", "--threads", 1, "--pace", "20ms", **at(3 * day))
    learner.until_says("the certificate is renewed")
    learner.until_says("shard.live")
    learner.end()
    # by a clock that is behind it has not run out
    learner = Process("learner", "--dir", temp / f"skew{-3 * day}", "--threads", 1, "--pace", "20ms", **at(-day))
    learner.until_says("the certificate is renewed")
    learner.until_says("shard.live")
    learner.end()
    s.end()
    # and back again: what was issued then is not valid yet
    s = syncer(home)
    learner = Process("learner", "--dir", temp / f"skew{3 * day}", "--threads", 1, "--pace", "20ms", **at(3 * day))
    learner.until_says("not valid yet by its clock")
    s.until_says("its certificate is not valid yet by this machine's clock")
    learner.end()
    s.end()


def slow_end():
    """The disk takes long for the final model: the syncer answers meanwhile, hears of a stop, and ends with the model whole."""
    library, home, until_there = os.environ.get("PELAGO_SLOW_SYNC"), temp / "slow-end", temp / "slow-end-over"
    if library is None:
        return
    slow = {"env": {**os.environ, "LD_PRELOAD": library, "PELAGO_SLOW_NAME": "model-", "PELAGO_SLOW_UNTIL": str(until_there)}}
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.1:0", *TINY, "--tokens", "20k", **slow)
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "e1", "--threads", 1)
    s.until_says("run.complete")
    assert learner.popen.wait(PATIENCE) == 0, learner.said()  # it heard of the end
    state = status(home)
    assert state["phase"] == "done" and "run.saved" not in s.said(), s.said()
    s.popen.send_signal(signal.SIGTERM)
    s.until_says("syncer.stop")
    s.end(signal.SIGKILL)  # a run without its model is not over
    assert not (home / "status.json").exists()
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.1:0", "--linger", "1h", **slow)
    s.until_says("run.complete")
    s.popen.send_signal(signal.SIGTERM)
    s.until_says("syncer.stop")
    until_there.touch()
    assert s.popen.wait(PATIENCE) == 0 and "run.saved" in s.said(), s.said()
    assert json.loads((home / "status.json").read_text())["phase"] == "done"
    (home / "tokenizer.json").write_text((home / "tokenizer.json").read_text()[:-20])
    refused("tokenizer.json in", "syncer", "--dir", home, "--listen", "127.0.0.1:0", "--linger", "1h")
    assert "loss" in run("eval", home, "--data", "builtin:tales", "--tokens", 500)[0]


def an_early_stop():
    """Ctrl-C while a syncer makes its folder: it is there whole or not at all, and nothing is left beside it."""
    library, home, until_there = os.environ.get("PELAGO_SLOW_SYNC"), temp / "early" / "home", temp / "early-over"
    if library is None:
        return
    home.parent.mkdir()
    slow = {"env": {**os.environ, "LD_PRELOAD": library, "PELAGO_SLOW_NAME": "home.partial", "PELAGO_SLOW_UNTIL": str(until_there)}}
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.1:0", *TINY, "--tokens", "20k", **slow)
    until(lambda: any(home.parent.iterdir()), "a folder that is being made", s.popen)
    s.popen.send_signal(signal.SIGINT)
    until_there.touch()
    assert s.popen.wait(PATIENCE) in (-signal.SIGINT, 128 + signal.SIGINT), s.said()
    assert [one.name for one in home.parent.iterdir()] == ["home"], list(home.parent.iterdir())
    assert syncer(home).end() == 128 + signal.SIGTERM


def a_stop_while_starting():
    """A signal while a syncer reads its journal, or writes before it listens, ends it at once; it goes on later all the same."""
    library, stuck = os.environ.get("PELAGO_SLOW_SYNC"), temp / "never"
    for algorithm in ("decoupled", "data_parallel"):
        home = temp / f"starting-{algorithm}"
        syncer(home, *TINY, "--algorithm", algorithm, "--tokens", "100M").end()
        slow = {"env": {**os.environ, "LD_PRELOAD": library or "", "PELAGO_SLOW_NAME": "address.new", "PELAGO_SLOW_UNTIL": str(stuck)}}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if library else ():
            (home / "address.new").unlink(missing_ok=True)
            s = Process("syncer", "--dir", home, **slow)
            until((home / "address.new").exists, "its address to be written", s.popen)
            assert s.end(number) == -number, s.said()
        assert syncer(home).end() == 128 + signal.SIGTERM
    home = temp / "starting-decoupled"
    journal = max(home.glob("journal-*"))
    size = journal.stat().st_size
    os.truncate(journal, 32 << 30)  # minutes to read, and nothing on the disk
    s = Process("syncer", "--dir", home)
    until(lambda: cpu_seconds(s.popen.pid) > 0.3, "it to read", s.popen)
    begin = time.monotonic()
    assert s.end() == -signal.SIGTERM, s.said()
    took = time.monotonic() - begin
    assert took < 4, took
    os.truncate(journal, size)
    assert syncer(home).end() == 128 + signal.SIGTERM


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def same_line():
    """A unit says the same line at every start: it goes on wherever each option says what the run has, and its tokenizer is compared."""
    text = temp / "same.txt"
    text.write_text("".join(f"{i} sheep, and {i + 1} more; then they all went home.\n" for i in range(2000)))
    given = temp / "given"
    given.mkdir()
    run("data", "tokenizer", text, "--vocab", 300, "--out", given / "tokenizer.json")
    words = [word for pair in zip(TINY[::2], TINY[1::2]) if pair[0] not in ("--tokenizer", "--data") for word in pair]
    words += ["--data", text, "--learners", 2, "--tokens", "150k", "--warmup", "20"]
    names = ["byte", "char", given / "tokenizer.json", given]
    for i, name in enumerate(names):
        home = temp / f"same-{i}"
        for _ in range(2):
            s = syncer(home, *words, "--tokenizer", name)
            assert s.end() == 128 + signal.SIGTERM and "the same command goes on" in s.said(), s.said()
        other = names[(i + 1) % 3]
        refused("--tokenizer is not what the run in this folder has: leave it out", "syncer", "--dir", home, *words, "--tokenizer", other, code=2)
    given.rename(temp / "gone")
    refused("leave --tokenizer out to go on with the run in this folder", "syncer", "--dir", temp / "same-2", "--tokenizer", names[2], code=2)


def leaving():
    """SIGTERM in the middle of a step of many seconds: the process is gone within a second, and what a busy machine adds."""
    s = syncer(temp / "long", *TINY, "--width", 256, "--layers", 4, "--batch", 32, "--seq", 64, "--tokens", "100M")
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "v1", "--threads", 1, "--backend", "ref")
    learner.until_says("shard.live")
    until(lambda: cpu_seconds(learner.popen.pid) > 3, "the first step to be under way", learner.popen)
    begin = time.monotonic()
    assert learner.end() == 128 + signal.SIGTERM, learner.said()
    took = time.monotonic() - begin
    assert "leaving in the middle of a step" in learner.said(), learner.said()
    assert took < 4, took
    print(f"# gone {took:.2f} s after SIGTERM, in the middle of a step")
    s.end()


def private_text():
    """Private text is named once: the folder says where it is, wherever the learner is started from next, until an option says otherwise."""
    home, folder, text = temp / "private-home", temp / "private", temp / "priv" / "diary.txt"
    text.parent.mkdir()
    (temp / "elsewhere").mkdir()
    text.write_text("Dear diary, nobody else is to read this.\n\n" * 500)
    s = syncer(home, *TINY, "--tokens", "100M")
    words = ["learner", "--dir", folder, "--threads", 1, "--pace", "20ms"]

    def trains(line, *more, **options):
        learner = Process(*words, *more, **options)
        learner.until_says("shard.live")
        assert learner.said().count("learner.data ") == 1 and f" learner.data {line}\n" in learner.said(), learner.said()
        assert learner.end() == 128 + signal.SIGTERM, learner.said()

    private = f'private=true remembered=%s name="{text.resolve()}": private text, which stays on this machine'
    trains(private % "false", "--join", token_of(s), "--local-data", "../priv/diary.txt", cwd=temp / "elsewhere")
    trains(private % "true")
    refused("none.txt could not be read: No such file", *words, "--data", temp / "none.txt")  # and changes nothing
    trains(private % "true", cwd=temp)
    text.rename(temp / "priv" / "moved.txt")
    refused("this learner's private text cannot be read (No such file or directory): give --local-data PATH again; it was ", *words)
    kept = (folder / "data").read_bytes()
    for damaged in (b"", kept[:-5], b"secret " + kept):
        (folder / "data").write_bytes(damaged)
        refused("the folder's file data does not say what to train on: give --local-data PATH again", *words)
    text = temp / "priv" / "moved.txt"
    trains(f'private=true remembered=false name="{text.resolve()}": private text, which stays on this machine', "--local-data", text)
    trains('private=false remembered=false name="builtin:tales"', "--data", "builtin:tales")
    trains('private=false remembered=true name="builtin:tales"')
    s.end()

    # the synchronous ones, too
    s = syncer(temp / "private-sync", *TINY[:-6], "--data", "builtin:tales", "--algorithm", "data_parallel", "--learners", 1, "--tokens", "100M")
    words[2] = temp / "private-worker"
    for more, said in ((["--join", token_of(s), "--local-data", text], "false"), ([], "true")):
        learner = Process(*words, *more)
        learner.until_says(f'learner.data private=true remembered={said} name="{text.resolve()}"')
        learner.until_says("the run is in round")
        learner.end()
    text.unlink()
    refused("give --local-data PATH again", *words)
    s.end()


def one_wish():
    """Two signals at once are one: the learner and the syncer leave politely all the same."""
    s = syncer(temp / "wish", *TINY, "--tokens", "100M")
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "wish1", "--threads", 1, "--pace", "100ms")
    learner.until_says("shard.live")
    for process, last in ((learner, "learner.stop to go on"), (s, "syncer.end stopped")):
        process.popen.send_signal(signal.SIGTERM)
        process.popen.send_signal(signal.SIGINT)
        assert process.popen.wait(PATIENCE) in (128 + signal.SIGTERM, 128 + signal.SIGINT), process.said()
        assert last in process.said(), process.said()
    out = temp / "wish-run"
    (out / "syncer.partial-1").mkdir(parents=True)  # somebody was killed here before there was a run
    p = Process("run", "--out", out, *TINY, "--learners", 1, "--tokens", "100M", "--threads", 1, "--pace", "100ms", "--quiet")
    until(lambda: (status_or_none(out) or {"merges": 0})["merges"] > 0, "a merge", p.popen)
    p.popen.send_signal(signal.SIGHUP)
    time.sleep(0.02)  # as a shell and its terminal say it
    p.popen.send_signal(signal.SIGHUP)
    assert p.popen.wait(PATIENCE) == 128 + signal.SIGHUP, p.said()
    logs = {log.name: log.read_text() for log in (out / "log").iterdir()}
    assert any("learner.end" in text for text in logs.values()) and any("syncer.end stopped" in text for text in logs.values()), logs
    # a terminal that goes away, and one that nohup keeps from mattering
    s = syncer(temp / "wish")
    learner = Process("learner", "--dir", temp / "wish1", "--threads", 1, "--pace", "100ms")
    deaf = Process("learner", "--join", run("invite", temp / "wish", "--bare")[0].strip(), "--dir", temp / "wish2", "--threads", 1, "--pace", "100ms",
                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    for one in (learner, deaf):
        one.until_says("shard.live")
        one.popen.send_signal(signal.SIGHUP)
    assert learner.popen.wait(PATIENCE) == 128 + signal.SIGHUP and "learner.stop to go on" in learner.said(), learner.said()
    assert deaf.end() == 128 + signal.SIGTERM, deaf.said()
    assert s.end(signal.SIGHUP) == 128 + signal.SIGHUP and "syncer.end stopped" in s.said(), s.said()


def mirror():
    """The syncer's disk is lost: it goes on from the mirror, at versions no older than any learner has seen."""
    home, copy = temp / "mirrored", temp / "mirror"
    s = syncer(home, *TINY, "--tokens", "100M", "--mirror", copy)
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "m1", "--threads", 1, "--pace", "10ms")
    until(lambda: status(home)["merges"] > 20, "merges", s.popen)
    before = {f["fragment"]: f["version"] for f in status(home)["fragments"]}
    s.end(signal.SIGKILL)
    shutil.rmtree(home)
    s = Process("syncer", "--dir", copy)
    s.until_says("syncer.listen")
    after = status(copy)
    assert all(f["version"] >= before[f["fragment"]] for f in after["fragments"]), (before, after)
    until(lambda: status(copy)["alive"] == 1 and status(copy)["merges"] > after["merges"], "merges again", s.popen)
    learner.end()
    s.end()
    # a mirror that holds something newer, or something else, is not overwritten
    s = syncer(copy, "--mirror", home)
    s.end()
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.1:0")  # goes on by itself
    s.until_says("syncer.listen")
    s.end()
    kept = {one.name: one.read_bytes() for one in home.iterdir()}
    refused(f"has gone on without {copy}: start with --dir {home}", "syncer", "--dir", copy, "--listen", "127.0.0.1:0", "--mirror", home, code=2)
    other = temp / "mirror-other"
    syncer(other, *TINY).end()
    refused("holds another run, which would be lost", "syncer", "--dir", other, "--listen", "127.0.0.1:0", "--mirror", home, code=2)
    assert kept == {one.name: one.read_bytes() for one in home.iterdir()}
    s = syncer(home, "--mirror", copy)  # the other way round
    s.end()
    for alone in (home, copy):  # each by itself: neither is the other's mirror any more, whichever lived last
        syncer(alone).end()
    for one, mirror in ((home, copy), (copy, home)):
        refused(f"the mirror {mirror} has gone on without {one}", "syncer", "--dir", one, "--listen", "127.0.0.1:0", "--mirror", mirror, code=2)
    refused("m1 holds a learner, which would be lost", "syncer", "--dir", home, "--listen", "127.0.0.1:0", "--mirror", temp / "m1", code=2)
    lives = (copy / "lives").read_bytes()
    (copy / "lives").write_bytes(lives[:-1])  # cut off
    refused("has gone on without", "syncer", "--dir", home, "--listen", "127.0.0.1:0", "--mirror", copy, code=2)


def files_of(folder):
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name != "pelago.lock"}


def mirror_is_kept():
    """What is in a mirror goes only for something that is whole and has all of it."""
    home, copy, old = temp / "kept-home", temp / "kept-copy", temp / "kept-old"
    s = syncer(home, *TINY, "--tokens", "100M", "--mirror", copy)
    learner = Process("learner", "--join", token_of(s), "--dir", temp / "kept-learner", "--threads", 1, "--pace", "10ms")
    until(lambda: status(home)["merges"] > 20, "merges", s.popen)
    s.popen.send_signal(signal.SIGSTOP)
    shutil.copytree(home, old)  # a machine that is put back to this moment
    s.popen.send_signal(signal.SIGCONT)
    until(lambda: status(home)["merges"] > 60, "more merges", s.popen)
    s.end(signal.SIGKILL)
    kept = files_of(copy)
    again = ("--listen", "127.0.0.1:0", "--mirror", copy)
    refused(f"the mirror {copy} has what {old} lacks: start with --dir {copy}", "syncer", "--dir", old, *again, code=2)
    journals = sorted(home.glob("journal-*.pl"))
    whole = journals[-1].read_bytes()
    journals[-1].write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    refused(f"The mirror is as it was: --dir {copy}", "syncer", "--dir", home, *again)
    journals[-1].write_bytes(whole[:len(whole) // 2])
    refused(f"the mirror {copy} has what {home} lacks", "syncer", "--dir", home, *again, code=2)
    assert kept == files_of(copy)
    journals[-1].write_bytes(whole)

    # a mirror that is damaged, or was cut off while it was filled, is made anew
    mirrored = sorted(copy.glob("journal-*.pl"))[-1]
    mirrored.write_bytes(mirrored.read_bytes()[:300] + b"rot" + mirrored.read_bytes()[303:])
    (copy / (mirrored.name + ".new")).write_bytes(b"half a fil")
    s = syncer(home, "--mirror", copy)
    s.until_says("mirror.damaged")
    versions = {f["fragment"]: f["version"] for f in status(home)["fragments"]}
    s.end(signal.SIGKILL)
    assert not list(copy.glob("*.new"))
    s = syncer(copy)
    assert all(f["version"] >= versions[f["fragment"]] for f in status(copy)["fragments"])
    s.end()
    learner.end()

    # folders of other things, and one that somebody removes
    other = temp / "kept-other"
    other.mkdir()
    (other / "tokenizer.json").write_text("mine")
    refused(f"the mirror {other} is no mirror and holds tokenizer.json", "syncer", "--dir", copy, "--listen", "127.0.0.1:0", "--mirror", other, code=2)
    assert (other / "tokenizer.json").read_text() == "mine"
    gone = temp / "kept-gone"
    s = syncer(copy, "--mirror", gone)
    learner = Process("learner", "--dir", temp / "kept-learner", "--threads", 1, "--pace", "10ms", "--address", (copy / "address").read_text().strip())
    until(lambda: status(copy)["alive"] == 1, "the learner", s.popen)
    shutil.rmtree(gone)
    until(lambda: status(copy)["store_failing"], "a complaint about the mirror", s.popen)
    learner.end()
    s.end(signal.SIGKILL)


def moved():
    """The syncer's machine is lost, and its address with it: it goes on from the mirror at another port, and learners follow."""
    home, copy = temp / "moving", temp / "moved"
    s = syncer(home, *TINY, "--tokens", "100M", "--mirror", copy)
    names = [temp / f"w{i}" for i in (1, 2)]
    token = run("invite", home, "--bare", "--uses", 2)[0].strip()
    learners = [Process("learner", "--join", token, "--dir", name, "--threads", 1, "--pace", "10ms") for name in names]
    until(lambda: status(home)["alive"] == 2 and status(home)["merges"] > 20, "merges", s.popen)
    before, old = {f["fragment"]: f["version"] for f in status(home)["fragments"]}, (home / "address").read_text().strip()
    s.end(signal.SIGKILL)
    shutil.rmtree(home)
    with socket.socket() as taken:  # and nobody gets the old address back
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(old.split(":")[1])))
        s = Process("syncer", "--dir", copy, "--listen", "127.0.0.2:0")
        s.until_says("syncer.listen")
        new = (copy / "address").read_text().strip()
        assert new != old, new
        after = status(copy)
        assert all(f["version"] >= before[f["fragment"]] for f in after["fragments"]), (before, after)
        assert all(learner.end() == 128 + signal.SIGTERM for learner in learners)
        refused("an address is written host:port", "learner", "--dir", names[0], "--address", "nonsense", code=2)
        learners = [Process("learner", "--dir", name, "--threads", 1, "--pace", "10ms", "--address", new) for name in names]
        until(lambda: status(copy)["alive"] == 2 and status(copy)["merges"] > after["merges"] + 20, "merges again", s.popen)
        assert {x["identity"] for x in status(copy)["learners"] if x["alive"]} == {1, 2}, status(copy)["learners"]
        learners[0].end()  # the folder remembers
        learners[0] = Process("learner", "--dir", names[0], "--threads", 1, "--pace", "10ms")
        merged = status(copy)["merges"]
        learners[0].until_says("shard.live")
        until(lambda: status(copy)["merges"] > merged + 8, "merges with both", s.popen)
        for learner in learners:
            learner.end()
        s.end()


def restored():
    """A copy of the folder made while the syncer was stopped takes the place of a later one: learners are merged at once, although this
    life counts through numbers the lost one has used."""
    library, home, copy = os.environ.get("PELAGO_SKEW"), temp / "restored", temp / "restored-copy"
    if library is None:
        return
    s = syncer(home, *TINY, "--tokens", "100M")
    token = run("invite", home, "--bare")[0].strip()
    learner = Process("learner", "--join", token, "--dir", temp / "restored-learner", "--threads", 1, "--pace", "20ms")
    until(lambda: (status(home)["merges"]) > 10, "merges", s.popen)
    s.end()
    shutil.copytree(home, copy)
    s = syncer(home)
    later_one = Process("learner", "--join", run("invite", home, "--bare")[0].strip(), "--dir", temp / "restored-later", "--threads", 1, "--pace", "20ms")
    later_one.until_says("shard.live")
    until(lambda: status(home)["tick"] > 400, "a lead", s.popen)
    lost = status(home)
    s.end(signal.SIGKILL)
    shutil.rmtree(home)
    copy.rename(home)
    later = {"env": {**os.environ, "LD_PRELOAD": library, "PELAGO_SKEW_S": "600"}}
    s = Process("syncer", "--dir", home, **later)
    s.until_says("syncer.listen")
    begun = status(home)
    assert begun["tick"] < lost["tick"] / 2 and begun["epoch"] > lost["epoch"], (begun, lost)
    until(lambda: status(home)["merges"] >= 8, "merges again", s.popen)
    assert status(home)["tick"] < lost["tick"], status(home)
    until(lambda: {x["identity"] for x in status(home)["learners"] if x["rounds_merged"]} == {1, 2}, "who joined after the copy was made", s.popen)
    later_one.end()
    s.end()
    invitations = json.loads((home / "invitations.json").read_text())  # as they were in the copy; the journal knows better
    (home / "invitations.json").write_text(json.dumps({**invitations, "next_identity": 2}))
    s = Process("syncer", "--dir", home, **later)
    s.until_says("syncer.listen")
    newest = Process("learner", "--join", run("invite", home, "--bare")[0].strip(), "--dir", temp / "restored-newest", "--threads", 1, "--pace", "20ms")
    newest.until_says("enrolled as learner 3")
    later_one = Process("learner", "--dir", temp / "restored-later", "--threads", 1, "--pace", "20ms")
    until(lambda: {x["identity"] for x in status(home)["learners"] if x["alive"]} == {1, 2, 3}, "three identities", s.popen)
    for one in (learner, later_one, newest):
        one.end()
    s.end()


def forwarded():
    """Learners come by a forwarded port: the operator beside the syncer does not, and a later start listens where the first did."""
    home, outside = temp / "forwarded", "192.0.2.1:9"
    s = syncer(home, *TINY, "--advertise", outside)
    bound = (home / "listen").read_text().strip()
    assert (home / "address").read_text().strip() == outside and bound.startswith("127.0.0.1:") and bound != "127.0.0.1:0", bound
    assert status(home)["address"] == outside
    run("invite", home)
    for words in ((), ("--advertise", "192.0.2.2:9"), ()):
        s.end()
        s = Process("syncer", "--dir", home, *words)
        s.until_says("syncer.listen")
        outside = words[1] if words else outside
        assert f"address={outside} on={bound}" in s.said(), s.said()
        assert status(home)["address"] == outside
    s.end()
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.2:0")  # elsewhere: what led to the old place does not lead here
    s.until_says("syncer.listen")
    assert (home / "address").read_text().strip() == (home / "listen").read_text().strip() != bound
    s.end()


def moved_home():
    """The home shard moves, and the other one and a learner are told where it is: both merge again, after restarts that say nothing, too."""
    home, shard, worker = temp / "moving-home", temp / "moving-shard", temp / "moving-worker"
    s = syncer(home, *TINY, "--shards", 2, "--tokens", "100M")
    token = run("invite", home, "--bare", "--role", "shard")[0].strip()
    other = Process("syncer", "--dir", shard, "--shard", 1, "--join", token, "--listen", "127.0.0.1:0")
    token = run("invite", home, "--bare")[0].strip()
    learner = Process("learner", "--join", token, "--dir", worker, "--threads", 1, "--pace", "10ms")
    until(lambda: learner.said().count("shard.live") == 2, "both shards", learner.popen)
    for one in (learner, other, s):
        one.end()
    refused("--home is for a further shard", "syncer", "--dir", home, "--home", "127.0.0.1:7441", code=2)
    refused("nobody can dial the address foo", "syncer", "--dir", shard, "--shard", 1, "--home", "foo", code=2)
    s = Process("syncer", "--dir", home, "--listen", "127.0.0.2:0")
    s.until_says("syncer.listen")
    new = (home / "address").read_text().strip()
    right = (shard / "home").read_bytes()
    for left in (b"", bytes(len(right)), right.split(b":")[0]):
        (shard / "home").write_bytes(left)
        refused("does not say where the home shard is: start once with --home HOST:PORT", "syncer", "--dir", shard, "--shard", 1,
                "--listen", "127.0.0.1:0", code=2)
    for told in (True, False):
        where = ("--home", new) if told else ()
        other = Process("syncer", "--dir", shard, "--shard", 1, *where, "--listen", "127.0.0.3:0" if told else "127.0.0.4:0")
        learner = Process("learner", "--dir", worker, "--threads", 1, "--pace", "10ms", *(("--address", new) if told else ()))
        until(lambda: learner.said().count("shard.live") == 2, "both shards where they are now", learner.popen)
        learner.end()
        other.end()
    s.end()


def units():
    """The lines of packaging/systemd, in folders of our own: begun by hand, then as the unit does it, and refused before that."""
    lines = {}
    for role, made in (("syncer", "settings.json"), ("learner", "credentials")):
        text = (EXAMPLES.parent / "packaging" / "systemd" / f"pelago-{role}.service").read_text()
        folder = f"/var/lib/pelago/{role}"
        assert f"AssertPathExists={folder}/{made}\n" in text, text
        start = re.search(r"^ExecStart=/usr/local/bin/pelago (.*)$", text, re.M)[1]
        assert f"--dir {folder}" in start and "SuccessExitStatus=143\n" in text, text
        lines[role] = start.replace("/var/lib/pelago", str(temp / "state")).split()
        unit = temp / f"pelago-{role}.service"
        unit.write_text(text.replace("/usr/local/bin/pelago", PELAGO).replace("User=pelago", "User=root"))
        if shutil.which("systemd-analyze"):
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
            assert done.returncode == 0 and str(unit.name) not in done.stderr, done.stderr
    state = temp / "state"
    state.mkdir(mode=0o700)
    home = syncer(state / "syncer", *TINY, "--tokens", "100M")
    hand = Process("learner", "--join", token_of(home), "--dir", state / "learner", "--threads", 1, "--pace", "20ms")
    until(lambda: (state / "learner" / "credentials").exists(), "the learner to join", hand.popen)
    hand.until_says("shard.live")
    assert hand.end(signal.SIGINT) == 130 and home.end(signal.SIGINT) == 130
    assert (state / "syncer" / "settings.json").exists()
    home = Process(*lines["syncer"])
    home.until_says("syncer.listen")
    learner = Process(*lines["learner"], "--threads", 1, "--pace", "20ms")
    until(lambda: status(state / "syncer")["alive"] == 1, "the learner to come back", learner.popen)
    nice = int(Path(f"/proc/{learner.popen.pid}/stat").read_text().rsplit(")", 1)[1].split()[16])
    assert nice == min(os.nice(0) + 10, 19), nice  # --nice 10 of the unit, on top of ours
    assert learner.end() == 143 and home.end() == 143


def full_disk():
    """The syncer's disk is full for a while: nothing is announced, nobody stops, and it goes on when there is room."""
    disk = temp / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], capture_output=True).returncode != 0:
        return  # only where this user may mount
    try:
        (disk / "ballast").write_bytes(bytes(19700 << 10))
        s = syncer(disk / "run", *TINY, "--width", 64, "--tokens", "100M")
        learner = Process("learner", "--join", token_of(s), "--dir", temp / "d1", "--threads", 1, "--pace", "5ms")
        until(lambda: status(disk / "run")["store_failing"], "the disk to be full", s.popen)
        before = status(disk / "run")
        assert "no space left" in s.said(), s.said()
        until(lambda: status(disk / "run")["tokens"] > before["tokens"] + 3000, "learners to train on", learner.popen)
        (disk / "ballast").unlink()
        until(lambda: status(disk / "run")["merges"] > before["merges"] + 10, "merges to go on", s.popen)
        assert not status(disk / "run")["store_failing"]
        learner.end()
        s.end()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def mistakes_in_files():
    path = temp / "run.yaml"
    for text, sentence in [("learners: four\n", "run.yaml, line 1: learners is 'four', expected a whole number"),
                           ("# x\nlearners: 0\n", "run.yaml, line 2: learners is 0, expected 1 to"),
                           ("learner: 1\n", "run.yaml, line 1: there is no key 'learner'"),
                           ("a: 1\n\tb: 2\n", "run.yaml, line 2: there is a tab"),
                           ("", "run.yaml is empty"),
                           ("speed: [1, fast]\n", "--speed is 'fast', expected a number"),
                           ("speed: [1, 1]\nlearners: 3\n", "--speed has 2 values, expected one, or one for each of 3")]:
        path.write_text(text)
        refused(sentence, "run", "--out", temp / "y", "--config", path, code=2)
    refused("cannot be read", "run", "--out", temp / "y", "--config", temp / "none.yaml")
    refused("--out FOLDER is needed", "run", code=2)
    refused("--algorithm is 'magic'", "run", "--out", temp / "y", "--algorithm", "magic", code=2)
    refused("holds no run to go on with", "run", "--out", temp / "y", "--resume")
    refused("--pace has 2 values", "run", "--out", temp / "y", "--pace", "1s,2s", code=2)  # four learners, if nobody says
    refused("written host:port", "run", "--out", temp / "y", "--listen", "nonsense", code=2)
    refused("there is no back end 'abacus'", "run", "--out", temp / "y", "--backend", "abacus", code=2)
    lone = shutil.copy(PELAGO, temp / "lone")  # without the library beside it
    done = subprocess.run([lone, "run", "--out", temp / "y", "--backend", "cuda", *TINY], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "libpelago_cuda.so is not beside this program" in done.stderr, done.stderr
    refused("there is no builtin:sea", "run", "--out", temp / "y", "--valid", "builtin:sea", code=2)
    refused("--quorum is 3, which 2 learners never are", "run", "--out", temp / "y", "--learners", 2, "--quorum", 3, code=2)
    assert not (temp / "y").exists()
    for name, sentence, words in [("laptop", "holds no run", ["run", "--out", temp / "y", "--resume"]),
                                  ("uneven", "holds no run", ["run", "--out", temp / "y", "--resume"]),
                                  ("home-line", "--dir FOLDER is needed", ["syncer"]),
                                  ("learner", "--join TOKEN is needed", ["learner"])]:
        refused(sentence, *words, "--config", EXAMPLES / f"{name}.yaml", code=1 if words[0] == "run" else 2)


# ---- run ----

def children(out, kind):
    return json.loads((out / "run.json").read_text())[kind]


def whole_run():
    """A run by a file of options: a learner killed, the syncer killed, Ctrl-C, and on to the report."""
    out = temp / "whole"
    keys = dict(zip((w[2:] for w in TINY[::2]), TINY[1::2]))
    keys |= {"learners": 9, "tokens": "200k", "speed": "[1, 0.5, 1]", "pace": "10ms", "threads": 1, "listen": "127.0.0.2:0"}
    (temp / "whole.yaml").write_text("".join(f"{k}: {v}\n" for k, v in keys.items()))
    words = ["run", "--out", out, "--config", temp / "whole.yaml", "--learners", 3]
    p = Process(*words)
    until(lambda: (out / "run.json").exists() and status_or_none(out), "the run to begin", p.popen)
    until(lambda: status(out)["alive"] == 3, "three learners", p.popen)
    for child in children(out, "learners") + children(out, "syncers"):
        line = Path(f"/proc/{child['pid']}/cmdline").read_bytes().split(b"\0")
        assert line[0] == b"pelago" and line[1] in (b"learner", b"syncer"), line
        assert int(Path(f"/proc/{child['pid']}/stat").read_text().split()[3]) == p.popen.pid
    names = [x["name"] for x in children(out, "learners")]
    until(lambda: sorted(x.get("name", "") for x in status(out)["learners"]) == names, "names in the status", p.popen)
    assert all(f" {name}  " in run("status", out / "syncer")[0] for name in names)
    before = (out / "run.json").read_text()
    refused(": end it, or choose another with --out FOLDER.", "run", "--out", out, "--resume")
    assert (out / "run.json").read_text() == before
    victim = children(out, "learners")[1]["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: children(out, "learners")[1]["pid"] not in (None, victim), "the learner to return", p.popen)
    victim = children(out, "syncers")[0]["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: children(out, "syncers")[0]["pid"] not in (None, victim), "the syncer to return", p.popen)
    until(lambda: (status_or_none(out) or {"alive": 0})["alive"] == 3, "all three again", p.popen)
    assert p.end(signal.SIGINT) == 128 + signal.SIGINT, p.said()
    assert "to go on: pelago run --resume --out" in p.said(), p.said()
    assert "learner-2 was killed (signal 9)" in p.said(), p.said()
    for child in children(out, "learners") + children(out, "syncers"):
        assert child["pid"] is None or not Path(f"/proc/{child['pid']}").exists()

    unfinished = "this is a run that has not ended: its model comes at its end, and pelago run --resume --out FOLDER goes on"
    refused(unfinished, "sample", out)
    refused(unfinished, "eval", out, "--data", "builtin:tales")
    refused("this is the folder of a syncer without a model, which comes at the end of the run", "sample", out / "syncer")
    for folder in (out, out / "syncer"):
        refused("the run may have been stopped (pelago run --resume --out /", "status", folder)

    seen = counted(out)
    assert seen > 0, seen
    refused("holds a run: --resume goes on with it", *words, code=2)
    refused("--period is not what the run in this folder has", "run", "--out", out, "--resume", "--period", 9, code=2)
    refused("--speed has 2 values, expected one, or one for each of 3 learners", "run", "--out", out, "--resume", "--speed", "1,1", code=2)
    settings = out / "syncer" / "settings.json"
    right = settings.read_text()
    settings.write_text(right.replace('"quorum"', '"patience": 5, "quorum"'))
    refused("has sync.patience, which this program does not know", "run", "--out", out, "--resume")
    settings.write_text(right)
    refused("--tokenizer is not what the run in this folder has", "run", "--out", out, "--resume", "--tokenizer", "char", code=2)
    text = run("run", "--out", out, "--resume", "--quiet", *TINY)[0]
    assert "validation: loss" in text and "it says" not in text, text
    assert "--speed\0000.5" in command_line_of_log(out), command_line_of_log(out)
    assert (out / "syncer" / "listen").read_text().startswith("127.0.0.2:")
    report = json.loads((out / "report.json").read_text())
    assert report["settings"]["learners"] == 3 and report["settings"]["tokens"] >= 200000
    assert report["result"]["loss"] < 5.6 and report["result"]["goodput"] > 0.5, report["result"]
    assert report["result"]["bytes_up"] >= seen + status(out)["bytes_up"], (report["result"], seen)  # of both times
    assert "| validation loss |" in (out / "report.md").read_text()
    assert len(run("sample", out, "--tokens", 20)[0]) > 0
    run("inspect", out)
    assert "has its tokens already" in run("run", "--out", out, "--resume")[0]
    (out / "report.json").unlink()
    assert "validation: loss" in run("run", "--out", out, "--resume", "--quiet")[0]
    assert (out / "report.json").exists()
    train_on(out)


def train_on(out):
    """What a run has learnt is trained on alone: its steps go on after the run's, are saved, and are resumed in their turn."""
    step = int(next(out.glob("state-*.json")).name[6:14])
    assert step > 0
    text = run("train", "--resume", "--out", out, "--steps", 3, "--threads", 1, "--lr", 1e-5)[0]
    kept = f"going on after step {step}, with sequences of 32 tokens, as the model was trained with\n"
    assert kept in text and " tokens in 3 steps of 512," in text and "validation: loss" in text, text
    assert (out / f"state-{step + 3:08}.json").exists(), sorted(p.name for p in out.iterdir())
    state = json.loads((out / f"state-{step + 3:08}.json").read_text())["state"]
    assert state["optimizer"]["step"] == 3 and state["progress"]["step"] == step + 3, state
    text = run("train", "--resume", "--out", out, "--steps", 5, "--threads", 1)[0]
    assert f"going on after step {step + 3}\n" in text, text
    assert (out / f"state-{step + 5:08}.json").exists(), sorted(p.name for p in out.iterdir())
    kept = {p.name: p.read_bytes() for p in out.glob("model-*")}
    (out / "report.json").unlink()  # the run is judged again, and what was trained after it stays
    assert "validation: loss" in run("run", "--out", out, "--resume", "--quiet")[0]
    assert {p.name: p.read_bytes() for p in out.glob("model-*")} == kept


def ended_in_time():
    """A run that --time ended: its model has the number of the steps that were trained, and nothing claims that it goes on."""
    out = temp / "timed"
    words = [*TINY, "--learners", 2, "--tokens", "100M", "--threads", 1, "--pace", "20ms", "--time", "3s"]
    text = run("run", "--out", out, *words, "--quiet")[0]
    assert "validation: loss" in text, text
    tokens = status(out)["tokens"]
    assert 0 < tokens < 50_000_000, tokens
    settings = json.loads((out / "syncer" / "settings.json").read_text())["train"]
    step = tokens // (settings["batch"] * settings["accumulate"] * settings["seq"])
    assert [p.name for p in out.glob("state-*.json")] == [f"state-{step:08}.json"], (step, sorted(out.iterdir()))
    saved = [int(p.name[6:14]) for p in (out / "syncer").glob("state-*.json")]  # before those who left said their last
    assert len(saved) == 1 and 0 < saved[0] <= step, (saved, step)
    seen = top(out, b"q ends this screen; the run is done")
    assert b"  done  " in seen and b" of 100M" in seen and b"no answer" not in seen, seen
    assert b"the time was over" in seen and b"the run is complete" not in seen and status(out)["loss"] > 0, seen
    for more in ([], ["--time", "1h"]):
        text = run("run", "--out", out, "--resume", *more)[0]
        assert "the run ended after its time with " in text and " of 100M tokens, and cannot go on" in text, text
        assert f"pelago train --resume --out {out}\nits report: {out}/report.md\n" in text, text


def unjudged():
    """Ctrl-C ends a long evaluation, too; a run that goes on says that its --time does not count any more."""
    out = temp / "unjudged"
    words = ["20M" if word == "500" else word for word in TINY]
    p = Process("run", "--out", out, *words, "--learners", 1, "--tokens", "100M", "--threads", 1, "--pace", "20ms", "--time", "1h")
    until(lambda: (status_or_none(out) or {"merges": 0})["merges"] > 0, "a merge", p.popen)
    assert p.end(signal.SIGINT) == 128 + signal.SIGINT, p.said()
    p = Process("run", "--out", out, "--resume")
    p.until_says("the --time of before has stopped")
    assert p.end(signal.SIGINT) == 128 + signal.SIGINT, p.said()
    p = Process("run", "--out", out, "--resume", "--time", "1s")
    p.until_says("judging the model")
    assert p.end(signal.SIGTERM) == 128 + signal.SIGTERM, p.said()
    assert "before the model was judged; the same with --resume judges it" in p.said() and not (out / "report.json").exists(), p.said()
    p = Process("run", "--out", out, "--resume")
    p.until_says("judging the model")
    assert p.end(signal.SIGINT) == 128 + signal.SIGINT, p.said()


def status_or_none(out):
    done = subprocess.run(words_of(["status", out, "--json"]), capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def command_line_of_log(out):
    """Options about the machine are remembered by run.json."""
    machine = json.loads((out / "run.json").read_text())["machine"]
    return "--speed\0" + machine["speed"].split(",")[1]


def parent_dies():
    """Children do not outlive a run that is killed."""
    out = temp / "orphans"
    p = Process("run", "--out", out, *TINY, "--learners", 2, "--tokens", "100M", "--threads", 1, "--pace", "50ms")
    until(lambda: (out / "run.json").exists() and (status_or_none(out) or {"alive": 0})["alive"] == 2, "two", p.popen)
    pids = [c["pid"] for c in children(out, "learners") + children(out, "syncers")]
    p.end(signal.SIGKILL)
    for pid in pids:
        until(lambda: not Path(f"/proc/{pid}/exe").exists() or gone(pid), f"the end of {pid}")


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def hopeless():
    """A child that cannot work ends the run with its own sentence."""
    out = temp / "hopeless"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused("syncer cannot work; it says: pelago syncer: ", "run", "--out", out, *TINY, "--learners", 1, "--listen",
                f"127.0.0.1:{taken.getsockname()[1]}")


def left_out():
    """A learner whose own files are broken does not stop the others; the last one able does."""
    out = temp / "left-out"
    p = Process("run", "--out", out, *TINY, "--learners", 2, "--threads", 1, "--tokens", "60k", "--pace", "10ms")
    until(lambda: (out / "run.json").exists() and (status_or_none(out) or {"alive": 0})["alive"] == 2, "two learners", p.popen)
    assert p.end(signal.SIGINT) == 128 + signal.SIGINT, p.said()
    broken = [Path(child["folder"]) / "settings.json" for child in children(out, "learners")]
    whole = [path.read_bytes() for path in broken]
    for path in broken:
        path.write_text("{")
    refused("cannot work; it says: pelago learner: ", "run", "--out", out, "--resume")
    broken[0].write_bytes(whole[0])
    text = run("run", "--out", out, "--resume", "--quiet")[0]
    assert "tokens in all; since it was resumed" in text and "validation: loss" in text, text
    report = json.loads((out / "report.json").read_text())
    assert any("learner-2 cannot work and is left out" in event["what"] for event in report["events"]), report["events"]
    said = (out / "report.md").read_text()
    assert "time since it was resumed" in said and "| 0.0000 |" not in said, said


def broken_links():
    """Learners behind a proxy: chaos cuts and resets their links; without the proxy there is no run; --resume has one again."""
    out = temp / "links"
    (temp / "links.plan").write_text("at 0s partition learner 1 for 2s\nat 1s reset link learner 2\n")
    refused("--proxy stands in front of one syncer", "run", "--out", out, *TINY, "--proxy", "--shards", 2, code=2)
    p = Process("run", "--out", out, *TINY, "--learners", 2, "--tokens", "300k", "--threads", 1, "--pace", "20ms", "--proxy")
    until(lambda: (status_or_none(out) or {"alive": 0})["alive"] == 2, "two learners", p.popen)
    links = json.loads((out / "proxy.json").read_text())["links"]
    assert [(out / f"learner-{i}" / "address").read_text() for i in (1, 2)] == [link["listen"] for link in links]
    run("chaos", out, "--plan", temp / "links.plan", "--quiet")
    done = [json.loads(line) for line in (out / "chaos.jsonl").read_text().splitlines()]
    assert all(line["ok"] for line in done), done
    assert {"partition", "heal", "reset"} <= {line["action"] for line in done}, done
    until(lambda: (status_or_none(out) or {"alive": 0})["alive"] == 2, "both to come back", p.popen)
    os.kill(json.loads((out / "run.json").read_text())["proxy"], signal.SIGKILL)
    assert p.popen.wait(PATIENCE) == 1 and "the proxy was killed" in p.said(), p.said()
    p = Process("run", "--out", out, "--resume", "--quiet")
    assert p.popen.wait(PATIENCE) == 0 and "validation: loss" in p.said(), p.said()
    assert not (out / "proxy.sock").exists()


def shards():
    """Two processes share the model; the report's model is put together from both."""
    out = temp / "shards"
    p = Process("run", "--out", out, *TINY, "--shards", 2, "--learners", 2, "--tokens", "60k", "--threads", 1, "--pace", "10ms", "--quiet")
    seen = []

    def heard():
        seen[:] = (status_or_none(out) or {}).get("others") or []
        return seen and seen[0]["merged_tokens"] > 0
    until(heard, "what the other shard says", p.popen)
    assert seen[0]["shard"] == 1 and seen[0]["bytes_up"] > 0, seen
    assert p.popen.wait(PATIENCE) == 0 and "validation: loss" in p.said(), p.said()
    result = json.loads((out / "report.json").read_text())["result"]
    assert result["loss"] < 5.6 and result["goodput"] > 0.8, result
    said = status(out)
    assert abs(said["goodput"] - result["goodput"]) < 1e-5 and said["merged_tokens"] < 0.6 * said["tokens"], said
    assert result["merged_tokens"] == said["merged_tokens"] + said["others"][0]["merged_tokens"], (result, said)
    assert result["bytes_up"] == said["bytes_up"] + said["others"][0]["bytes_up"], (result, said)
    refused("syncer-1 holds another shard, which would be lost", "syncer", "--dir", out / "syncer", "--listen", "127.0.0.1:0", "--linger", "1h",
            "--mirror", out / "syncer-1", code=2)


def shards_elsewhere():
    """Whoever asks beside a home that learners dial by another address hears of all shards, and nobody is refused for it."""
    home, further = temp / "home-shard", temp / "further-shard"
    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    s = Process("syncer", "--dir", home, *TINY, "--tokens", "100M", "--shards", 2, "--listen", f"0.0.0.0:{port}", "--advertise", f"localhost:{port}")
    s.until_says("syncer.listen")
    token = run("invite", home, "--bare", "--role", "shard")[0].strip()
    other = Process("syncer", "--dir", further, "--shard", 1, "--join", token, "--listen", "127.0.0.1:0")
    other.until_says("syncer.listen")
    until(lambda: len(status(home)["others"]) == 1, "what the other shard says", other.popen)
    said = status(home)
    assert said["address"].startswith("localhost:") and said["others"][0]["shard"] == 1 and said["refused"] == 0, said
    other.end()
    s.end()


def counted(out):
    """Bytes up that `pelago run` has seen, of all lives of its syncers."""
    return sum(t[life]["bytes_up"] for t in json.loads((out / "run.json").read_text())["totals"] for life in ("before", "now"))


def restarts_count():
    """What a syncer had counted before kill -9 is in the report, and so is its restart; of a baseline, too."""
    for algorithm in ("decoupled", "data_parallel"):
        out = temp / f"killed-{algorithm}"
        p = Process("run", "--out", out, *TINY, "--algorithm", algorithm, "--learners", 2, "--tokens", "120k", "--threads", 1, "--pace", "20ms")
        until(lambda: (status_or_none(out) or {"bytes_up": 0})["bytes_up"] > 50_000, "traffic", p.popen)
        seen = status(out)["bytes_up"]
        until(lambda: counted(out) >= seen, "run.json to say it", p.popen)
        victim = children(out, "syncers")[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        assert p.popen.wait(PATIENCE) == 0 and " 2 learners, 1 restart\n" in p.said(), p.said()
        report = json.loads((out / "report.json").read_text())
        assert report["syncers"] == [{"name": "syncer", "starts": 2, "kills": 1}], report["syncers"]
        assert report["result"]["bytes_up"] >= seen + status(out)["bytes_up"], (report["result"], seen, status(out))
        assert 0 < report["result"]["merged_alive"] <= 1, report["result"]
        assert "| syncer | 2 | 1 |\n" in (out / "report.md").read_text()
        assert not any("?;" in log.read_text() for log in (out / "log").iterdir()), out


def codecs():
    """Top-k up, e3m0 down, small blocks held back: every learner has the syncer's bits after every update, to the end. Steps are
    paced, so that there are as many merges on a busy machine as on a free one."""
    out = temp / "codecs"
    (temp / "codecs.yaml").write_text("up: topk64\ndown: e3m0\nselective: 0.1\nlearners: 2\ntokens: 150k\nthreads: 1\npace: 5ms\n")
    text = run("run", "--out", out, *TINY, "--config", temp / "codecs.yaml", "--quiet")[0]
    assert "validation: loss" in text, text
    report = json.loads((out / "report.json").read_text())
    assert report["result"]["loss"] < 3, report  # 2.2 to 2.3; unpaced steps outrun their merges, and nothing is learned
    said = {k: report["settings"][k] for k in ("up", "down", "selective", "feedback_decay", "feedback_local")}
    assert said == {"up": "topk64", "down": "e3m0", "selective": 0.1, "feedback_decay": 1.0, "feedback_local": 1.0}, said
    logs = list(out.glob("**/learner-*.log"))
    assert len(logs) == 2 and all("learner.complete" in log.read_text() for log in logs), logs
    assert not any("fetch" in log.read_text() for log in logs), logs  # what a learner says where digests differ
    refused("--up is 'topk65', expected fp32, bf16, int8", "run", "--out", temp / "no", *TINY, "--up", "topk65", code=2)
    refused("selective is out of range", "run", "--out", temp / "no", *TINY, "--selective", "1", code=2)
    refused("feedback_decay is out of range", "run", "--out", temp / "no", *TINY, "--feedback-decay", "1.1", code=2)
    refused("feedback_local is for apply: rebase", "run", "--out", temp / "no", *TINY, "--up", "topk64", "--apply", "mix", "--feedback-local", "1", code=2)


def top(folder, *steps, rows=24, cols=80):
    """What it shows until words come, for each step that is some; others are done then. q ends it."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        os.environ["TERM"] = "xterm"
        os.execv(PELAGO, ["pelago", "top", str(folder), "--every", "100ms"])
    seen, looked, end = b"", 0, time.monotonic() + PATIENCE
    for step in steps:
        if callable(step):
            step()
            looked = len(seen)
            continue
        while step not in seen[looked:]:
            assert time.monotonic() < end, seen[-3000:]
            assert select.select([fd], [], [], PATIENCE)[0], seen
            seen += os.read(fd, 65536)
    os.write(fd, b"q")
    while b"\x1b[?1049l" not in seen:
        assert select.select([fd], [], [], PATIENCE)[0], seen
        seen += os.read(fd, 65536)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return seen


def live_screen():
    """top on a terminal: a page, q ends it, the terminal is as before. Elsewhere it says what to use instead."""
    home = temp / "screen"
    s = syncer(home, *TINY, "--tokens", "100M")
    refused("this is no terminal", "top", home, code=2)
    seen = top(home, b"q ends this screen; the run goes on")
    assert b"\x1b[?1049h" in seen and b"tokens" in seen, seen
    for rows, cols, head in ((24, 80, b"no answer for 2s"), (8, 40, b"no answer"), (4, 60, b"no answer: ")):
        seen = top(home, b"  running  ", lambda: s.end(signal.SIGKILL), head, b"port?", rows=rows, cols=cols)
        last = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen[seen.rindex(head):])
        said = b"no answer: nobody listens at " + (home / "address").read_bytes().strip() + b": is the syncer running, and is this its port?"
        assert said in b" ".join(last.split()), (rows, cols, last)  # whole, if need be in place of the state
        assert rows < 24 or b"- tokens/s  ETA -" in last, last
        s = syncer(home)
    s.end()


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup
signal.signal(signal.SIGINT, signal.default_int_handler)  # and in the background of a script
with tempfile.TemporaryDirectory() as name:
    temp = Path(name)
    parts = [help_pages, mistakes_in_files, join_and_finish, mistakes_of_syncers, mistakes_of_learners, pipes, lost_settings, other_versions,
             skewed_clocks, private_text, same_line, a_stop_while_starting, leaving, one_wish, slow_end, an_early_stop, mirror,
             mirror_is_kept, moved, restored, forwarded, moved_home, units, full_disk, whole_run, ended_in_time, unjudged, parent_dies,
             hopeless, left_out, broken_links, shards, shards_elsewhere, restarts_count, codecs, live_screen]
    try:
        for part in parts:
            if not sys.argv[2:] or part.__name__ in sys.argv[2:]:
                part()
    except BaseException:
        for process in Process.all:
            print(f"---- {' '.join(map(str, process.popen.args))}\n{process.said()[-3000:]}", file=sys.stderr)
        raise
    finally:
        for process in Process.all:
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()
