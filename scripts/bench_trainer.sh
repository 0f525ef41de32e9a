#!/bin/bash
# scripts/bench_trainer.sh [--only ROW,...] - the race: our trainer against PyTorch on this machine, in one run; then memory,
# and sampling and the tokenizer against what they must reach.
#
# Rows: 14m 124m 124m-short fp32 threads processes memory sample tokenizer. One line of JSON a row on stdout, a table on
# stderr at the end; leaves with 1 when a bar that was judged is missed. Bars of bfloat16 are judged on machines with AMX, that of
# floats on those with AVX-512, the others on all.
# Ours and theirs take turns on the same two cores and the best of all rounds counts, because machines that are shared
# change their speed from one minute to the next. PyTorch runs in every variant in the first round and in the three
# fastest afterwards. On a machine with AMX a bfloat16 variant counts only if oneDNN's own log shows AMX kernels.
#
# It needs build/bench_trainer, bench/torch_trainer.py and, for PyTorch, a Python that has it; the last two rows need
# build/pelago, and the tokenizer's English text (../shared/data). Nothing is compiled.
#   ROUNDS=3  SECONDS_PER_CASE=5  PYTHON=...   VARIANTS="bf16 bf16-plain-compile" (see bench/torch_trainer.py)
#   TORCH_LIMIT=300 seconds for one run of PyTorch, which may compile first   BENCH=build/bench_trainer
#   PELAGO=build/pelago   DATA=../shared/data
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
rounds=${ROUNDS:-3} seconds=${SECONDS_PER_CASE:-5} limit=${TORCH_LIMIT:-300} bench=${BENCH:-build/bench_trainer}
pelago=${PELAGO:-build/pelago} data=${DATA:-../shared/data}
low_variants=${VARIANTS:-bf16 bf16-plain autocast-plain bf16-compile bf16-plain-compile autocast-plain-compile fp32-plain}
fp32_variants=${VARIANTS:-fp32 fp32-plain fp32-compile fp32-plain-compile}
all_rows="14m 124m 124m-short fp32 threads processes memory sample tokenizer"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$work/table
missed=0

die() {
    echo "bench_trainer.sh: $1" >&2
    exit 2
}

say() { echo "bench_trainer.sh: $1" >&2; }

# ---- the machine ----

# Two processors that are different cores, of those we may use.
choose_cores() {
    local allowed cpu siblings
    pair='' first='' second=''
    command -v taskset >/dev/null || return
    allowed=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *//' | tr ',' '\n' |
        awk -F- '{ for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }')
    for cpu in $allowed; do
        if [ -z "$first" ]; then
            first=$cpu
            siblings=$(sed 's/[,-]/\n/g' "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null)
        elif ! grep -qx "$cpu" <<<"$siblings"; then
            second=$cpu
            break
        fi
    done
    if [ -n "$second" ]; then
        pair=$first,$second
    else
        say "this machine gives us less than two cores: nothing is pinned"
    fi
}

# pinned CPUS COMMAND...; no CPUS: wherever the system likes.
pinned() {
    local cpus=$1
    shift
    if [ -n "$cpus" ]; then taskset -c "$cpus" "$@"; else "$@"; fi
}

find_torch() {
    local p
    for p in ${PYTHON:-} python3 /usr/bin/python3; do
        if torch=$("$p" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
            python=$p
            return
        fi
    done
    python='' torch=''
    say "no Python here has PyTorch: our figures alone"
}

# ---- runs ----

# field NAME LINE: a value of a line of JSON, without quotes.
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$2"; }

# ours FIELD CPUS ARGUMENT...
ours() {
    local name=$1 cpus=$2 line
    shift 2
    line=$(pinned "$cpus" "$bench" --json "$@") || return 1
    backend=$(field backend "$line")
    value=$(field "$name" "$line")
    [ -n "$value" ]
}

# theirs VARIANT ARGUMENT...; what it says besides is in $work/log.
theirs() {
    local variant=$1 line
    shift
    line=$(OMP_NUM_THREADS=2 pinned "$pair" timeout "$limit" "$python" bench/torch_trainer.py --variant "$variant" \
        --threads 2 "$@" 2>"$work/log" | tail -1) && value=$(field tokens_per_s "$line") && [ -n "$value" ]
}

# Whether a variant's products reached AMX: yes, no or died. Asked once.
amx_reached() {
    local seen=$work/amx-$1
    if [ ! -f "$seen" ]; then
        say "does $1 reach AMX?"
        if OMP_NUM_THREADS=2 ONEDNN_VERBOSE=1 pinned "$pair" timeout "$limit" "$python" bench/torch_trainer.py \
            --variant "$1" --threads 2 --model 14m --batch 8 --seq 256 --seconds 0 >"$work/verbose" 2>&1; then
            if grep -q '^onednn_verbose.*exec.*amx' "$work/verbose"; then echo yes; else echo no; fi
        else
            echo died
        fi >"$seen"
    fi
    reached=$(cat "$seen")
}

larger() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }
quotient() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b }'; }

