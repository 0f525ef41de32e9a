#!/usr/bin/env python3
"""The whole model against PyTorch: the loss and every gradient, then 200 steps of training.

model_vs_torch.py PROGRAM [grad|train]   PROGRAM is the built model_dump.c; exit 77 (skipped) without PyTorch

PyTorch's side is a Llama in plain operations with Hugging Face's conventions, in double precision for gradients: its
own rounding then plays no part. Bounds are relative: the norm of a tensor's difference over the norm of the tensor.
Float back ends are judged where weights are several times larger than at the start of training, so that attention is
far from even; bfloat16 ones at the start of training, because large weights amplify the rounding of their inputs
beyond 2e-2 in any implementation (PyTorch's autocast is off by more than we are at most scales tried).
"""
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from need_torch import torch

F = torch.nn.functional
THETA, EPS = 10000.0, 1e-5
BF16 = ("bf16", "amx", "cuda")
GRAD_BOUND = {False: 1e-4, True: 2e-2}
LOSS_BOUND = {False: 1e-5, True: 5e-3}
CURVE_BOUND = {False: 1e-4, True: 1e-2}
STEPS, PEAK, FLOOR, DECAY, CLIP = 200, 3e-3, 0.1, 0.1, 1.0

SMALL = dict(layers=2, width=64, heads=4, kv_heads=4, head_dim=16, hidden=128, vocab=97, tied=1, qk_norm=0, batch=2,
             seq=24, passes=1, z_loss=0.0, ignored=0.0, stir=4.0, seed=1)
GRAD_CASES = {
    "tied": dict(),
    "untied, z-loss": dict(tied=0, z_loss=1e-2, seed=2),
    "grouped queries": dict(heads=6, kv_heads=2, ignored=0.3, seed=3),
    "QK-norm": dict(qk_norm=1, seed=4),
    "odd sizes": dict(width=48, heads=3, kv_heads=3, hidden=100, batch=3, seq=13, seed=5),
    "odd sizes, all options": dict(layers=3, width=48, heads=3, kv_heads=1, hidden=100, tied=0, qk_norm=1, batch=1,
                                   seq=37, passes=2, z_loss=1e-3, ignored=0.2, seed=6),
    "head wider than width / heads": dict(width=40, heads=2, kv_heads=1, head_dim=48, hidden=36, seq=33, seed=7),
    "one token": dict(layers=1, batch=1, seq=1, seed=8),
    "two passes": dict(passes=2, ignored=0.5, z_loss=1e-4, seed=9),
    "slice of 14m": dict(width=384, heads=6, kv_heads=6, head_dim=64, hidden=1024, vocab=1024, batch=1, seq=130,
                         stir=2.0, seed=10),
}
TRAIN_CASES = {
    "tied": dict(batch=4, seq=32, stir=0.0, seed=11),
    "untied, grouped, QK-norm, z-loss": dict(width=48, heads=3, kv_heads=1, hidden=100, tied=0, qk_norm=1, batch=2,
                                             seq=32, passes=2, z_loss=1e-3, stir=0.0, seed=12),
}


# ---- the model in PyTorch ----

