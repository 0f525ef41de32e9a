#!/usr/bin/env python3
"""The opponent: the same Llama-family model trained by PyTorch on this CPU, as fast as we know how.

torch_trainer.py --model 14m --batch 8 --seq 256 --threads 2 --variant bf16-compile [--seconds 10]
prints one JSON line with tokens_per_s (of the fastest third of the steps, as pelago's own benchmark does).

Variants: fp32, fp32-compile, autocast, autocast-compile (bfloat16 products, float parameters), bf16, bf16-compile
(everything in bfloat16, the optimizer too). All use scaled_dot_product_attention, fused RMSNorm where this PyTorch
has one, fused AdamW and clipping, and set no gradient to zero but drop it. ONEDNN_VERBOSE of the process tells
whether AMX was reached: scripts/bench_trainer.sh looks.
"""
import argparse
import json
import time

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


class Layer(nn.Module):
    def __init__(self, c, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(c), Norm(c)
        self.qkv, self.o = nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c, bias=False)
        self.gate_up, self.down = nn.Linear(c, 2 * hidden, bias=False), nn.Linear(hidden, c, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, layers, c, heads, hidden, vocab, seq):
        super().__init__()
        self.embed = nn.Embedding(vocab, c)
        self.layers = nn.ModuleList(Layer(c, heads, hidden) for _ in range(layers))
        self.norm = Norm(c)
        half = c // heads // 2
        angle = torch.arange(seq)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", choices=MODELS, default="14m")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--seq", type=int, default=256)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--variant", default="autocast")
    ap.add_argument("--seconds", type=float, default=10)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    kind, compiled = a.variant.removesuffix("-compile"), a.variant.endswith("-compile")
    layers, c, heads, hidden, vocab = MODELS[a.model]
    model = Model(layers, c, heads, hidden, vocab, a.seq)
    if kind == "bf16":
        model = model.to(torch.bfloat16)
    params = list(model.parameters())
    try:
        optim = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    except (RuntimeError, TypeError):
        optim = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    loss_of = torch.compile(model) if compiled else model
    tokens = torch.randint(vocab, (a.batch, a.seq))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = loss_of(tokens, (tokens + 1) % vocab)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optim.step()
        optim.zero_grad(set_to_none=True)
        return loss

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
                      "params": sum(p.numel() for p in params), "steps": len(times), "loss": round(loss.item(), 4),
                      "tokens_per_s": round(a.batch * a.seq * len(third) / sum(third), 1)}))


if __name__ == "__main__":
    main()
