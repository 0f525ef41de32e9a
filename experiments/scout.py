#!/usr/bin/env python3
"""Many settings at once on one GPU with PyTorch, to know where to look. A scout: its figures are no results.

scout.py --train FILE.tok --valid FILE.tok --rows FILE.json [--model 1m] [--tokens-per-param 20] [--out FILE.jsonl] [--cpu]

FILE.json is a list of rows, each {"name", "learners", "inner_lr", "outer_lr", "outer_mu", ...} (DEFAULTS below has all keys). The
rows are trained side by side as 8 replicas each, 8 sequences a replica and step, one stack of tensors: a learner of a row with M
learners is 8 / M replicas that share their gradients, so that `data_parallel` is simply one learner. Model, schedule, AdamW, Muon,
fragments, overlap, RDA, rebase and the outer step are written down from docs/merge.md and docs/training.md anew, without clocks
or faults, and with those codecs that may change what is learned: int4 and int2 ("up", "down": bits) and top-k ("topk": values of
4096, up), all with feedback, everything else fp32: what differs from `pelago sim --experiment` in the fourth digit is not looked at
here; with top-k it has been the first (11% above without it, where pelago's own runs were 17% above).
"""
import argparse
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F

DEFAULTS = {"name": "", "learners": 1, "inner_lr": 0.004, "outer_lr": 0.7, "outer_mu": 0.5, "mu_warmup": 0, "decay": 0.0,
            "floor": 0.1, "merge": "rda", "nesterov": True, "topk": 0, "feedback_decay": 0.95, "up": 0, "down": 0}
CHUNK, BLOCK = 4096, 256
MODELS = {"1m": (4, 128, 4, 352, 2048), "5m": (5, 256, 4, 704, 4096), "14m": (6, 384, 6, 1024, 8192)}
LAYERS, WIDTH, HEADS, HIDDEN, VOCAB = MODELS["1m"]  # choose_model() sets these, HEAD, TENSORS and PARAMS
SEQ, REPLICAS, FRAGMENTS, OVERLAP = 256, 8, 24, 2


def read_tokens(path):
    """The ids of a token file (src/data/tokens.h), which may be cut short."""
    with open(path, "rb") as f:
        head = f.read(96)
    if head[:8] != b"PELAGOTK" or head[12] != 2:
        raise SystemExit(f"{path}: no file of 2-byte tokens")
    return np.memmap(path, dtype=np.uint16, mode="r", offset=96)[:int.from_bytes(head[24:32], "little")]


def shapes():
    """Name, rows, columns, group of each tensor; products are x W^T."""
    yield "embed", VOCAB, WIDTH, "embed"
    for n in range(LAYERS):
        yield f"{n}.norm1", 1, WIDTH, "norm"
        for name in ("q", "k", "v", "o"):
            yield f"{n}.{name}", WIDTH, WIDTH, "matrix"
        yield f"{n}.norm2", 1, WIDTH, "norm"
        yield f"{n}.gate", HIDDEN, WIDTH, "matrix"
        yield f"{n}.up", HIDDEN, WIDTH, "matrix"
        yield f"{n}.down", WIDTH, HIDDEN, "matrix"
    yield "norm", 1, WIDTH, "norm"


def choose_model(model):
    global LAYERS, WIDTH, HEADS, HIDDEN, VOCAB, HEAD, TENSORS, PARAMS
    LAYERS, WIDTH, HEADS, HIDDEN, VOCAB = MODELS[model]
    HEAD, TENSORS, PARAMS = WIDTH // HEADS, [], 0
    for name, rows, cols, group in shapes():
        TENSORS.append((name, rows, cols, group, PARAMS))
        PARAMS += rows * cols


def fragments():
    """Slices (begin, end, group) by fragment: tensors cut by rows where too large, largest first into the emptiest."""
    limit, parts = PARAMS / FRAGMENTS, []
    for _, rows, cols, group, at in TENSORS:
        pieces = math.ceil(rows * cols / limit)
        for i in range(pieces):
            a, b = rows * i // pieces, rows * (i + 1) // pieces
            parts.append((at + a * cols, at + b * cols, group))
    bins = [[0, []] for _ in range(FRAGMENTS)]
    for part in sorted(parts, key=lambda x: x[0] - x[1]):
        least = min(bins, key=lambda x: x[0])
        least[0] += part[1] - part[0]
        least[1].append(part)
    return [x[1] for x in bins]