def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rotate(x):
    """x (B, H, T, D): pairs are value i and i + D/2."""
    t, d = x.shape[-2:]
    angle = torch.arange(t, dtype=torch.float64)[:, None] * THETA ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(p, pre, case, x):
    b, t, _ = x.shape
    q, k, v = (F.linear(x, p[f"{pre}{n}_proj.weight"]).view(b, t, -1, case["head_dim"]).transpose(1, 2) for n in "qkv")
    if case["qk_norm"]:
        q, k = norm(q, p[pre + "q_norm.weight"]), norm(k, p[pre + "k_norm.weight"])
    group = case["heads"] // case["kv_heads"]
    q, k, v = rotate(q), rotate(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ k.transpose(-1, -2) / math.sqrt(case["head_dim"])
    score = score.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    y = (score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
    return F.linear(y, p[pre + "o_proj.weight"])


def losses_of(p, case, tokens, targets):
    """Sum of the counted tokens' losses, and of z times the square of log Z."""
    x = F.embedding(tokens, p["model.embed_tokens.weight"])
    for i in range(case["layers"]):
        pre = f"model.layers.{i}."
        x = x + attention(p, pre + "self_attn.", case, norm(x, p[pre + "input_layernorm.weight"]))
        y = norm(x, p[pre + "post_attention_layernorm.weight"])
        h = F.silu(F.linear(y, p[pre + "mlp.gate_proj.weight"])) * F.linear(y, p[pre + "mlp.up_proj.weight"])
        x = x + F.linear(h, p[pre + "mlp.down_proj.weight"])
    head = p["model.embed_tokens.weight" if case["tied"] else "lm_head.weight"]
    logits = F.linear(norm(x, p["model.norm.weight"]), head).flatten(0, 1)
    log_z = logits.logsumexp(-1)[targets.flatten() >= 0]
    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=-1, reduction="sum")
    return loss, case["z_loss"] * log_z.pow(2).sum()


# ---- our side ----

def call(program, mode, folder, backend, case, **more):
    keys = {k: v for k, v in {**case, **more}.items() if k != "ignored"}
    subprocess.run([program, mode, folder, backend, *(f"{k}={v}" for k, v in keys.items())], check=True)


def read(folder, name, dtype):
    return torch.frombuffer(bytearray(Path(folder, name).read_bytes()), dtype=dtype)


def tensors(folder, name):
    """{tensor's name: (values, decayed)}"""
    block, out = read(folder, name, torch.float32), {}
    for line in Path(folder, "table").read_text().splitlines():
        key, rows, cols, offset, decayed = line.split()
        rows, cols, offset = int(rows), int(cols), int(offset)
        values = block[offset:offset + rows * cols]
        out[key] = (values if key.endswith("norm.weight") else values.view(rows, cols)), decayed == "1"
    return out


def write_batches(folder, tokens, targets):
    for name, ids in (("tokens", tokens), ("targets", targets)):
        Path(folder, name).write_bytes(ids.to(torch.int32).numpy().tobytes())


# ---- comparisons ----

def say(good, text):
    print(f"{'ok' if good else 'not ok'} - {text}", flush=True)
    return good


def reference_gradient(case, start, tokens, targets):
    p = {k: v.double().requires_grad_() for k, (v, _) in start.items()}
    sums = []
    for i in range(case["passes"]):
        loss, z = losses_of(p, case, tokens[i], targets[i])
        ((loss + z) / tokens.numel()).backward()
        sums.append(loss.item())
    return sums, {k: v.grad for k, v in p.items()}


def compare_gradients(folder, backend, what, want_losses, want):
    low = backend in BF16
    losses, grads = read(folder, "losses", torch.float64), tensors(folder, "grads")
    loss_error = max(abs(g - w) / abs(w) for g, w in zip(losses.tolist(), want_losses))
    # A gradient that is zero (attention over one token has no choice) is measured by that of the whole model.
    whole = math.sqrt(sum(w.pow(2).sum().item() for w in want.values()))
    errors = {k: (grads[k][0].double() - w).norm().item() / (w.norm().item() or whole) for k, w in want.items()}
    # An error may not be a number; then no comparison may call it small.
    bad = [k for k, e in errors.items() if not e <= GRAD_BOUND[low]]
    worst = max(errors, key=lambda k: math.inf if math.isnan(errors[k]) else errors[k])
    good = not bad and loss_error <= LOSS_BOUND[low] and grads.keys() == want.keys()
    text = f"{what}, {backend}: loss {loss_error:.1e}, {len(want)} gradients, worst {errors[worst]:.1e} ({worst})"
    return say(good, text + ("; too far: " + ", ".join(f"{k} {errors[k]:.1e}" for k in bad) if bad else ""))


def check_gradients(program, backends):
    good = True
    for what, changes in GRAD_CASES.items():
        case = {**SMALL, **changes}
        generator = torch.Generator().manual_seed(case["seed"])
        shape = (case["passes"], case["batch"], case["seq"])
        tokens = torch.randint(case["vocab"], shape, generator=generator)
        targets = torch.randint(case["vocab"], shape, generator=generator)
        targets[torch.rand(shape, generator=generator) < case["ignored"]] = -1
        with tempfile.TemporaryDirectory() as folder:
            write_batches(folder, tokens, targets)
            want = {}
            for backend in backends:
                stir = 1.0 if backend in BF16 else case["stir"]
                for recompute in (0, 1):
                    call(program, "grad", folder, backend, {**case, "stir": stir}, recompute=recompute)
                    if stir not in want:  # parameters do not depend on the back end
                        want[stir] = reference_gradient(case, tensors(folder, "params"), tokens, targets)
                    note = what + (", recomputed" if recompute else "")
                    good &= compare_gradients(folder, backend, note, *want[stir])
    return good


def learning_rate(step, warmup):
    if step < warmup:
        return PEAK * step / warmup
    return PEAK * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup))))