# The three fastest variants of a file of "VALUE VARIANT" lines, if within a quarter of the best.
finalists() { sort -rn "$1" | awk 'NR == 1 { best = $1 } NR <= 3 && $1 > 0.75 * best { print $2 }'; }

# ---- rows ----

# judge RATIO BAR WHY: pass, miss, or not judged when there is a reason why not.
judge() {
    verdict="not judged"
    if [ -z "$3" ] && [ -n "$1" ]; then
        if larger "$2" "$1"; then verdict=miss missed=1; else verdict=pass; fi
    fi
}

# emit ROW WHAT OURS THEIRS RATIO BAR WHY JSON: one line each for the program and the person who read.
emit() {
    local why=$7
    judge "$5" "$6" "$why"
    case $why in *refused*) verdict=refused ;; esac
    printf '{"row": "%s", "what": "%s", "amx": %s, "ours": %s, "theirs": %s, "ratio": %s, "bar": %s, ' "$1" "$2" \
        "$amx" "${3:-null}" "${4:-null}" "${5:-null}" "$6"
    printf '"verdict": "%s", "why": "%s", "rounds": %s%s}\n' "$verdict" "$why" "$rounds" "$8"
    printf '%s|%s|%s|%s|%s|%s|%s\n' "$2" "${3:--}" "${4:--}" "${5:--}" "$6" "$verdict" "$why" >>"$table"
}

# One round of PyTorch; variants that fail or may not count are noted.
torch_round() {
    local variant
    for variant in $1; do
        say "  PyTorch, $variant"
        if [ "$amx" = true ] && [[ $variant != fp32* ]]; then
            amx_reached "$variant"
            if [ "$reached" != yes ]; then
                [ "$reached" = no ] && refused="$refused $variant" || failed="$failed $variant"
                continue
            fi
        fi
        if theirs "$variant" "${shape[@]}" --seconds "$seconds"; then
            echo "$value $variant" >>"$work/theirs"
        else
            failed="$failed $variant"
            say "  $variant gave no result: $(tail -1 "$work/log")"
        fi
    done
}

# race ROW WHAT BAR VARIANTS OPTION...: the options are both programs'; ${own[@]} are ours alone.
race() {
    local row=$1 what=$2 bar=$3 variants=$4 best=0 all="" best_variant="" best_theirs="" why="" round
    shape=("${@:5}") failed="" refused=""
    : >"$work/theirs"
    for round in $(seq "$rounds"); do
        say "$what, round $round of $rounds"
        ours tokens_per_s "$pair" --threads 2 --seconds "$seconds" "${shape[@]}" "${own[@]}" || { why="our run failed"; break; }
        all+="${all:+, }$value"
        larger "$value" "$best" && best=$value
        [ -n "$python" ] || continue
        torch_round "$variants"
        [ -s "$work/theirs" ] || break
        variants=$(finalists "$work/theirs" | sort -u)
    done
    if [ -s "$work/theirs" ]; then read -r best_theirs best_variant < <(sort -rn "$work/theirs" | head -1); fi
    if [ "$row" = fp32 ]; then
        [ "$backend" = avx512 ] || why=${why:-no AVX-512}
    else
        [ "$amx" = true ] || why=${why:-no AMX}
    fi
    [ -n "$python" ] || why=${why:-no PyTorch}
    if [ -n "$python" ] && [ "$amx" = true ] && [[ $row != fp32 && ($best_variant == fp32* || -z $best_variant) ]]; then
        why="opponent did not reach AMX: refused"
    elif [ -n "$python" ] && [ -z "$best_theirs" ]; then
        why=${why:-PyTorch gave no result}
    fi
    emit "$row" "$what" "$best" "$best_theirs" "$(quotient "$best" "${best_theirs:-0}")" "$bar" "$why" \
        ", \"backend\": \"$backend\", \"variant\": \"$best_variant\", \"torch\": \"$torch\", \"ours_all\": [$all], \
\"theirs_all\": {$(sort -rn "$work/theirs" | awk '!seen[$2]++ { printf "%s\"%s\": %s", n++ ? ", " : "", $2, $1 }')}, \
\"failed\": \"${failed# }\", \"refused\": \"${refused# }\""
}

