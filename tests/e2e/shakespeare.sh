#!/bin/sh
# shakespeare.sh PELAGO [TEXT] - a small model learns Shakespeare, character by character, from the first nine tenths of
# the text; on the last tenth its loss must be at most 1.60 nats a character, after at most five minutes of two cores.
#
# TEXT is tinyshakespeare's input.txt (1,115,394 bytes); without it there is nothing to learn: exit code 77, skipped.
set -eu
pelago=$1
text=${2:-$(dirname "$0")/../../../shared/data/tinyshakespeare/input.txt}
if [ ! -f "$text" ]; then
    echo "skipped: there is no $text"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
head -c 1003854 "$text" >"$folder/train.txt"
tail -c +1003855 "$text" >"$folder/valid.txt"
begin=$(date +%s)
"$pelago" train --data "$folder/train.txt" --valid "$folder/valid.txt" --tokenizer char --eval-tokens 200k \
    --layers 4 --width 192 --heads 4 --batch 16 --seq 128 --steps 700 \
    --optimizer muon --lr 4e-3 --lr-floor 0.02 --threads 2 --out "$folder/run"
seconds=$(($(date +%s) - begin))
loss=$("$pelago" eval "$folder/run" --data "$folder/valid.txt" --seq 128 --json |
    sed 's/.*"loss": \([0-9.]*\),.*/\1/')
echo "validation loss $loss nats a character after $seconds s"
awk -v loss="$loss" -v seconds="$seconds" 'BEGIN { exit !(loss > 0.5 && loss <= 1.60 && seconds <= 300) }'
