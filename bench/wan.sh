#!/bin/bash
# bench/wan.sh [--short] [--proxy] [--rates "10 25 50 100"] [--steps 50] [--threads 1] [--steps-ratio X] - two learners behind
# slow lines, decoupled against data-parallel.
#
# Three network namespaces: a syncer and two learners, each learner's line limited both ways by tbf, with a proxy in its
# namespace that adds half of LATENCY (50 ms for the round trip) each way. The model is 14m with 8 x 256 tokens a step and
# learner, --threads each. One line of JSON for each rate:
#   utilisation  decoupled: steps a second on the shaped line against the same learners on an open line
#   step_ratio   seconds a step of data_parallel on the shaped line (over at least --steps steps) by those of decoupled
#   steps_ratio  steps that decoupled takes to a loss by those that data_parallel takes, which no line changes:
#                bench/steps_to_loss.py measures it on open ones, in half an hour; give its figure with --steps-ratio.
#                Without, 1, and steps_ratio_is says "not measured"
#   ratio        of the times to that loss: step_ratio / steps_ratio
#   limit        the arithmetic: (2 bytes x parameters x 8 / rate, or one step if that is longer) / one step
# --short: one rate, few steps, 1m: shows that it works; nothing is judged but that both train. --proxy: no namespaces, needs no root:
# everything on 127.0.0.1, and the proxies limit the rate too (by queues of their own instead of tbf's). Leaves with 1 when a
# bar is missed, with 77 where namespaces are not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/netns.sh
pids=()
pelago=$(realpath "${PELAGO:-build/pelago}") model=14m batch=8 seq=256 rates="10 25 50 100" steps=50 open_steps=40
proxy=false rate="" threads=1 short=0 steps_ratio=1 steps_ratio_is="not measured" missed=false
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=1 model=1m batch=4 seq=128 rates="25" steps=6 open_steps=20 ;;
    --steps-ratio)
        [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ && ! $2 =~ ^[0.]+$ ]] || { echo "bench/wan.sh: --steps-ratio is a number above 0, as bench/steps_to_loss.py prints" >&2; exit 2; }
        steps_ratio=$2 steps_ratio_is=measured && shift ;;
    --proxy) proxy=true ;;
    --rates) rates=$2 && shift ;;
    --steps) steps=$2 && shift ;;
    --threads) threads=$2 && shift ;;
    *) echo "usage: bench/wan.sh [--short] [--proxy] [--rates \"10 25\"] [--steps N] [--threads N] [--steps-ratio X]" >&2 && exit 2 ;;
    esac
    shift
