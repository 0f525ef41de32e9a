#!/usr/bin/env python3
"""Compares pelago's tokens with those of Hugging Face `tokenizers`, id for id.

    tokenizer_vs_hf.py [--pelago build/pelago] [--data FOLDER] [--quick]

1. Every file of text in the data folder (default: ../shared/data beside the repository) with GPT-2's and GPT-NeoX's
   tokenizer and one trained here; decoding must give the file back. --quick takes the small ones only.
2. Made-up documents full of Unicode, white space and added tokens, with tokenizers of many shapes.
3. A tokenizer trained by both on the same text must have the same merges; tokenizers of characters and bytes must agree.

Needs the PyPI package tokenizers (need_extras.py), the program zstd and the data; where one is missing it says so and leaves
with 77: skipped.
"""
import argparse
import array
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

import need_extras

ROOT = Path(__file__).resolve().parent.parent.parent
EOT = "<|endoftext|>"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
SKIPPED = 77
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}", flush=True)
    return good


class Pelago:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *words):
        done = subprocess.run([self.program, "data", *map(str, words)], capture_output=True)
        if done.returncode != 0:
            sys.exit(f"pelago data {' '.join(map(str, words))}: {done.stderr.decode()}")
        return done.stdout

    def encode(self, tokenizer, *texts, threads=None):
        out = self.folder / "ours.tok"
        words = ["--threads", threads] if threads else []
        self.run("encode", "--tokenizer", tokenizer, "--out", out, *words, *texts)
        raw = out.read_bytes()
        width, count = int.from_bytes(raw[12:16], "little"), int.from_bytes(raw[24:32], "little")
        ids = array.array("H" if width == 2 else "I")
        ids.frombytes(raw[96:96 + width * count])
        return ids.tolist()

    def decode(self, tokenizer):
        return self.run("decode", "--tokenizer", tokenizer, self.folder / "ours.tok")


def read_text(path):
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout
    return path.read_bytes()


def split_documents(data):
    """As docs/data.md has it: a line <|endoftext|> ends a document and belongs to none."""
    text = data.decode()
    parts = ("\n" + text).split("\n" + EOT + "\n")
    if parts[-1].endswith("\n" + EOT):
        parts[-1] = parts[-1][:-len(EOT)]
    parts = [part + "\n" if i + 1 < len(parts) else part for i, part in enumerate(parts)]
    parts[0] = parts[0][1:]
    return [part for part in parts if part]


def hugging_face_ids(tokenizer, documents, eot):
    """Token ids of all documents, the end-of-text token after each; in parts, for an Encoding is large."""
    ids, batch, size = [], [], 0
    for i, document in enumerate(documents):
        batch.append(document)
        size += len(document)
        if size > 4 << 20 or i + 1 == len(documents):
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                ids += encoding.ids
                ids.append(eot)
            batch, size = [], 0
    return ids


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return min(len(a), len(b))


def compare(name, ours, theirs, tokenizer):
    if ours == theirs:
        return True
    at = first_difference(ours, theirs)
    context = tokenizer.decode(theirs[max(0, at - 8):at + 8], skip_special_tokens=False)
    return check(False, f"{name}: token {at} is {ours[at:at + 4]}, expected {theirs[at:at + 4]}, near {context!r}")


# ---- 1. all data ----

def all_texts(data, quick):
    """All but what is packed by gzip, which is pictures."""
    files = sorted(f for f in data.rglob("*") if f.is_file() and f.suffix != ".gz")
    return [f for f in files if not quick or f.stat().st_size < 1 << 19]


def compare_data(pelago, data, tokenizers, quick):
    files, total, tokens = all_texts(data, quick), 0, 0
    for path in files:
        text = read_text(path)
        documents = split_documents(text)
        total += len(text)
        for name, (source, theirs) in tokenizers.items():
            start = time.time()
            ours = pelago.encode(source, path)
            expected = hugging_face_ids(theirs, documents, theirs.token_to_id(EOT))
            good = compare(f"{path.relative_to(data)} {name}", ours, expected, theirs)
            # NFC need not give the same bytes back, and decoding puts an end of text on a line of its own.
            if (name != "gpt-neox" or text.isascii()) and not any(EOT in document for document in documents):
                back = pelago.decode(source)
                whole = text if text.endswith(f"{EOT}\n".encode()) else text + f"{EOT}\n".encode()
                good &= check(back == whole, f"{path.relative_to(data)} {name}: decoding does not give the text back")
            tokens += len(expected)
            print(f"{'ok' if good else 'NO':3} {path.relative_to(data)} {name}: {len(ours)} tokens, "
                  f"{time.time() - start:.0f} s", flush=True)
    print(f"1. {len(files)} files with {len(tokenizers)} tokenizers: {total} bytes of text, {tokens} tokens compared")