def first_values(seed, device):
    g = torch.Generator().manual_seed(seed)
    flat = torch.empty(PARAMS)
    for name, rows, cols, group, at in TENSORS:
        std = 0.02 / math.sqrt(2 * LAYERS) if name.endswith((".o", ".down")) else 0.02
        flat[at:at + rows * cols] = torch.ones(cols) if group == "norm" else torch.randn(rows * cols, generator=g) * std
    return flat.to(device)


def rope_tables(device):
    angle = torch.arange(SEQ, device=device).float()[:, None] * 10000 ** (-torch.arange(0, HEAD, 2, device=device).float() / HEAD)
    return angle.cos(), angle.sin()


def turn(x, cos, sin):
    a, b = x[..., :HEAD // 2], x[..., HEAD // 2:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    score = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
    return score.masked_fill(torch.ones(SEQ, SEQ, device=q.device).triu(1).bool(), -math.inf).softmax(-1) @ v


def losses(flat, x, y, cos, sin):
    """Mean loss of each of the S models in flat [S, PARAMS] on its sequences x, y [S, B, SEQ]."""
    s, b, _ = x.shape
    kind = torch.bfloat16
    w = {name: flat[:, at:at + rows * cols].view(s, rows, cols).to(kind) for name, rows, cols, _, at in TENSORS}
    cos, sin = cos.to(kind), sin.to(kind)

    def norm(h, g):
        f = h.float()
        return ((f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)) * g.float()).to(kind)

    def heads(z, name):
        return torch.bmm(z, w[name].transpose(1, 2)).view(s * b, SEQ, HEADS, HEAD).transpose(1, 2)

    h = torch.gather(w["embed"], 1, x.reshape(s, -1, 1).expand(-1, -1, WIDTH))
    for n in range(LAYERS):
        z = norm(h, w[f"{n}.norm1"])
        a = attend(turn(heads(z, f"{n}.q"), cos, sin), turn(heads(z, f"{n}.k"), cos, sin), heads(z, f"{n}.v"))
        h = h + torch.bmm(a.transpose(1, 2).reshape(s, b * SEQ, WIDTH), w[f"{n}.o"].transpose(1, 2))
        z = norm(h, w[f"{n}.norm2"])
        u = F.silu(torch.bmm(z, w[f"{n}.gate"].transpose(1, 2))) * torch.bmm(z, w[f"{n}.up"].transpose(1, 2))
        h = h + torch.bmm(u, w[f"{n}.down"].transpose(1, 2))
    logits = torch.bmm(norm(h, w["norm"]), w["embed"].transpose(1, 2)).float()
    return F.cross_entropy(logits.view(-1, VOCAB), y.reshape(-1), reduction="none").view(s, -1).mean(1)


def adamw(p, g, m, v, decays, lr, clip, step):
    g = g * clip
    m.lerp_(g, 0.1)
    v.lerp_(g * g, 0.01)
    p.mul_(1 - lr * 0.1 * decays)
    p.sub_(lr / (1 - 0.9 ** step) * m / (v.sqrt() / (1 - 0.99 ** step) ** 0.5 + 1e-8))


def muon_matrix(p, g, m, lr, rows, cols):
    """One matrix of every model: p, g, m [S, rows, cols], lr [S, 1, 1]."""
    m.lerp_(g, 0.05)
    x = (0.95 * m + 0.05 * g).bfloat16()
    if rows > cols:
        x = x.transpose(1, 2)
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        a = torch.bmm(x, x.transpose(1, 2))
        x = 3.4445 * x + torch.bmm(-4.775 * a + 2.0315 * torch.bmm(a, a), x)
    if rows > cols:
        x = x.transpose(1, 2)
    p.mul_(1 - lr * 0.1).sub_(lr * 0.2 * math.sqrt(max(rows, cols)) * x.float())