# Two threads against one.
scale_threads() {
    local one=0 two=0 round
    for round in $(seq "$rounds"); do
        say "threads, round $round of $rounds"
        ours tokens_per_s "$first" --threads 1 --seconds "$seconds" && larger "$value" "$one" && one=$value
        ours tokens_per_s "$pair" --threads 2 --seconds "$seconds" && larger "$value" "$two" && two=$value
    done
    emit threads "14m, 2 threads / 1" "$two" "$one" "$(quotient "$two" "$one")" 1.8 "$no_scaling" ", \"backend\": \"$backend\""
}

# Two processes of one thread, at the same time, against one alone. Means, because a process may be alone for its
# fastest steps.
scale_processes() {
    local one=0 two=0 round other sum
    for round in $(seq "$rounds"); do
        say "processes, round $round of $rounds"
        ours tokens_per_s_mean "$first" --threads 1 --seconds "$seconds" && larger "$value" "$one" && one=$value
        pinned "$second" "$bench" --json --threads 1 --seconds "$seconds" >"$work/other" &
        ours tokens_per_s_mean "$first" --threads 1 --seconds "$seconds" || value=0
        wait $!
        other=$(field tokens_per_s_mean "$(cat "$work/other")")
        sum=$(awk -v a="$value" -v b="${other:-0}" 'BEGIN { print a + b }')
        larger "$sum" "$two" && two=$sum
    done
    emit processes "14m, 2 processes / 1" "$two" "$one" "$(quotient "$two" "$one")" 1.9 "$no_scaling" ", \"backend\": \"$backend\""
}

# The most memory the process held, beyond 2 GB, a parameter: judged on every machine.
measure_memory() {
    local line peak params over held
    say "memory"
    if ! line=$(pinned "$pair" "$bench" --json --model 124m --batch 4 --seq 1024 --threads 2 --seconds 0); then
        emit memory "124m 4 x 1024, bytes a parameter beyond 2 GB" "" "" "" 18 "our run failed" ""
        return
    fi
    peak=$(field max_rss_bytes "$line") params=$(field params "$line")
    backend=$(field backend "$line")
    over=$(awk -v b="$peak" -v n="$params" 'BEGIN { printf "%.2f", (b - 2e9) / n }')
    held=$(quotient 18 "$(awk -v o="$over" 'BEGIN { print (o > 0.001 ? o : 0.001) }')")
    emit memory "124m 4 x 1024, bytes a parameter beyond 2 GB (at most 18)" "$over" "" "$held" 1 "" \
        ", \"backend\": \"$backend\", \"max_rss_bytes\": $peak, \"params\": $params, \"counted_bytes\": $(field bytes "$line")"
}

# figure NAME CPUS WHAT ARGUMENT...: of `pelago bench WHAT`; the whole line is in $line.
figure() {
    local name=$1 cpus=$2 what=$3
    shift 3
    line=$(pinned "$cpus" "$pelago" bench "$what" --json --seconds "$seconds" "$@") || return 1
    value=$(field "$name" "$line")
    [ -n "$value" ]
}

# One stream of text, against the tokens a second at which the same threads could read the weights.
measure_sample() {
    local line round why="" best=0 best_line="" all=""
    for round in $(seq "$rounds"); do
        say "sample, round $round of $rounds"
        figure share "$pair" sample --model 124m --threads 2 || { why="our run failed"; break; }
        all+="${all:+, }$value"
        if larger "$value" "$best"; then best=$value best_line=$line; fi
    done
    backend=$(field backend "$best_line")
    emit sample "124m, one stream, tokens/s / memory's limit" "$(field tokens_per_s "$best_line")" \
        "$(awk -v t="$(field tokens_per_s "$best_line")" -v s="$best" 'BEGIN { if (s > 0) printf "%.1f", t / s }')" \
        "$best" 0.7 "$why" ", \"backend\": \"$backend\", \"read_gb_per_s\": $(field read_gb_per_s "$best_line" | grep . || echo null), \
\"shares\": [$all]"
}

