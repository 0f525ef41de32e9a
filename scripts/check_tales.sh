#!/bin/bash
# scripts/check_tales.sh - does a better model get a better loss on builtin:tales? Takes about an hour and a half of two cores.
#
# Trains 1m, 5m and 14m on TOKENS (default 10M) tokens each with their default settings: each must come out at least 3%
# below the one before, in bits a byte, and 1m below a Kneser-Ney 5-gram on its own tokens. FOLDER (default
# build/tales) keeps the runs; a finished one is not trained again. The last line counts checks.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release
folder=${FOLDER:-build/tales} tokens=${TOKENS:-10M} seed=${SEED:-1}
[[ $tokens =~ ^[1-9][0-9]*M$ ]] || { echo "check_tales.sh: TOKENS is $tokens, expected millions such as 10M" >&2; exit 2; }
mkdir -p "$folder"
passed=0 failed=0
verdict() {
    if awk "BEGIN { exit !($2) }"; then
        echo "ok      $1" && passed=$((passed + 1))
    else
        echo "FAILED  $1" && failed=$((failed + 1))
    fi
}

declare -A bits
for model in 1m 5m 14m; do
    log=$folder/$model.txt
    if ! grep -q '^validation' "$log" 2>/dev/null; then
        rm -rf "${folder:?}/$model"
        build/pelago train --model $model --data builtin:tales --tokens "$tokens" --seed "$seed" --eval-every 0 \
            --eval-tokens 400k --out "$folder/$model" | tee "$log"
    fi
    bits[$model]=$(sed -n 's/^validation.* \([0-9.]*\) bits a byte.*/\1/p' "$log")
done

echo "Kneser-Ney 5-gram on the tokens of 1m"
cc -O2 -std=gnu11 tests/e2e/kneser_ney.c -lm -o "$folder/kneser_ney"
tokenizer=$(find "$folder/1m" -name 'tokenizer-*.json' | head -n 1)
# A token of 1m is a little over three and a half bytes.
build/pelago data tales --bytes "$((${tokens%M} * 4))M" --seed "$seed" --out "$folder/train.txt"
build/pelago data tales --bytes 1M --seed "$seed" --split valid --out "$folder/valid.txt"
for split in train valid; do
    build/pelago data encode --tokenizer "$tokenizer" --out "$folder/$split.tok" "$folder/$split.txt"
done
"$folder/kneser_ney" -n 5 -t "${tokens%M}000000" "$folder/train.tok" "$folder/valid.tok" | tee "$folder/ngram.txt"
nats=$(sed -n 's/.*"nats_per_byte": \([0-9.]*\).*/\1/p' "$folder/ngram.txt")
bits[ngram]=$(awk "BEGIN { print $nats / log(2) }")

echo
for name in ngram 1m 5m 14m; do printf '%-6s %.4f bits a byte\n' "$name" "${bits[$name]}"; done
trained=$(sed -n 's/.*"train_tokens": \([0-9]*\).*/\1/p' "$folder/ngram.txt")
verdict "the 5-gram has learned from as many tokens as the models" "$trained == ${tokens%M}000000"
verdict "1m beats the 5-gram" "${bits[1m]} < ${bits[ngram]}"
verdict "5m is at least 3% below 1m" "${bits[5m]} <= 0.97 * ${bits[1m]}"
verdict "14m is at least 3% below 5m" "${bits[14m]} <= 0.97 * ${bits[5m]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
