#!/usr/bin/env python3
"""export_vs_transformers.py PELAGO LOGITS_DUMP - exported folders, judged by Hugging Face transformers.

Small models of every kind (tied or not, grouped heads, QK-norm) are exported, loaded by transformers, and must give
the same logits as pelago does, position by position. Then the way back: a folder that transformers saved, in shards
and as one file, is imported, and must give the same logits again. QK-norm is called Qwen3 there; a transformers that is
older than that does the others, and says so. Leaves with 77 (skipped) where torch or transformers is missing (need_extras.py).
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import need_extras  # after what transformers reads when it is imported

numpy, torch, transformers = need_extras.modules("numpy", "torch", "transformers")

PELAGO, DUMP = (str(Path(p).resolve()) for p in sys.argv[1:3])
BATCH, SEQ = 3, 37
# layers, width, heads, kv_heads, hidden, vocabulary, flags (t tied, q QK-norm)
MODELS = [(2, 64, 4, 4, 176, 97, "t"), (3, 96, 6, 2, 128, 131, "-"), (2, 64, 4, 2, 96, 97, "tq"),
          (2, 128, 2, 1, 96, 64, "q")]
VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
DTYPE = "dtype" if VERSION >= (4, 56) else "torch_dtype"  # as from_pretrained calls it
FP32 = 1e-4  # relative difference of the logits: the same arithmetic in another order


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nended with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def ours(folder, backend, tokens, vocab):
    tokens.astype("<i4").tofile(folder / "tokens.bin")
    call(DUMP, "run", folder, backend, BATCH, SEQ, folder / "tokens.bin", folder / "logits.bin")
    return numpy.fromfile(folder / "logits.bin", "<f4").reshape(BATCH, SEQ, vocab)


def load_theirs(folder):
    """transformers' model in float32, and what it said about names that did not fit."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                    **{DTYPE: torch.float32})
    wrong = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if wrong:
        sys.exit(f"{folder}: transformers found {wrong}")
    return model.eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.float().numpy()


def distance(a, b):
    return float(numpy.linalg.norm(a - b) / numpy.linalg.norm(b))


def compare(what, a, b, allowed):
    off = distance(a, b)
    print(f"{'ok' if off <= allowed else 'not ok'} - {what}: relative difference {off:.1e}, allowed {allowed:.1e}")
    return off <= allowed


def check_export(temp, index, shape, checkpoint, tokens):
    """Exports in both types. Returns the verdict, and transformers' model of the rounded weights."""
    name, models = f"model {index} {shape}", {}
    for dtype in ("f32", "bf16"):
        folder = temp / f"hf-{index}-{dtype}"
        call(PELAGO, "export", checkpoint, "--out", folder, "--dtype", dtype)
        models[dtype] = load_theirs(folder)
    exact = logits_of(models["f32"], tokens)
    # bf16 may cost what it costs transformers: the whole model in bf16, against itself in float32.
    bf16 = distance(logits_of(load_theirs(temp / f"hf-{index}-f32").bfloat16(), tokens), exact)
    good = type(models["f32"]).__name__ == ("Qwen3ForCausalLM" if "q" in shape[6] else "LlamaForCausalLM")
    good &= compare(f"{name} exported as f32", ours(checkpoint, "ref", tokens, shape[5]), exact, FP32)
    good &= compare(f"{name} exported as bf16", logits_of(models["bf16"], tokens), exact, bf16)
    good &= compare(f"{name} best back end", ours(checkpoint, "best", tokens, shape[5]), exact, bf16)
    rounded = models["bf16"].state_dict()
    for key, value in models["f32"].state_dict().items():
        if not torch.equal(value.bfloat16().float(), rounded[key]):
            good = False
            print(f"not ok - {name}: {key} as bf16 is not the rounded float")
    return good, models["bf16"]


def check_import(temp, index, shape, model, tokens):
    """What transformers has saved, in many files and in one, and what pelago has exported as bf16."""
    name, good = f"model {index} {shape}", True
    theirs = logits_of(model, tokens)
    folders = {temp / f"hf-{index}-bf16"}
    for shards in ("20KB", "5GB"):
        folders.add(temp / f"saved-{index}-{shards}")
        model.save_pretrained(temp / f"saved-{index}-{shards}", max_shard_size=shards)
    for folder in sorted(folders):
        back = temp / f"back-{folder.name}"
        files = len(list(folder.glob("*.safetensors")))
        call(PELAGO, "import", folder, "--out", back)
        good &= compare(f"{name} imported from {files} files", ours(back, "ref", tokens, shape[5]), theirs, FP32)
        report = json.loads(call(PELAGO, "inspect", back, "--json"))
        good &= report["verified"] == "good" and report["parameters"] == sum(p.numel() for p in model.parameters())
    return good


def check_model(temp, index, shape):
    checkpoint = temp / f"checkpoint-{index}"
    tokens = numpy.random.default_rng(index).integers(0, shape[5], (BATCH, SEQ))
    call(DUMP, "make", checkpoint, *shape, 10 + index)
    exported, model = check_export(temp, index, shape, checkpoint, tokens)
    return check_import(temp, index, shape, model, tokens) and exported


def main():
    results = []
    with tempfile.TemporaryDirectory() as temp:
        for i, shape in enumerate(MODELS):
            if "q" in shape[6] and not hasattr(transformers, "Qwen3ForCausalLM"):
                print(f"left out: model {i} {shape}: transformers {transformers.__version__} has no QK-norm (Qwen3)")
            else:
                results.append(check_model(Path(temp), i, shape))
    sys.exit(0 if results and all(results) else 1)


main()
