#!/bin/bash
# tests/e2e/chaos.sh PELAGO - `pelago chaos` on processes of our own that look like a run: children named "pelago learner ..."
# that only sleep, kept alive by a loop that honours DIR/hold as `pelago run` does, and a run.json that names them.
# A proxy stands in front of an echo server. Nothing outside the temporary folder and these processes is touched.
set -euo pipefail
pelago=$(realpath "$1")
dir=$(mktemp -d)
pids=()
mounted=
cleanup() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    for file in "$dir"/pid-*; do [ ! -e "$file" ] || kill -KILL "$(cat "$file")" 2>/dev/null || true; done
    [ -z "$mounted" ] || umount "$mounted" || true
    rm -rf "$dir"
}
trap cleanup EXIT
fail() {
    echo "FAILED: $*" >&2
    [ ! -e "$dir/chaos.jsonl" ] || cat "$dir/chaos.jsonl" >&2
    exit 1
}
# until COMMAND succeeds, for at most ten seconds
await() {
    local end=$((SECONDS + 10))
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "waited in vain for: $*"
        sleep 0.02
    done
}

# ---- a run made of sleepers ----
learners=4
write_run() {
    {
        printf '{"syncers":[{"name":"syncer-0","pid":%s,"dir":"%s"}],"learners":[' "$(cat "$dir/pid-syncer-0")" "$dir"
        for ((i = 1; i <= learners; i++)); do
            [ "$i" = 1 ] || printf ','
            printf '{"name":"learner-%d","pid":%s,"dir":"%s"}' "$i" "$(cat "$dir/pid-learner-$i")" "$dir"
        done
        printf ']}\n'
    } >"$dir/run.json.partial"
    mv "$dir/run.json.partial" "$dir/run.json"
}
start_child() { # NAME
    bash -c "exec -a 'pelago ${1%-*} --dir $dir/$1' sleep 600" &
    echo $! >"$dir/pid-$1"
}
supervise() {
    local name
    for name in syncer-0 $(seq -f 'learner-%.0f' 1 $learners); do start_child "$name"; done
    write_run
    while [ ! -e "$dir/finish" ]; do
        for name in syncer-0 $(seq -f 'learner-%.0f' 1 $learners); do
            if ! kill -0 "$(cat "$dir/pid-$name")" 2>/dev/null && [ ! -e "$dir/hold/$name" ]; then
                start_child "$name"
                write_run
            fi
        done
        sleep 0.05
    done
} 2>/dev/null
supervise &
pids+=($!)
await test -e "$dir/run.json"

count() { grep -c "$1" "$dir/chaos.jsonl" || true; }
state_of() { sed 's/.*) //' "/proc/$(cat "$dir/pid-$1")/stat" 2>/dev/null | cut -c1 || true; }
is_full() { [ "$(df --output=avail "$mounted" | tail -n 1 | tr -d ' ')" = 0 ]; }
is_state() { [ "$(state_of "$1")" = "$2" ]; }

# ---- a plan ----
old=$(cat "$dir/pid-learner-2")
cat >"$dir/a.plan" <<'PLAN'
at 200ms kill learner 2
at 300ms stop learner 1 for 1500ms
at 300ms kill learner 3 for 1500ms
at 300ms slow-cpu learner 4 to 20% for 1500ms
at 400ms kill syncer 0
PLAN
"$pelago" chaos "$dir" --plan "$dir/a.plan" --quiet &
chaos=$!
await is_state learner-1 T
await test -e "$dir/hold/learner-3"
wait $chaos
[ ! -e "$dir/hold/learner-3" ] || fail "the hold of learner 3 was not taken back"
for name in learner-1 learner-4; do is_state "$name" T && fail "$name was left stopped"; done
await test "$old" != "$(cat "$dir/pid-learner-2")"
[ "$(count '"ok":true')" = 10 ] || fail "ten good lines expected (with begin and end), there are $(count '"ok":true')"
for action in begin kill stop down slow-cpu up continue full-cpu end; do
    [ "$(count "\"action\":\"$action\"")" -ge 1 ] || fail "no line says $action"
done
grep -q "\"action\":\"kill\",\"target\":\"learner 2\",\"pid\":$old,\"ok\":true" "$dir/chaos.jsonl" || fail "the kill of $old is not told"
python3 -c 'import json, sys
times = [json.loads(line)["t_s"] for line in open(sys.argv[1])]
assert times == sorted(times)' "$dir/chaos.jsonl"

# ---- rates: ten kills, and the sleepers come back ----
rm "$dir/chaos.jsonl"
"$pelago" chaos "$dir" --kill-every 300ms --for 3100ms --seed 3 --quiet
[ "$(count '"action":"kill"')" = 10 ] || fail "ten kills expected, there are $(count '"action":"kill"')"
python3 -c 'import json, sys
last = [json.loads(line) for line in open(sys.argv[1])][-1]
assert last["action"] == "end" and last["t_s"] >= 3.1, last' "$dir/chaos.jsonl" || fail "it did not last as long as --for says"