done
latency=${LATENCY:-25ms}
work=$(mktemp -d)
declare -A port
# Three ports that nobody has.
free_ports() {
    python3 -c 'import socket
taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(s.getsockname()[1] for s in taken))'
}
if $proxy; then
    trap 'end; rm -rf "$work"' EXIT
    inside() { "${@:2}"; }
    address() { echo "127.0.0.1:${port[$1]}"; }
    shape() { rate=${1#off}; }
else
    netns_check >&2 || exit 77
    netns_begin
    trap 'netns_end; rm -rf "$work"' EXIT
    for name in syncer a b; do netns_add $name; done
    inside() { netns_run "$@"; }
    address() { if [ "$1" = syncer ]; then echo "$(netns_address syncer):7441"; else echo 127.0.0.1:7441; fi; }
    shape() { for n in a b; do netns_rate $n "$1"; done; }
fi

field() { python3 -c 'import json,sys; d=json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
status() { inside syncer "$pelago" status "$dir/syncer" --json 2>/dev/null; }

# Nobody waits for one that has ended.
alive() {
    local n
    for n in "${pids[@]}"; do
        kill -0 "$n" 2>/dev/null || { echo "wan.sh: a process ended: $(tail -qn 1 "$dir"/*.log)" >&2 && exit 1; }
    done
}

# begin ALGORITHM OPTION...: a syncer, two proxies, two learners
begin() {
    local algorithm=$1 token n
    shift
    dir=$work/$algorithm-$RANDOM
    mkdir -p "$dir"
    if $proxy; then read -r "port[syncer]" "port[a]" "port[b]" < <(free_ports); fi
    inside syncer "$pelago" syncer --dir "$dir/syncer" --listen "$(address syncer)" --algorithm "$algorithm" \
        --learners 2 --model $model --batch $batch --seq $seq --data builtin:tales --tokens 1G "$@" >"$dir/syncer.log" 2>&1 &
    pids=($!)
    until [ -f "$dir/syncer/operator" ] && token=$(inside syncer "$pelago" invite "$dir/syncer" --uses 2 2>/dev/null); do alive && sleep 0.2; done
    token=$(grep -o 'pelago1-[A-Za-z0-9_-]*' <<<"$token" | head -1)
    for n in a b; do
        inside $n "$pelago" chaos proxy --listen "$(address $n)" --to "$(address syncer)" --control "$dir/$n.sock" \
            >"$dir/proxy-$n.log" 2>&1 &
        pids+=($!)
        until "$pelago" chaos tell "$dir/$n.sock" set all latency "$latency" >/dev/null 2>&1; do alive && sleep 0.1; done
        [ -z "$rate" ] || "$pelago" chaos tell "$dir/$n.sock" set all rate "$rate" >/dev/null
        inside $n "$pelago" learner --dir "$dir/$n" --join "$token" --address "$(address $n)" --threads "$threads" --stats "$dir/$n.stats" \
            >"$dir/$n.log" 2>&1 &
        pids+=($!)
    done
}
# Whoever lives in the namespaces was started here; shells stand between us and them.
end() {
    local n
    if $proxy; then
        for n in "${pids[@]}"; do pkill -TERM -P "$n" 2>/dev/null || true; done
    else
        for n in a b syncer; do
            ip netns pids "$(netns_name $n)" | xargs -r kill -TERM 2>/dev/null || true
        done
    fi
    wait "${pids[@]}" 2>/dev/null || true
}

# Seconds a step, over N further steps of both learners together, after SKIP of them.
step_seconds() {
    local skip=$1 n=$2 first=0 begin_s=0 now_s total
    while true; do
        alive
        sleep 0.5
        total=$(status | field 'sum(x["steps"] for x in d["learners"])' 2>/dev/null || echo 0)
        now_s=$(date +%s.%N)
        if [ "$begin_s" = 0 ]; then
            if [ "$total" -ge $((2 * skip)) ]; then first=$total begin_s=$now_s; fi
        elif [ "$total" -ge $((first + 2 * n)) ]; then
            awk "BEGIN { print ($now_s - $begin_s) / (($total - $first) / 2) }"
            return
        fi
    done
}

begin decoupled
open_step=$(step_seconds 5 $open_steps)
params=$(status | field 'd["params"]')
end
for mbit in $rates; do
    shape "${mbit}Mbit"
    begin decoupled
    ours=$(step_seconds 5 $open_steps)
    merged=$(status | field 'd["merged_alive"]')
    end
    begin data_parallel
    theirs=$(step_seconds 2 "$steps")
    end
    shape off
    line=$(awk -v mbit="$mbit" -v o="$open_step" -v d="$ours" -v t="$theirs" -v p="$params" -v m="$merged" -v model=$model -v threads="$threads" \
        -v short=$short -v steps="$steps_ratio" -v is="$steps_ratio_is" 'BEGIN {
        wire = 2 * p * 8 / (mbit * 1e6); limit = (wire > o ? wire : o) / o
        use = o / d; ratio = t / d / steps
        good = short ? m > 0 : use >= 0.95 && (mbit != 25 || ratio >= 20)
        printf "{\"row\": \"wan\", \"model\": \"%s\", \"threads\": %s, \"mbit\": %s, \"step_open_s\": %.3f, \"step_s\": %.3f, \"utilisation\": %.3f, \"merged_alive\": %.3f, \"data_parallel_step_s\": %.3f, \"step_ratio\": %.1f, \"steps_ratio\": %s, \"steps_ratio_is\": \"%s\", \"ratio\": %.1f, \"limit\": %.1f, \"bar\": \"%s\", \"verdict\": \"%s\"}\n",
            model, threads, mbit, o, d, use, m, t, t / d, steps, is, ratio, limit,
            short ? "both train and are merged; speeds are not judged" : "utilisation 0.95; ratio 20 at 25 Mbit/s", good ? "pass" : "miss" }')
    echo "$line"
    [[ $line == *'"pass"'* ]] || missed=true
done
! $missed
