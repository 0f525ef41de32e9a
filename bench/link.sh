#!/bin/bash
# bench/link.sh - one connection with TLS against iperf3 on the same line, in turns: lines of JSON.
#
#   bench/link.sh            10, 25, 50, 100 and 1000 Mbit/s, then far lines and loopback; a minute and a half
#   bench/link.sh --short    two rates, one round; shares are shown and not judged
#
# Two network namespaces with a token bucket between them (root, tc, iperf3); at 1000 Mbit/s, where the processor
# matters, the better of two rounds counts on each side.
# Leaves with 1 when a bar is missed, with 77 where namespaces or iperf3 are not to be had.
# Far rows go through `pelago chaos proxy`, which delays by 50 ms each way; iperf3 takes the same way. PELAGO=FILE: which
# program (default build/pelago).
set -eu
cd "$(dirname "$0")/.."
. scripts/netns.sh
pelago=${PELAGO:-build/pelago}
seconds=3 rates="10 25 50 100 1000" far="100" bar=0.9 short=() missed=false
if [ "${1:-}" = --short ]; then
    rates="25 1000" far="" seconds=1 short=(--short)
elif [ $# -gt 0 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
for tool in iperf3 python3; do
    command -v $tool >/dev/null || { echo "bench/link.sh: $tool is not installed (scripts/setup bench installs it)" >&2 && exit 77; }
done
netns_check >&2 || exit 77
[ -x "$pelago" ] || { echo "bench/link.sh: there is no $pelago; run make build" >&2 && exit 1; }
work=$(mktemp -d)
netns_begin
trap 'netns_end; rm -rf "$work"' EXIT
netns_add tx
netns_add rx
address=$(netns_address rx)

# Waits until FILE has a line with WORD in it.
wait_for() {
    local n
    for n in $(seq 100); do
        grep -q "$2" "$1" 2>/dev/null && return
        sleep 0.05
    done
    echo "bench/link.sh: nothing came of $1 ($n attempts)" >&2
    return 1
}

# Mbit/s at the receiver: iperf3_once PORT-TO-DIAL, pelago_once PORT-TO-DIAL STREAMS; the receivers listen at 7001 and 7002.
iperf3_once() {
    local server
    rm -f "$work/iperf3"
    netns_run rx timeout 30 iperf3 -s -1 -p 7001 --forceflush >"$work/iperf3" 2>&1 &
    server=$!
    wait_for "$work/iperf3" listening
    netns_run tx iperf3 -c "$3" -p "$1" -t $seconds -J >"$work/iperf3.json" || true
    wait $server || true
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 1e6)' "$work/iperf3.json"
}
pelago_once() {
    local server
    rm -f "$work/pelago"
    netns_run rx timeout 30 "$pelago" bench link --listen "$address:7002" --keys "$work/keys" >"$work/pelago" &
    server=$!
    wait_for "$work/pelago" listening
    netns_run tx "$pelago" bench link --to "$3:$1" --keys "$work/keys" --frame 65536 --seconds $seconds \
        --streams "$2" --json >"$work/pelago.json"
    wait $server
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["mbit_per_s"])' "$work/pelago.json"
}

larger() { python3 -c 'import sys; print(max(map(float, sys.argv[1:])))' "$@"; }

# row MBIT STREAMS LATENCY-MS IPERF3-PORT PELAGO-PORT HOST
row() {
    local ours=0 theirs=0 rounds="one"
    [ "$1" -lt 1000 ] || rounds="one two"
    for _ in $rounds; do
        theirs=$(larger "$theirs" "$(iperf3_once "$4" 1 "$6")")
        ours=$(larger "$ours" "$(pelago_once "$5" "$2" "$6")")
    done
    python3 -c 'import sys
mbit, streams, latency, ours, theirs, bar = map(float, sys.argv[1:7])
share = ours / theirs
verdict = "not judged" if sys.argv[7:] else "pass" if share >= bar else "miss"
print("{\"row\": \"link\", \"mbit\": %g, \"latency_ms\": %g, \"streams\": %d, \"ours\": %.2f, \"iperf3\": %.2f, "
      "\"share\": %.3f, \"bar\": %g, \"verdict\": \"%s\"}"
      % (mbit, latency, streams, ours, theirs, share, bar, verdict))
sys.exit(verdict == "miss")' \
        "$1" "$2" "$3" "$ours" "$theirs" $bar "${short[@]}" || missed=true
}

for rate in $rates; do
    netns_rate tx "${rate}mbit"
    row "$rate" 1 0 7001 7002 "$address"
done

# The proxy stands beside the sender: the line behind it is the shaped one.
for rate in $far; do
    netns_rate tx "${rate}mbit"
    rm -f "$work/proxy"
    netns_run tx timeout 120 "$pelago" chaos proxy --to "$address:7001,$address:7002" --listen 127.0.0.1:7100 \
        --control "$work/control" >"$work/proxy" &
    proxy=$!
    wait_for "$work/proxy" port
    netns_run tx "$pelago" chaos tell "$work/control" set 1 latency 50ms >/dev/null
    for streams in 1 4; do
        row "$rate" $streams 50 7100 7101 127.0.0.1
    done
    netns_run tx "$pelago" chaos tell "$work/control" stop >/dev/null
    wait $proxy || true
done
netns_end
"$pelago" bench link --seconds $seconds --json "${short[@]}" || missed=true
! $missed