# ---- 2. made-up documents ----

PARTS = ["'s", "'S", "'ll", "'re", "'ſ", "''", "don't", "I'VE", " ", "  ", "   ", "\n", "\r\n", "\t", "\n\n", " \n ", "\u00a0",
         "\u0085", "\u2003", "\u3000", "\u180e", "\u200b", "\x1c", "a", "Hello", " world", "word", "X", "1", "12", "1234567",
         "٣٤", "½", "Ⅷ", "²", ".", "...", "?!", "—", "“quote”", "é", "e\u0301", "\u0301", "\u0344", "ﬁ", "Å", "A\u030a", "\u212b",
         "q\u0323\u0307", "q\u0307\u0323", "각", "\u1100\u1161\u11a8", "\uac00\u11a8", "日本語", "中文,", "हिन्दी", "ไทย", "עברית",
         "🙂", "👩‍👩‍👧", "\U0001e030", "\U00016121", "𝔸", "\ud7ff", "\ue000", "\U0010ffff", "\u0958", "\u2126",
         "\ufb2c", "\u09c7\u09be", "x" * 70, "-" * 200, "=" * 33, EOT, "<|", "|>", "<|endoftext", "<x>", " <y> ", "<y>", "  <z>  ",
         "ABC", "é<w>", "e\u0301<w>", "_", "\x00", "\x7f", "\\", "\"", "<|padding|>", "|||IP_ADDRESS|||"]


def random_documents(seed, count):
    print(f"2. made-up documents, seed {seed}")
    r = random.Random(seed)
    documents = ["".join(PARTS), "".join(reversed(PARTS)), *PARTS]
    for _ in range(count):
        documents.append("".join(r.choice(PARTS) for _ in range(r.randint(1, 40))))
    codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    for _ in range(count // 4):
        documents.append("".join(chr(r.choice(codes)) + r.choice(["", " ", "a", "\u0301"]) for _ in range(40)))
    for i in range(0, 0x30000, 64):
        documents.append(" ".join(chr(c) for c in range(i, i + 64) if not 0xD800 <= c < 0xE000))
    return [d for d in documents if d]


def added(content, number, **flags):
    base = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}
    return {**base, **flags}


def shapes(base):
    """Variants of one tokenizer.json: (name, JSON)."""
    n = len(base["model"]["vocab"])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    def variant(**changes):
        copy = json.loads(json.dumps(base))
        copy["model"].update(changes.pop("model", {}))
        copy["added_tokens"] += changes.pop("added", [])
        copy.update(changes)
        return copy

    def sequence(*parts):
        return {"type": "Sequence", "pretokenizers": list(parts)}

    pairs = [m.split(" ") for m in base["model"]["merges"]]
    yield "plain", base
    yield "pairs of merges", variant(model={"merges": pairs})
    yield "NFC", variant(normalizer={"type": "NFC"})
    yield "prefix space", variant(pre_tokenizer={**level, "add_prefix_space": True, "use_regex": True})
    yield "prefix space, no regex", variant(pre_tokenizer={**level, "add_prefix_space": True})
    yield "no regex", variant(pre_tokenizer=level)
    yield "Llama 3", variant(pre_tokenizer=sequence(split({"Regex": LLAMA3}), level), model={"ignore_merges": True})
    yield "Qwen 2", variant(pre_tokenizer=sequence(split({"Regex": QWEN2}), level), normalizer={"type": "NFC"})
    yield "Llama 3, removed", variant(pre_tokenizer=sequence(split({"Regex": LLAMA3}, "Removed", True), level))
    yield "digits", variant(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True},
                                                   {**level, "use_regex": True}))
    yield "runs of digits", variant(pre_tokenizer=sequence({"type": "Digits", "individual_digits": False},
                                                           {**level, "use_regex": True}))
    yield "string", variant(pre_tokenizer=sequence(split({"String": "."}), split({"String": "wor"}), level))
    yield "prefix after split", variant(pre_tokenizer=sequence(split({"Regex": r"\p{N}"}),
                                                               {**level, "add_prefix_space": True}))
    yield "added tokens", variant(normalizer={"type": "NFC"}, added=[
        added("<x>", n), added("<y>", n + 1, lstrip=True), added("<z>", n + 2, lstrip=True, rstrip=True),
        added("<y> ", n + 3, special=False), added("\u00e9<w>", n + 4, normalized=True, special=False),
        added("  ", n + 5, normalized=True, special=False), added("   ", n + 6, normalized=True, special=False),
        added("q\u0307\u0323", n + 7, normalized=True, special=False), added("Hello", n + 8, special=False)])