def reference_curve(case, start, tokens, targets, warmup):
    p = {k: v.clone().requires_grad_() for k, (v, _) in start.items()}
    groups = [{"params": [p[k] for k in p if start[k][1] == decayed], "weight_decay": DECAY if decayed else 0.0}
              for decayed in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95), eps=1e-8)
    curve, count = [], tokens[0].numel()
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for i in range(case["passes"]):
            loss, z = losses_of(p, case, tokens[step, i], targets[step, i])
            ((loss + z) / count).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1, warmup)
        optimizer.step()
        curve.append(total / count)
    return curve


def stream(case):
    """A text with something to learn: each token is mostly a fixed function of the one before."""
    generator = torch.Generator().manual_seed(case["seed"])
    count, vocab = STEPS * case["passes"] * case["batch"] * (case["seq"] + 1), case["vocab"]
    after = torch.randperm(vocab, generator=generator).tolist()
    surprise = torch.rand(count, generator=generator).tolist()
    fresh = torch.randint(vocab, (count,), generator=generator).tolist()
    text = [0]
    for i in range(1, count):
        text.append(fresh[i] if surprise[i] < 0.2 else after[text[-1]])
    rows = torch.tensor(text).view(STEPS, case["passes"], case["batch"], case["seq"] + 1)
    return rows[..., :-1].contiguous(), rows[..., 1:].contiguous()


def check_training(program, backends):
    good, warmup = True, STEPS // 10
    for what, changes in TRAIN_CASES.items():
        case = {**SMALL, **changes}
        tokens, targets = stream(case)
        more = dict(steps=STEPS, lr=PEAK, floor=FLOOR, decay=DECAY, clip=CLIP, warmup=warmup * tokens[0].numel())
        with tempfile.TemporaryDirectory() as folder:
            write_batches(folder, tokens, targets)
            want = None
            for backend in backends:
                for recompute in (0, 1) if backend != "ref" else (0,):
                    call(program, "train", folder, backend, case, recompute=recompute, **more)
                    if want is None:
                        want = reference_curve(case, tensors(folder, "params"), tokens, targets, warmup)
                    got = read(folder, "losses", torch.float64).tolist()
                    errors = [abs(g - w) / w for g, w in zip(got, want)]
                    fell = want[-1] < 0.7 * want[0]  # a curve that stays flat would prove little
                    close = all(e <= CURVE_BOUND[backend in BF16] for e in errors)
                    good &= say(close and fell and len(got) == STEPS,
                                f"{STEPS} steps, {what}{', recomputed' if recompute else ''}, {backend}: loss "
                                f"{got[0]:.4f} to {got[-1]:.4f}, PyTorch {want[-1]:.4f}, furthest {max(errors):.1e}")
    return good


def main():
    if len(sys.argv) not in (2, 3) or (len(sys.argv) == 3 and sys.argv[2] not in ("grad", "train")):
        print(__doc__)
        return 2
    program, only = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else None
    torch.set_num_threads(1)  # small matrices, and other tests run beside this one
    listing = subprocess.run([program, "backends"], check=True, stdout=subprocess.PIPE, universal_newlines=True)
    backends = listing.stdout.split()
    good = only == "train" or check_gradients(program, backends)
    return 0 if (only == "grad" or check_training(program, backends)) and good else 1


if __name__ == "__main__":
    sys.exit(main())
