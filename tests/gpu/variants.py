# SPDX-License-Identifier: Apache-2.0
"""Checks of what a plain Llama in fp32 and bf16 leaves out: the other architectures, a sliding
window, LoRA, fp16, state in bf16. Each is a few steps of a small model.

Of random tokens the losses hardly depend on attention: without its window that of mistral is 1e-4
away. The norm of the gradient is the sharper number: there it is 2e-2 away, documents 4e-2, qwen3
4e-2, and bf16 from fp32 0.8e-3 to 1.7e-3 (measured on a CPU). kernels_check.cc is sharper still.
"""
from judged import judged, same, worst

ON_CPU = {"environment": {"CUDA_VISIBLE_DEVICES": ""}}


def architectures(small):
    """(what, what it changes in a spec)."""
    of = lambda arch, **more: {"model": {**small, "arch": arch, **more}}
    return [
        ("mistral with a window", of("mistral", sliding_window=8)),
        ("mistral with a window, documents apart",
         {**of("mistral", sliding_window=8), "mask": "documents"}),
        ("qwen2", of("qwen2", tied=True)),  # biases
        ("qwen3", of("qwen3", head_dim=64)),  # norms of queries and keys
        ("gpt", of("gpt", kv_heads=small["heads"], max_positions=256)),
    ]


def model_checks(what, wide, cpu, narrow, again, fp32):
    """The rows of one model, of runs in fp32, the same on the CPU, in bf16 and that again."""
    yield judged(f"{what}, fp32: losses of the CPU, to 1e-4", lambda: worst(wide(), cpu()),
                 below=1e-4)
    yield judged(f"{what}, fp32: norms of the CPU's gradients, to 1e-3",
                 lambda: worst(wide(), cpu(), "grad_norm"), below=1e-3)
    yield judged(f"{what}, fp32: not a plain Llama's losses", lambda: not same(wide(), fp32()))
    yield judged(f"{what}, bf16: losses of fp32, to 2e-2", lambda: worst(narrow(), wide()),
                 below=2e-2)
    yield judged(f"{what}, bf16: norms of fp32's gradients, to 5e-3",
                 lambda: worst(narrow(), wide(), "grad_norm"), below=5e-3)
    yield judged(f"{what}, bf16: the same bits run to run", lambda: same(narrow(), again()))


def checks(start, spec, fp32, bf16, checkpoint):
    """Yields (what, passed, detail). `start`: begins a run, gives what waits for its steps. `fp32`,
    `bf16`: that of `spec` in these; `checkpoint`: one of fp32's."""
    spec = {**spec, "save_every": 0}
    lora = {"lora": {"base": checkpoint, "rank": 8, "alpha": 16}}
    begun = []
    for what, changes in architectures(spec["model"]) + [("lora", lora)]:
        wide = {**spec, **changes, "precision": "fp32"}
        narrow = {**wide, "precision": "bf16"}
        begun.append((what, [start(one) for one in (wide, {**wide, **ON_CPU}, narrow, narrow)]))
    others = [(what, beside, [start({**spec, **changes}) for _ in range(2)])
              for what, changes, beside in (
                  ("fp16", {"precision": "fp16"}, fp32),
                  ("moments in bf16", {"precision": "bf16", "moments": "bf16"}, bf16),
                  ("all state in bf16",
                   {"precision": "bf16", "moments": "bf16", "master": "bf16"}, bf16))]
    for what, runs in begun:
        yield from model_checks(what, *runs, fp32)
    for what, beside, (first, again) in others:
        yield judged(f"{what}: losses without, to 2e-2",
                     lambda: worst(first(), beside()), below=2e-2)
        yield judged(f"{what}: not the same as without", lambda: not same(first(), beside()))
        yield judged(f"{what}: the same bits run to run", lambda: same(first(), again()))