def top_values(x, k):
    """Of each chunk the k largest, as one of two magnitudes with its sign (docs/codecs.md)."""
    out = torch.zeros_like(x)
    for at in range(0, x.shape[1], CHUNK):
        part = x[:, at:at + CHUNK]
        count = -(-part.shape[1] * k // CHUNK)
        size, place = part.abs().topk(count, dim=1)
        upper = size >= size.mean(1, keepdim=True)
        high = (size * upper).sum(1, keepdim=True) / upper.sum(1, keepdim=True)
        low = (size * ~upper).sum(1, keepdim=True) / (~upper).sum(1, keepdim=True).clamp(min=1)
        value = torch.where(upper, high, low) * part.gather(1, place).sign()
        out[:, at:at + CHUNK].scatter_(1, place, value)
    return out


def in_bits(x, bits):
    """int4 or int2 and back (docs/codecs.md)."""
    length = x.shape[-1]
    blocks = F.pad(x, (0, -length % BLOCK)).unflatten(-1, (-1, BLOCK))
    if bits == 4:
        scale = (blocks.abs().amax(-1, keepdim=True) / 7).clamp(min=1e-30)
        out = (blocks / scale).round() * scale
    else:
        filled = F.pad(torch.ones_like(x), (0, -length % BLOCK)).unflatten(-1, (-1, BLOCK)).sum(-1, keepdim=True)
        scale = 1.25 * blocks.abs().sum(-1, keepdim=True) / filled
        out = torch.where(blocks.abs() >= scale, 1.5 * scale, 0.5 * scale) * torch.where(blocks < 0, -1.0, 1.0)
    return out.flatten(-2)[..., :length]


class Outer:
    """What the syncers of all rows hold, and one round of one fragment."""

    def __init__(self, rows, first, device):
        count = len(rows)
        self.rows, self.theta = rows, first.repeat(count, 1)
        self.anchor, self.momentum = self.theta.clone(), torch.zeros_like(self.theta)
        self.rda = torch.tensor([r["merge"] == "rda" for r in rows], device=device).view(count, 1)
        self.outer = torch.tensor([r["learners"] > 1 for r in rows], device=device).view(count, 1)
        self.ahead = torch.tensor([float(r["nesterov"]) for r in rows], device=device).view(count, 1)
        self.versions = [0] * FRAGMENTS
        self.coded = [i for i, r in enumerate(rows) if r["topk"] > 0 or r["up"] > 0]
        self.rest = {i: torch.zeros(REPLICAS, first.numel(), device=device) for i in self.coded}

    def send(self, delta, a, b):
        """What arrives of the changes of a slice, in place; the rest waits for the next round."""
        for i in self.coded:
            row, rest = self.rows[i], self.rest[i]
            keep = row["feedback_decay"] if row["topk"] else 1
            x = delta[i] + keep * rest[:, a:b]
            got = top_values(x, row["topk"]) if row["topk"] else in_bits(x, row["up"])
            rest[:, a:b] = x - got
            delta[i] = got

    def tell(self, a, b):
        """What learners hear of the new values: what is left out now is part of the next difference."""
        told = self.theta[:, a:b].clone()
        for i, row in enumerate(self.rows):
            if row["down"]:
                told[i] = self.anchor[i, a:b] + in_bits(self.theta[i, a:b] - self.anchor[i, a:b], row["down"])
        self.anchor[:, a:b] = torch.where(self.outer, told, self.anchor[:, a:b])

    def merge(self, delta, group):
        mean = delta.mean(1)
        if group != "matrix":
            return mean
        length = delta.norm(dim=2, keepdim=True)
        way = (delta / (length + 1e-20)).mean(1)
        return torch.where(self.rda, way / (way.norm(dim=1, keepdim=True) + 1e-20) * length.mean(1), mean)

    def round(self, p, slices, flat, progress):
        """Takes fragment p of all replicas; what to add to each is returned, for later."""
        self.versions[p] += 1
        device = flat.device
        mu = torch.tensor([r["outer_mu"] * min(1, self.versions[p] / (r["mu_warmup"] + 1)) for r in self.rows], device=device)[:, None]
        lr = []
        for r in self.rows:
            left = min(1.0, (1 - progress) / r["decay"]) if r["decay"] > 0 else 1.0
            lr.append(r["outer_lr"] * (r["floor"] + (1 - r["floor"]) * left))
        lr = torch.tensor(lr, device=device)[:, None]
        later = []
        for a, b, group in slices:
            now = flat[:, a:b].view(len(self.rows), REPLICAS, b - a)
            delta = self.anchor[:, None, a:b] - now
            self.send(delta, a, b)
            d = self.merge(delta, group)
            m = self.momentum[:, a:b]
            m.mul_(mu).add_(d)
            self.theta[:, a:b].sub_(lr * (d + self.ahead * mu * m))
            self.tell(a, b)
            later.append((a, b, torch.where(self.outer[:, :, None], self.anchor[:, None, a:b] - now, torch.zeros_like(now))))
        return later


def apply_later(later, flat):
    for a, b, change in later:
        flat[:, a:b].add_(change.reshape(flat.shape[0], b - a))


def shared_gradient(g, rows):
    """Replicas of one learner have the mean of their gradients."""
    g = g.view(len(rows), REPLICAS, -1)
    for i, row in enumerate(rows):
        each = REPLICAS // row["learners"]
        if each > 1:
            part = g[i].view(row["learners"], each, -1)
            part.copy_(part.mean(1, keepdim=True).expand_as(part))
    return g.view(len(rows) * REPLICAS, -1)


def judge(models, tokens, device, cos, sin, count):
    """Held-out loss of each model [C, PARAMS]."""
    total, n = torch.zeros(models.shape[0], device=device), 0
    for at in range(0, count - 16 * SEQ - 1, 16 * SEQ):
        part = torch.from_numpy(tokens[at:at + 16 * SEQ + 1].astype(np.int64)).to(device)
        x, y = part[:-1].view(1, 16, SEQ), part[1:].view(1, 16, SEQ)
        with torch.no_grad():
            total += losses(models, x.expand(len(models), -1, -1), y.expand(len(models), -1, -1), cos, sin)
        n += 1
    return (total / n).tolist()


def main():
    ap = argparse.ArgumentParser()
    for name in ("train", "valid", "rows"):
        ap.add_argument("--" + name, required=True)
    ap.add_argument("--model", default="1m", choices=MODELS)
    ap.add_argument("--out", default="/dev/stdout")
    ap.add_argument("--tokens-per-param", type=float, default=20)
    ap.add_argument("--batch", type=int, default=8, help="sequences a replica and step")
    ap.add_argument("--period", type=int, default=24)
    ap.add_argument("--muon", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--judge-tokens", type=int, default=400000)
    ap.add_argument("--average", type=float, default=0.1, help="share of the run whose outer parameters are averaged")
    ap.add_argument("--limit-s", type=float, default=1e9, help="give up a run that would take longer")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    choose_model(args.model)
    device = "cpu" if args.cpu else "cuda"
    rows = [{**DEFAULTS, **r} for r in json.load(open(args.rows, encoding="utf-8"))]
    train, valid = read_tokens(args.train), read_tokens(args.valid)
    batch = args.batch
    per_step = REPLICAS * batch
    steps = int(args.tokens_per_param * PARAMS) // (per_step * SEQ)
    usable = (len(train) - 1) // SEQ
    if steps * per_step > usable:
        raise SystemExit(f"{args.train}: {len(train)} tokens, {steps * per_step * SEQ} needed")
    order = torch.from_numpy(np.random.default_rng(args.seed).permutation(usable)[:steps * per_step]).to(device)
    text = torch.from_numpy(train[:usable * SEQ + 1].astype(np.int32)).to(device)
    cos, sin = rope_tables(device)
    stack = len(rows) * REPLICAS
    first = first_values(args.seed, device)
    flat = first.repeat(stack, 1).requires_grad_(True)
    outer = Outer(rows, first, device)
    m, v = torch.zeros_like(flat), torch.zeros_like(flat)
    decays = torch.cat([torch.full((r * c,), float(g != "norm"), device=device) for _, r, c, g, _ in TENSORS])
    peak = torch.tensor([r["inner_lr"] for r in rows], device=device).repeat_interleave(REPLICAS)[:, None]
    forward, step_all = losses, adamw
    if not args.cpu:
        torch.set_float32_matmul_precision("high")
        forward, step_all = torch.compile(losses), torch.compile(adamw, dynamic=False)
    matrices = [(r, c, at) for _, r, c, g, at in TENSORS if g == "matrix"]
    frags, pending, average, averaged = fragments(), [], torch.zeros_like(outer.theta), 0
    started, at_20 = time.time(), 0
    inside = torch.arange(SEQ + 1, device=device)
    for s in range(steps):
        begin = order[s * per_step:(s + 1) * per_step] * SEQ
        got = text[begin[:, None] + inside].long().view(1, REPLICAS, batch, SEQ + 1).expand(len(rows), -1, -1, -1)
        got = got.reshape(stack, batch, SEQ + 1)
        loss = forward(flat, got[..., :-1].contiguous(), got[..., 1:].contiguous(), cos, sin)
        loss.sum().backward()
        with torch.no_grad():
            g = shared_gradient(flat.grad, rows)
            warm = max(1, steps // 50)
            shape = min(1.0, (s + 1) / warm) * (0.1 + 0.45 * (1 + math.cos(math.pi * max(0, s - warm) / max(1, steps - warm))))
            lr = peak * shape
            clip = (1 / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
            kept = flat.detach()
            if args.muon:
                before = [(kept[:, at:at + r * c].clone(), at, r, c) for r, c, at in matrices]
                saved = [m[:, at:at + r * c].clone() for r, c, at in matrices]
            step_all(kept, g, m, v, decays, lr, clip, torch.tensor(float(s + 1), device=device))
            if args.muon:
                for (old, at, r, c), mom in zip(before, saved):
                    p, mm, gg = old.view(stack, r, c), mom.view(stack, r, c), (g[:, at:at + r * c] * clip).view(stack, r, c)
                    muon_matrix(p, gg, mm, lr[:, :, None], r, c)
                    kept[:, at:at + r * c] = p.view(stack, -1)
                    m[:, at:at + r * c] = mm.view(stack, -1)
            while pending and s - pending[0][0] >= OVERLAP:
                apply_later(pending.pop(0)[1], kept)
            for p in range(FRAGMENTS):
                if p * args.period // FRAGMENTS == s % args.period:
                    pending.append((s, outer.round(p, frags[p], kept, s / steps)))
            lone = kept.view(len(rows), REPLICAS, -1)[:, 0]
            if s >= steps * (1 - args.average) and s % 4 == 0:
                average.add_(torch.where(outer.outer, outer.theta, lone))
                averaged += 1
        flat.grad = None
        if s in (20, 60) or s % 200 == 199:
            if device == "cuda":
                torch.cuda.synchronize()
            took = time.time() - started
            print(f"# step {s} of {steps}, {took:.1f} s", flush=True)
            at_20 = took if s == 20 else at_20
            if s == 60 and (took - at_20) / 40 * steps > args.limit_s:
                raise SystemExit(f"the {steps} steps would take {(took - at_20) / 40 * steps:.0f} s")
    with torch.no_grad():
        while pending:
            apply_later(pending.pop(0)[1], flat)
        for p in range(FRAGMENTS):
            outer.round(p, frags[p], flat, 1.0)
        last = torch.where(outer.outer, outer.theta, flat.view(len(rows), REPLICAS, -1)[:, 0])
        ends = judge(last, valid, device, cos, sin, min(args.judge_tokens, len(valid)))
        means = judge(average / max(1, averaged), valid, device, cos, sin, min(args.judge_tokens, len(valid)))
    with open(args.out, "a", encoding="utf-8") as f:
        for row, end, mean in zip(rows, ends, means):
            line = {**row, "model": args.model, "batch": batch, "period": args.period, "muon": args.muon, "seed": args.seed,
                    "tokens_per_param": args.tokens_per_param,
                    "eval_loss": round(end, 4), "averaged_loss": round(mean, 4)}
            f.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