# English text to GPT-2's tokens, MB per second of processor, because a core that others use meanwhile is not ours: with one
# thread, or with two where that is less. What the clock said is noted beside it.
measure_tokenizer() {
    local line round threads cpus why="" clock=(0 0 0) core=(0 0 0) ours=""
    local words=(--tokenizer "$data/tokenizers/gpt2" "$data/gutenberg/train-00.txt.zst")
    [ -r "${words[2]}" ] || why="no text at $data"
    for round in $(seq "$rounds"); do
        [ -z "$why" ] || break
        say "tokenizer, round $round of $rounds"
        for threads in 1 2; do
            cpus=$([ "$threads" = 1 ] && echo "$first" || echo "$pair")
            figure mb_per_s "$cpus" tokenizer --threads "$threads" "${words[@]}" || { why="our run failed"; break; }
            if larger "$value" "${clock[threads]}"; then clock[threads]=$value; fi
            value=$(field mb_per_core_s "$line")
            if larger "$value" "${core[threads]}"; then core[threads]=$value; fi
        done
    done
    [ -n "$why" ] || ours=$(printf '%s\n' "${core[1]}" "${core[2]}" | sort -g | head -1)
    emit tokenizer "GPT-2's tokenizer, English, MB/s a core" "$ours" "" "$ours" 20 "$why" \
        ", \"one_thread\": ${core[1]}, \"two_threads\": ${core[2]}, \"by_the_clock\": [${clock[1]}, ${clock[2]}]"
}

run_row() {
    own=()
    case $1 in
    14m) race 14m "14m 8 x 256" 3 "$low_variants" --model 14m --batch 8 --seq 256 ;;
    124m) race 124m "124m 4 x 256" 2.5 "$low_variants" --model 124m --batch 4 --seq 256 ;;
    124m-short) race 124m-short "124m 4 x 64" 2 "$low_variants" --model 124m --batch 4 --seq 64 ;;
    fp32)
        own=(--backend avx512)
        "$bench" --backend avx512 --model 1m --batch 1 --seq 8 --seconds 0 >/dev/null 2>&1 || own=(--backend avx2)
        race fp32 "14m 8 x 256, floats" 1.2 "$fp32_variants" --model 14m --batch 8 --seq 256
        ;;
    threads) scale_threads ;;
    processes) scale_processes ;;
    memory) measure_memory ;;
    sample) measure_sample ;;
    tokenizer) measure_tokenizer ;;
    esac
}

rows=$all_rows
if [ $# -eq 2 ] && [ "$1" = --only ]; then
    rows=${2//,/ }
elif [ $# -gt 0 ]; then
    die "usage: scripts/bench_trainer.sh [--only ROW,...] with rows of: $all_rows"
fi
for row in $rows; do
    case " $all_rows " in *" $row "*) ;; *) die "there is no row $row, but: $all_rows" ;; esac
done
[ -x "$bench" ] || die "$bench is missing: make build"
case " $rows " in *" sample "* | *" tokenizer "*) [ -x "$pelago" ] || die "$pelago is missing: make build" ;; esac
backend='' value='' verdict='' reached=''
amx=false
if grep -qw amx_bf16 /proc/cpuinfo 2>/dev/null; then amx=true; fi
choose_cores
no_scaling=
[ -n "$pair" ] || no_scaling="less than two cores, or no taskset"
case " $rows " in *" 14m "* | *" 124m"* | *" fp32 "*) find_torch ;; *) python='' torch='' ;; esac
for row in $rows; do run_row "$row"; done
{
    echo
    echo "what|ours|theirs|ratio|bar|verdict|why"
    cat "$table"
} | awk -F'|' 'NF > 1 { printf "%-58s %10s %10s %8s %5s  %-11s %s\n", $1, $2, $3, $4, $5, $6, $7; next } { print }' >&2
exit "$missed"
