#!/usr/bin/env python3
"""The opponent: the same Llama-family model trained by PyTorch on this CPU, as fast as we know how.

torch_trainer.py --model 14m --batch 8 --seq 256 --threads 2 --variant bf16-plain-compile [--seconds 10]
prints one JSON line with tokens_per_s (of the fastest third of the steps, as pelago's own benchmark does).

A variant is a precision, then what is added to it:
  fp32       everything in floats
  medium     floats, but oneDNN may round the inputs of products to bfloat16
  autocast   bfloat16 products, float parameters
  bf16       everything in bfloat16, the optimizer's state too
  -plain     attention as two batched products and a softmax instead of scaled_dot_product_attention
  -compile   torch.compile of forward and backward
All use fused AdamW with the clipping folded into it, fused RMSNorm where this PyTorch has one, joined q k v and gate up
matrices, drop gradients instead of clearing them, and add the embedding's gradient into the head's, with which it is
tied, row by row. ONEDNN_VERBOSE of the process tells whether AMX was reached: scripts/bench_trainer.sh looks.
"""
import argparse
import json
import os
import sys
import time

# glibc gives large blocks back when they are freed, and every step then pays for touching them anew. Kept, and in huge
# pages, they made a step up to 30% shorter. Read when a process starts, so it starts once more.
KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
if __name__ == "__main__" and "GLIBC_TUNABLES" not in os.environ:
    os.environ.update(KEEP_MEMORY)
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {  # layers, width, heads, hidden, vocabulary
    "1m": (4, 128, 4, 352, 2048), "5m": (5, 256, 4, 704, 4096), "14m": (6, 384, 6, 1024, 8192),
    "35m": (10, 512, 8, 1376, 8192), "124m": (12, 768, 12, 2048, 50304),
}


class Norm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (x.size(-1),), self.weight.to(x.dtype), 1e-5)
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attend(q, k, v, mask):
    """Causal attention; mask (T, T) is None for PyTorch's own."""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    shape = q.shape
    q, k, v = (y.reshape(-1, *shape[2:]) for y in (q, k, v))
    score = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=shape[-1] ** -0.5)
    return torch.bmm(score.softmax(-1), v).view(shape)


class Layer(nn.Module):
    def __init__(self, c, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(c), Norm(c)
        self.qkv, self.o = nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c, bias=False)
        self.gate_up, self.down = nn.Linear(c, 2 * hidden, bias=False), nn.Linear(hidden, c, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attend(q, k, v, mask)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, layers, c, heads, hidden, vocab, seq, plain):
        super().__init__()
        self.embed = nn.Embedding(vocab, c)
        self.layers = nn.ModuleList(Layer(c, heads, hidden) for _ in range(layers))
        self.norm = Norm(c)
        half = c // heads // 2
        angle = torch.arange(seq)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        mask = torch.full((seq, seq), -1e30).triu(1) if plain else None
        self.register_buffer("mask", mask, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, targets):
        """x: the embedded tokens."""
        cos, sin, mask = (y if y is None else y.to(product_dtype(x)) for y in (self.cos, self.sin, self.mask))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def product_dtype(x):
    """What a product with x comes out as."""
    return torch.bfloat16 if torch.is_autocast_cpu_enabled() else x.dtype


class Trainer:
    def __init__(self, model, kind, compiled):
        self.model, self.kind = model, kind
        self.params = list(model.parameters())
        self.loss_of = torch.compile(model) if compiled else model
        how = dict(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        try:
            self.optim, self.fused = torch.optim.AdamW(self.params, fused=True, **how), True
        except (RuntimeError, TypeError):
            self.optim, self.fused = torch.optim.AdamW(self.params, foreach=True, **how), False

    def clip(self):
        """Fused AdamW divides gradients by grad_scale on its way: the clipping needs no pass of its own."""
        if not self.fused or not hasattr(nn.utils, "get_total_norm"):
            nn.utils.clip_grad_norm_(self.params, 1.0)
            return
        norm = nn.utils.get_total_norm([p.grad for p in self.params])
        self.optim.grad_scale, self.optim.found_inf = norm.float().clamp_min(1.0), torch.zeros(())

    def step(self, tokens, targets):
        table = self.model.embed.weight
        with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "autocast"):
            x = F.embedding(tokens, table.detach()).requires_grad_()
            loss = self.loss_of(x, targets)
        loss.backward()
        table.grad.index_add_(0, tokens.flatten(), x.grad.flatten(0, 1).to(table.grad.dtype))
        self.clip()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", choices=MODELS, default="14m")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--seq", type=int, default=256)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--variant", default="autocast")
    ap.add_argument("--seconds", type=float, default=10)
    a = ap.parse_args()
    kind, *added = a.variant.split("-")
    if kind not in ("fp32", "medium", "autocast", "bf16") or not set(added) <= {"plain", "compile"}:
        ap.error(f"there is no variant {a.variant}")
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if kind == "medium":
        torch.set_float32_matmul_precision("medium")
    layers, c, heads, hidden, vocab = MODELS[a.model]
    model = Model(layers, c, heads, hidden, vocab, a.seq, "plain" in added)
    if kind == "bf16":
        model = model.to(torch.bfloat16)
    trainer = Trainer(model, kind, "compile" in added)
    tokens = torch.randint(vocab, (a.batch, a.seq))

    def step():
        return trainer.step(tokens, (tokens + 1) % vocab)

    step(), step()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < a.seconds:
        t = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - t)
    times.sort()
    third = times[:(len(times) + 2) // 3]
    print(json.dumps({"trainer": "pytorch", "version": torch.__version__, "model": a.model, "batch": a.batch,
                      "seq": a.seq, "threads": a.threads, "variant": a.variant,
                      "params": sum(p.numel() for p in trainer.params), "steps": len(times),
                      "loss": round(loss.item(), 4),
                      "tokens_per_s": round(a.batch * a.seq * len(third) / sum(third), 1)}))


if __name__ == "__main__":
    main()