def only_old_characters(documents):
    """pcre2 may know fewer letters than Hugging Face: other patterns than GPT-2's are compared on what all know."""
    is_old = unicodedata.ucd_3_2_0.category
    return ["".join(c for c in d if is_old(c) != "Cn") or "-" for d in documents]


def compare_shapes(pelago, base, all_documents, folder, Tokenizer):
    old_documents = only_old_characters(all_documents)
    for name, shape in shapes(base):
        path = folder / "shape.json"
        path.write_text(json.dumps(shape))
        documents = old_documents if "Regex" in json.dumps(shape["pre_tokenizer"]) else all_documents
        (folder / "made-up.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
        theirs = Tokenizer.from_file(str(path))
        expected = hugging_face_ids(theirs, documents, 0)
        ours = pelago.encode(path, folder / "made-up.jsonl")
        if ours != expected:
            for document in documents:  # one document tells more than a million tokens
                (folder / "one.jsonl").write_text(json.dumps({"text": document}) + "\n")
                want = theirs.encode(document, add_special_tokens=False).ids + [0]
                got = pelago.encode(path, folder / "one.jsonl")
                if want != got:
                    check(False, f"{name}: {document!r} gives {got}, expected {want}")
                    break
            else:
                check(False, f"{name}: the documents agree one by one, but not together")
        print(f"{'ok' if ours == expected else 'NO':3} {name}: {len(documents)} documents, {len(expected)} tokens", flush=True)


# ---- 3. training ----

def compare_training(pelago, folder, text, tk):
    path = folder / "train.txt"
    path.write_text(text)
    pelago.run("tokenizer", "--vocab", 3000, "--out", folder / "bpe.json", path)
    pelago.run("tokenizer", "--vocab", 3000, "--threads", 1, "--out", folder / "bpe1.json", path)
    check((folder / "bpe.json").read_bytes() == (folder / "bpe1.json").read_bytes(),
          "one thread makes another tokenizer than many")
    ours = json.loads((folder / "bpe.json").read_text())["model"]
    theirs = tk.Tokenizer(tk.models.BPE())
    theirs.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator([text], tk.trainers.BpeTrainer(
        vocab_size=3000, min_frequency=2, special_tokens=[EOT], show_progress=False,
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(theirs.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    good = check(ours["merges"] == merges, "training: the merges differ from Hugging Face's")
    good &= check(ours["vocab"] == model["vocab"], "training: the vocabulary differs from Hugging Face's")
    print(f"{'ok' if good else 'NO':3} 3. training: {len(merges)} merges")
    for kind in ("char", "byte"):
        pelago.run("tokenizer", "--kind", kind, "--out", folder / "k.json", *([path] if kind == "char" else []))
        loaded = tk.Tokenizer.from_file(str(folder / "k.json"))
        expected = loaded.encode(text, add_special_tokens=False).ids + [loaded.token_to_id(EOT)]
        good = compare(kind, pelago.encode(folder / "k.json", path), expected, loaded)
        good &= check(loaded.decode(expected[:-1]) == text, f"{kind}: Hugging Face does not decode it")
        print(f"{'ok' if good else 'NO':3} tokenizer of kind {kind}: {loaded.get_vocab_size()} tokens")


def gpt2_of(folder, tk):
    t = tk.Tokenizer(tk.models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    t.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tk.decoders.ByteLevel()
    t.add_special_tokens([EOT])
    return t


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pelago", default=str(ROOT / "build" / "pelago"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tk, = need_extras.modules("tokenizers")
    if shutil.which("zstd") is None:
        print("skipped: the program zstd is missing")
        return SKIPPED
    if not args.data.is_dir():
        print(f"skipped: there is no {args.data}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pelago = Pelago(args.pelago, folder)
        text = (args.data / "tinyshakespeare" / "input.txt").read_text()
        compare_training(pelago, folder, text, tk)
        pelago.run("tokenizer", "--vocab", 4096, "--out", folder / "own.json", args.data / "gutenberg" / "valid.txt.zst")
        base = json.loads((folder / "own.json").read_text())
        compare_shapes(pelago, base, random_documents(args.seed, 300 if args.quick else 2000), folder, tk.Tokenizer)
        sources = args.data / "tokenizers"
        compare_data(pelago, args.data, {
            "gpt2": (sources / "gpt2", gpt2_of(sources / "gpt2", tk)),
            "gpt-neox": (sources / "gpt-neox", tk.Tokenizer.from_file(str(sources / "gpt-neox" / "tokenizer.json"))),
            "own": (folder / "own.json", tk.Tokenizer.from_file(str(folder / "own.json"))),
        }, args.quick)
    print("all tokens agree" if failures == 0 else f"{failures} comparisons failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