# ---- a trace: node a goes for good, b comes back ----
rm "$dir/chaos.jsonl"
printf 't_s,event,node,cause\n0,up,a,x\n0,up,b,x\n0,up,c,x\n0,up,d,x\n30,down,a,x\n50,down,b,x\n80,up,b,x\n100,down,c,x\n' >"$dir/t.csv"
"$pelago" chaos "$dir" --trace "$dir/t.csv" --time-scale 100 --quiet
[ "$(ls "$dir/hold")" = $'learner-2\nlearner-3' ] || fail "learners 2 and 3 are held at the end: $(ls "$dir/hold")"
await test ! -d "/proc/$(cat "$dir/pid-learner-3")"
"$pelago" chaos "$dir" --heal --quiet
[ -z "$(ls "$dir/hold")" ] || fail "--heal left holds behind"

# ---- interrupted: everything is taken back ----
rm "$dir/chaos.jsonl"
printf 'until 1h\nat 0s stop learner 1\nat 0s kill learner 2 for 30m\nat 0s slow-cpu learner 3 to 10%%\n' >"$dir/b.plan"
sleep 0.3 # all are back
"$pelago" chaos "$dir" --plan "$dir/b.plan" --quiet &
chaos=$!
await is_state learner-1 T
await test -e "$dir/hold/learner-2"
kill -TERM $chaos
wait $chaos
[ ! -e "$dir/hold/learner-2" ] || fail "the hold stayed after an interrupt"
for name in learner-1 learner-3; do is_state "$name" T && fail "$name stayed stopped after an interrupt"; done

# ---- what is asked wrongly is said before a run is waited for ----
mkdir "$dir/none"
printf 'at 0s kil learner 1\n' >"$dir/wrong.plan"
printf 't_s,event,node,cause\n0,sideways,a,x\n' >"$dir/wrong.csv"
refuses() { # CODE SENTENCE OPTION...
    local want=$1 sentence=$2 code=0
    shift 2
    timeout 20 "$pelago" chaos "$dir/none" --wait 1h "$@" 2>"$dir/said" || code=$?
    [ $code = "$want" ] || fail "$* leaves with $code"
    grep -q "$sentence" "$dir/said" || fail "$* says: $(cat "$dir/said")"
    ! grep -q waiting "$dir/said" || fail "$* waits for a run"
}
refuses 1 "nowhere cannot be read" --plan "$dir/nowhere"
refuses 1 "nowhere cannot be read" --trace "$dir/nowhere"
refuses 2 "line 1 of the plan" --plan "$dir/wrong.plan"
refuses 2 "line 2 of the trace" --trace "$dir/wrong.csv"
refuses 2 "how many times faster" --trace "$dir/t.csv" --time-scale -1
refuses 2 "how many times faster" --kill-every 1s --time-scale -1
refuses 2 "\-\-skip is 'x'" --trace "$dir/t.csv" --skip x
refuses 2 "\-\-kill-every is '0'" --kill-every 0
refuses 2 "expect times such as 5s" --kill-every 1s --stop-for soon
refuses 2 "\-\-for is 'x'" --kill-every 1s --for x
refuses 2 "nothing to do"
grep -q waiting <(timeout 20 "$pelago" chaos "$dir/none" --wait 1s --kill-every 1s 2>&1) || fail "a run that may come is not waited for"

# ---- a plan that can be read only once ----
rm "$dir/chaos.jsonl"
"$pelago" chaos "$dir" --plan <(printf 'at 0s kill learner 1\n') --quiet || fail "a plan from a pipe leaves with $?"
[ "$(count '"action":"kill","target":"learner 1"')" = 1 ] || fail "the plan from a pipe is not carried out"

# ---- strangers are left alone ----
sleep 600 &
stranger=$!
pids+=("$stranger")
mkdir "$dir/other"
printf '{"syncers":[],"learners":[{"name":"learner-1","pid":%d,"dir":"/"},{"name":"learner-2","pid":1,"dir":"/"}]}' $stranger >"$dir/other/run.json"
printf 'kill learner 1\nkill learner 2\nfill-disk learner 1\nreset link learner 1\n' >"$dir/c.plan"
code=0
"$pelago" chaos "$dir/other" --plan "$dir/c.plan" --quiet 2>"$dir/said" || code=$?
[ $code = 1 ] || fail "actions that could not be done leave with $code"
grep -q "3 of 4 actions could not be done, the first of them on learner 1: process $stranger is no 'pelago learner': left alone" "$dir/said" ||
    fail "it says: $(cat "$dir/said")"
kill -0 $stranger || fail "a process that is no pelago was killed"
[ "$(grep -c '"ok":false' "$dir/other/chaos.jsonl")" = 4 ] || fail "four refusals expected: $(cat "$dir/other/chaos.jsonl")"
grep -q "mount a tmpfs" "$dir/other/chaos.jsonl" || fail "filling / was not refused with advice"

