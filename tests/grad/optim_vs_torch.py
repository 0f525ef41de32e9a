#!/usr/bin/env python3
"""Our AdamW against torch.optim.AdamW: 20 steps, parameters compared after each.

optim_vs_torch.py PROGRAM   PROGRAM is the built optim_steps.c; exit 77 (skipped) without PyTorch
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from need_torch import torch

STEPS = 20


def ours(program, start, grads, lr, decay, clip):
    """Parameters after each step (STEPS, rows, cols), then m and v."""
    rows, cols = start.shape
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder, "in"), Path(folder, "out")
        given.write_bytes(torch.cat([start[None], grads]).numpy().tobytes())
        subprocess.run([program, given, result, str(rows), str(cols), str(STEPS), repr(lr), repr(decay), repr(clip)],
                       check=True)
        flat = torch.frombuffer(bytearray(result.read_bytes()), dtype=torch.float32)
        return flat.reshape(STEPS + 2, rows, cols)


def theirs(start, grads, lr, decay, clip):
    p = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([p], lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
    after = []
    for g in grads:
        p.grad = g.clone()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_([p], clip)
        optimizer.step()
        after.append(p.detach().clone())
    moments = optimizer.state[p]
    return torch.stack(after + [moments["exp_avg"], moments["exp_avg_sq"]])


def compare(program, shape, lr, decay, clip):
    start, grads = torch.randn(shape), 0.01 * torch.randn((STEPS, *shape))
    got, want = ours(program, start, grads, lr, decay, clip), theirs(start, grads, lr, decay, clip)
    # Steps are about lr long, so a rounding of the parameters is small beside 1e-4 steps.
    moved = (got[:STEPS] - want[:STEPS]).abs().max().item() / lr
    moments = ((got[STEPS:] - want[STEPS:]).norm(dim=(1, 2)) / want[STEPS:].norm(dim=(1, 2))).max().item()
    good = moved < 1e-4 * STEPS + 5e-7 / lr and moments < 1e-5  # PyTorch sums the norm in float
    print(f"{'ok' if good else 'not ok'} - {shape[0]}x{shape[1]} lr {lr} decay {decay} clip {clip}: "
          f"parameters within {moved:.1e} steps, moments within {moments:.1e}")
    return good


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    torch.manual_seed(3)
    cases = [((64, 48), 1e-3, 0.1, 0.0), ((1, 7), 1e-2, 0.0, 0.0), ((700, 301), 3e-4, 0.1, 1.0), ((33, 5), 1.0, 0.5, 0.01)]
    return 0 if all([compare(sys.argv[1], *case) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
