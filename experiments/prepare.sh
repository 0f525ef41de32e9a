#!/bin/bash
# experiments/prepare.sh - the texts of the experiments as token files. Takes a few minutes.
#
# Reads ../shared/data where it is there (INDEX.md of that folder says what it holds) and writes to FOLDER (default
# build/experiments): one tokenizer of 2,048 tokens, trained on some of each text, and of every text the token files
# NAME.tok and NAME.valid.tok. What is there already is not made again. Experiments whose text is missing run on
# builtin:tales, and their results say so.
set -euo pipefail
cd "$(dirname "$0")/.."
pelago=${PELAGO:-build/pelago} folder=${FOLDER:-build/experiments} texts=${TEXTS:-../shared/data}
vocab=2048
if [ ! -d "$texts/gutenberg" ]; then
    echo "experiments/prepare.sh: there is no $texts/gutenberg; the experiments will run on builtin:tales" >&2
    exit 0
fi
mkdir -p "$folder"
tokenizer=$folder/tokenizer-$vocab.json
if [ ! -f "$tokenizer" ]; then
    sample=$(mktemp -d)
    trap 'rm -rf "$sample"' EXIT
    for text in gutenberg/train-00 techdocs/train linux-c/train; do
        zstd -dcq "$texts/$text.txt.zst" | head -c 8000000 >"$sample/${text%%/*}.txt" || true
    done
    "$pelago" data tokenizer --vocab $vocab --out "$tokenizer" "$sample"/*.txt
fi
encode() { # NAME TEXT...
    local out=$folder/$1.tok
    shift
    [ -f "$out" ] || "$pelago" data encode --tokenizer "$tokenizer" --out "$out" "$@"
}
encode gutenberg "$texts"/gutenberg/train-0{0,1,2,3}.txt.zst
encode gutenberg.valid "$texts/gutenberg/valid.txt.zst"
for name in techdocs linux-c; do
    encode $name "$texts/$name/train.txt.zst"
    encode $name.valid "$texts/$name/valid.txt.zst"
done