# ---- a victim that is dead already is no failure ----
printf '{"syncers":[],"learners":[{"name":"learner-1","pid":null,"dir":"/"}]}' >"$dir/other/run.json"
"$pelago" chaos "$dir/other" --kill-every 100ms --for 250ms --quiet || fail "killing the dead is no failure"
grep -q "2 actions, 2 too late, 0 failed" "$dir/other/chaos.jsonl" || fail "it is not told: $(tail -n 3 "$dir/other/chaos.jsonl")"
"$pelago" chaos "$dir/other" --kill-every 200ms --for 250ms --quiet || fail "killing the dead once is no failure"
grep -q "1 action, 1 too late, 0 failed" "$dir/other/chaos.jsonl" || fail "one is not one: $(tail -n 3 "$dir/other/chaos.jsonl")"

# ---- a file that names more processes than there can be ----
python3 -c 'import json, sys
nodes = [{"name": "x", "pid": None}] * 4096
json.dump({"syncers": nodes, "learners": nodes}, open(sys.argv[1], "w"))' "$dir/other/run.json"
code=0
"$pelago" chaos "$dir/other" --kill-every 1s --for 2s --quiet --wait 0s 2>"$dir/said" || code=$?
[ $code = 1 ] || fail "8192 processes leave with $code"
grep -q "names 4096 learners and 4096 syncers, expected at most 4096 in all" "$dir/said" || fail "it says: $(cat "$dir/said")"

# ---- a full disk, where a small one can be mounted ----
mkdir "$dir/small"
if mount -t tmpfs -o size=1m tmpfs "$dir/small" 2>/dev/null; then
    mounted=$dir/small
    printf '{"syncers":[{"name":"syncer-0","pid":%s,"dir":"%s"}],"learners":[]}' "$(cat "$dir/pid-syncer-0")" "$mounted" \
        >"$dir/other/run.json"
    printf 'at 0s fill-disk syncer 0 for 2s\n' >"$dir/e.plan"
    "$pelago" chaos "$dir/other" --plan "$dir/e.plan" --quiet &
    chaos=$!
    await test -e "$mounted/chaos-fill"
    await is_full
    ! dd if=/dev/zero of="$mounted/more" bs=4096 count=1 2>/dev/null || fail "the disk is not full"
    wait $chaos
    rm -f "$mounted/more"
    [ -z "$(ls "$mounted")" ] || fail "the disk was not freed"
    umount "$mounted"
    mounted=
fi

# ---- links, through the proxy ----
python3 -c 'import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096):
            self.request.sendall(data)
server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
server.daemon_threads = True
open(sys.argv[1] + ".partial", "w").write(str(server.server_address[1]))
import os; os.rename(sys.argv[1] + ".partial", sys.argv[1])
server.serve_forever()' "$dir/echo.port" &
pids+=($!)
await test -e "$dir/echo.port"
"$pelago" chaos proxy --to "127.0.0.1:$(cat "$dir/echo.port")" --ports $learners --state "$dir/proxy.json" --control "$dir/proxy.sock" &
proxy=$!
pids+=("$proxy")
await test -e "$dir/proxy.json"
printf 'at 0s link learner 2 latency 40ms for 2s\nat 0s partition learner 3 for 1s\n' >"$dir/d.plan"
"$pelago" chaos "$dir" --plan "$dir/d.plan" --quiet &
chaos=$!
python3 - "$dir/proxy.json" <<'PY'
import json, socket, sys, time
links = {link["learner"]: link["listen"].split(":") for link in json.load(open(sys.argv[1]))["links"]}
def trip(learner):
    s = socket.create_connection((links[learner][0], int(links[learner][1])))
    s.settimeout(10)
    begin = time.monotonic()
    s.sendall(b"x")
    assert s.recv(1) == b"x"
    return time.monotonic() - begin
end = time.monotonic() + 1.5
while trip(2) < 0.08:  # the order may still be on its way
    assert time.monotonic() < end, "no latency"
assert trip(1) < 0.5
assert trip(3) < 5  # waits for the partition to heal
PY
wait $chaos
[ "$("$pelago" chaos tell "$dir/proxy.sock" stats 3 | grep -c '"learner":3')" = 1 ] || fail "no stats of link 3"
kill -TERM $proxy
wait $proxy || fail "the proxy did not end well"

# ---- the end of the run ends the plan ----
touch "$dir/finish"
sleep 0.2
for name in syncer-0 $(seq -f 'learner-%.0f' 1 $learners); do kill -KILL "$(cat "$dir/pid-$name")" 2>/dev/null || true; done
begin=$SECONDS
"$pelago" chaos "$dir" --kill-every 1h --quiet || fail "a rate without an end leaves with $?"
[ $((SECONDS - begin)) -lt 30 ] || fail "it did not notice the end of the run"
grep -q "the run ended" "$dir/chaos.jsonl" || fail "the end of the run is not told"
echo "chaos: all good"
