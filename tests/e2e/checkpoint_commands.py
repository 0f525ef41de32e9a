#!/usr/bin/env python3
"""checkpoint_commands.py PELAGO LOGITS_DUMP - inspect, export and import as a person uses them.

Round trips keep every value, damage is named, refusals are one sentence with exit code 1 or 2, and no failed command
leaves a file or folder behind. Needs nothing but python3.
"""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

PELAGO, DUMP = (str(Path(p).resolve()) for p in sys.argv[1:3])
MODEL = "model-00000001.safetensors"


def run(*words, code=0):
    """stdout and stderr of a command that must leave with this code."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    assert done.returncode == code, f"{words}: left with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def refused(sentence, *words, code=1):
    """A failing command says this, in one line, and changes nothing around it."""
    before = sorted(temp.rglob("*"))
    out, err = run(PELAGO, *words, code=code)
    assert sentence in err and err.count("\n") == 1 and err.endswith(".\n"), f"{words}: {err}"
    assert sorted(temp.rglob("*")) == before, f"{words} left something behind"
    return out


def tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    return {n: (t["dtype"], t["shape"], data[8 + length:][slice(*t["data_offsets"])]) for n, t in header.items()}


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def round_trips():
    run(DUMP, "make", temp / "c", 2, 64, 4, 2, 96, 97, "-", 5)
    before = json.loads(run(PELAGO, "inspect", temp / "c", "--json")[0])
    assert before["verified"] == "good" and before["step"] == 1 and before["kind"] == "checkpoint"
    assert before["config"]["kv_heads"] == 2 and len(before["tensors"]) == 2 * 9 + 3
    text = run(PELAGO, "inspect", temp / "c")[0]
    assert "all checksums agree" in text and "model.layers.1.mlp.down_proj.weight" in text
    for dtype, size in (("f32", 4), ("bf16", 2)):
        run(PELAGO, "export", temp / "c", "--out", temp / dtype, "--dtype", dtype)
        assert sum(len(t[2]) for t in tensors(temp / dtype / "model.safetensors").values()) == size * before["parameters"]
        assert json.loads((temp / dtype / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
        run(PELAGO, "import", temp / dtype, "--out", temp / f"back-{dtype}")
        run(PELAGO, "inspect", temp / dtype)
        run(PELAGO, "inspect", temp / dtype / "model.safetensors", "--json")
        run(PELAGO, "export", temp / f"back-{dtype}", "--out", temp / f"again-{dtype}", "--dtype", dtype)
        for name in ("model.safetensors", "config.json"):
            assert (temp / dtype / name).read_bytes() == (temp / f"again-{dtype}" / name).read_bytes()
    assert tensors(temp / "c" / MODEL) == tensors(temp / "back-f32" / MODEL.replace("1", "0"))


def refusals():
    refused("cannot be opened: No such file or directory", "export", temp / "none", "--out", temp / "x")
    refused("there is no checkpoint (no file state-*.json)", "export", temp / "f32", "--out", temp / "x")
    refused("there is no checkpoint of step 7", "export", temp / "c", "--out", temp / "x", "--step", 7)
    refused("f32 exists and is not empty", "export", temp / "c", "--out", temp / "f32")
    refused("is bf16 or f32, not 'f16'", "export", temp / "c", "--out", temp / "x", "--dtype", "f16", code=2)
    refused("expected one folder", "export", temp / "c", code=2)
    refused("expected one Hugging Face folder", "import", code=2)
    refused("config.json is not there", "import", temp / "c", "--out", temp / "x")
    refused("is no .safetensors file", "inspect", temp / "f32" / "config.json")
    refused("neither a folder of checkpoints", "inspect", temp)
    refused("cannot be made", "export", temp / "c", "--out", temp / "f32" / "config.json" / "x")
    shutil.copytree(temp / "f32", temp / "biased")
    config = json.loads((temp / "biased" / "config.json").read_text())
    for key, value in (("attention_bias", True), ("hidden_act", "gelu"), ("vocab_size", 98)):
        (temp / "biased" / "config.json").write_text(json.dumps({**config, key: value}))
        refused({"vocab_size": "has the shape [97, 64], expected [98, 64]"}.get(key, f'"{key}"'), "import",
                temp / "biased", "--out", temp / "x")


def tokenizers():
    """A tokenizer that cannot be read, or knows more than the model does, is refused with its file's name."""
    shutil.copytree(temp / "f32", temp / "spoken")
    (temp / "spoken" / "tokenizer.json").write_text("{}")
    refused("tokenizer.json: ", "import", temp / "spoken", "--out", temp / "x")
    refused("spoken: tokenizer.json: ", "sample", temp / "spoken")
    run(PELAGO, "data", "tokenizer", "--kind", "byte", "--out", temp / "spoken" / "tokenizer.json")
    refused("tokenizer.json has 257 tokens, but the model's vocabulary is 97", "import", temp / "spoken", "--out",
            temp / "x")


def damage():
    flip(temp / "c" / MODEL, (temp / "c" / MODEL).stat().st_size - 300)
    sentence = "tensor lm_head.weight is damaged (its checksum differs)"
    refused(sentence, "export", temp / "c", "--out", temp / "x")
    out = run(PELAGO, "inspect", temp / "c", code=1)[0]
    assert out.count("DAMAGED") == 2, out  # at the tensor, and in the last line
    assert json.loads(run(PELAGO, "inspect", temp / "c", "--json", code=1)[0])["verified"] == "damaged"
    flip(temp / "c" / "state-00000001.json", 77)
    refused("state-00000001.json is damaged", "inspect", temp / "c")


with tempfile.TemporaryDirectory() as folder:
    temp = Path(folder)
    round_trips()
    refusals()
    tokenizers()
    damage()
print("ok - inspect, export, import")
