#!/bin/bash
# tests/e2e/chaos_netns.sh PELAGO - scripts/netns.sh and the proxy across namespaces: rates, partitions, latency. Needs root,
# ip, tc and nft; leaves with 77 (skipped) without them.
set -euo pipefail
pelago=$(realpath "$1")
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/netns.sh
. scripts/netns.sh
why=$(netns_check) || { echo "skipped: $why" && exit 77; }
netns_begin || exit 77
for name in a b syncer; do netns_add $name; done
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

cat >"${TMPDIR:-/tmp}/pl_netns_$$.py" <<'PY'
import socket, sys, time
role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "serve":  # a byte is echoed; "S<n>\n" is answered by n bytes; "R<n>\n" and n bytes by one byte
    s = socket.create_server(("0.0.0.0", port))
    print("ready", flush=True)
    import threading
    def handle(c):
        f = c.makefile("rb")
        while line := f.readline():
            n = int(line[1:] or b"0")
            if line[:1] == b"S":
                c.sendall(bytes(n))
            elif line[:1] == b"R":
                left = n
                while left:
                    left -= len(f.read1(min(left, 65536)))
                c.sendall(b"k")
            else:
                c.sendall(b"k")
    while True:
        c, _ = s.accept()
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=handle, args=(c,), daemon=True).start()
s = socket.socket()
s.settimeout(float(sys.argv[5]) if len(sys.argv) > 5 else 20)
n = int(sys.argv[4])
try:
    s.connect((address, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    begin = time.monotonic()
    if role == "ping":
        best = 1e9
        for _ in range(n):
            begin = time.monotonic()
            s.sendall(b"P0\n")
            assert s.recv(1)
            best = min(best, time.monotonic() - begin)
        print(f"{best * 1000:.2f}")
    elif role == "down":
        s.sendall(b"S%d\n" % n)
        left = n
        while left:
            left -= len(s.recv(65536))
        print(f"{n * 8 / (time.monotonic() - begin) / 1e6:.2f}")
    else:
        s.sendall(b"R%d\n" % n + bytes(n))
        assert s.recv(1)
        print(f"{n * 8 / (time.monotonic() - begin) / 1e6:.2f}")
except (TimeoutError, OSError):
    print("timeout")
PY
tool="${TMPDIR:-/tmp}/pl_netns_$$.py"
ready="${TMPDIR:-/tmp}/pl_netns_$$.ready"
trap 'netns_end; rm -f "$tool" "$ready"' EXIT
netns_run syncer python3 "$tool" serve 0.0.0.0 7000 >"$ready" 2>/dev/null &
until grep -q ready "$ready"; do sleep 0.02; done
at=$(netns_address syncer)
between() { awk -v x="$1" -v lo="$2" -v hi="$3" 'BEGIN { exit !(x != "timeout" && x + 0 >= lo && x + 0 <= hi) }'; }

# rates, both ways; b stays fast
netns_rate a 25mbit
up=$(netns_run a python3 "$tool" up "$at" 7000 5000000)
down=$(netns_run a python3 "$tool" down "$at" 7000 5000000)
echo "25 Mbit/s by tbf: up $up, down $down Mbit/s of payload"
between "$up" 21 25.5 || fail "up is $up Mbit/s"
between "$down" 21 25.5 || fail "down is $down Mbit/s"
free=$(netns_run b python3 "$tool" down "$at" 7000 50000000)
between "$free" 100 1000000 || fail "b is slow too: $free Mbit/s"
netns_rate a off

# partitions: nothing comes through, and it heals
for way in both in out; do
    netns_cut a $way
    [ "$(netns_run a python3 "$tool" ping "$at" 7000 1 0.5)" = timeout ] || fail "a talks through a cut ($way)"
    between "$(netns_run b python3 "$tool" ping "$at" 7000 3)" 0 1000 || fail "b is cut off too"
    netns_heal a
    between "$(netns_run a python3 "$tool" ping "$at" 7000 3)" 0 1000 || fail "a is still cut off after $way"
done

# latency from the proxy, in the syncer's namespace
socket="${TMPDIR:-/tmp}/pl_netns_$$.sock"
netns_run syncer "$pelago" chaos proxy --to 127.0.0.1:7000 --listen 0.0.0.0:7100 --ports 2 --control "$socket" >/dev/null &
until [ -S "$socket" ]; do sleep 0.02; done
"$pelago" chaos tell "$socket" set all latency 25ms
ms=$(netns_run a python3 "$tool" ping "$at" 7100 10)
echo "25 ms each way by the proxy: round trip $ms ms"
between "$ms" 50 54 || fail "the round trip is $ms ms"
"$pelago" chaos tell "$socket" stop
wait %2
echo "netns: all good"
