# SPDX-License-Identifier: Apache-2.0
"""Checks of what a plain Llama in fp32 and bf16 leaves out: the other architectures, a sliding
window, LoRA, fp16, moments in bf16. Each is a few steps of a small model; runs of one check are
side by side on the card, because each spends most of its time starting.

Of random tokens the losses hardly depend on attention: without its window that of mistral is 1e-4
away. The norm of the gradient is the sharper number: there it is 2e-2 away, documents 4e-2, qwen3
4e-2, and bf16 from fp32 0.8e-3 to 1.7e-3 (measured on a CPU). kernels_check.cc is sharper still.
"""

ON_CPU = {"environment": {"CUDA_VISIBLE_DEVICES": ""}}


def worst(a, b, number="loss"):
    return max(abs(x[number] - y[number]) / abs(y[number]) for x, y in zip(a, b))


def same(a, b):
    numbers = lambda steps: [(s["step"], s["loss"], s["grad_norm"]) for s in steps]
    return numbers(a) == numbers(b)


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


def checks(trainer, spec, fp32, bf16, checkpoint):
    """Yields (what, passed, detail). `fp32`, `bf16`: the steps of `spec` in these; `checkpoint`:
    one of them. What does not run at all keeps no other from being tried."""
    spec = {**spec, "save_every": 0}
    lora = {"lora": {"base": checkpoint, "rank": 8, "alpha": 16}}
    for what, changes in architectures(spec["model"]) + [("lora", lora)]:
        wide = {**spec, **changes, "precision": "fp32"}
        narrow = {**wide, "precision": "bf16"}
        try:
            here, cpu, first, again = trainer.run_all([wide, {**wide, **ON_CPU}, narrow, narrow])
        except RuntimeError as error:
            yield f"{what}: runs", False, str(error)
            continue
        yield f"{what}, fp32: losses of the CPU, to 1e-4", worst(here, cpu) < 1e-4, \
            f"{worst(here, cpu):.2g}"
        yield f"{what}, fp32: norms of the CPU's gradients, to 1e-3", \
            worst(here, cpu, "grad_norm") < 1e-3, f"{worst(here, cpu, 'grad_norm'):.2g}"
        yield f"{what}, fp32: not a plain Llama's losses", not same(here, fp32), "8 steps"
        yield f"{what}, bf16: losses of fp32, to 2e-2", worst(first, here) < 2e-2, \
            f"{worst(first, here):.2g}"
        yield f"{what}, bf16: norms of fp32's gradients, to 5e-3", \
            worst(first, here, "grad_norm") < 5e-3, f"{worst(first, here, 'grad_norm'):.2g}"
        yield f"{what}, bf16: the same bits run to run", same(first, again), \
            "8 steps, losses and norms"
    for what, changes, beside in (
            ("fp16", {"precision": "fp16"}, fp32),
            ("moments in bf16", {"precision": "bf16", "moments": "bf16"}, bf16)):
        try:
            first, again = trainer.run_all([{**spec, **changes}] * 2)
        except RuntimeError as error:
            yield f"{what}: runs", False, str(error)
            continue
        yield f"{what}: losses without, to 2e-2", worst(first, beside) < 2e-2, \
            f"{worst(first, beside):.2g}"
        yield f"{what}: not the same as without", not same(first, beside), "8 steps"
        yield f"{what}: the same bits run to run", same(first, again), "8 steps, losses and norms"
