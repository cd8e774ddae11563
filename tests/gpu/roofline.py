# SPDX-License-Identifier: Apache-2.0
"""Where the time of one step goes, by kind of operation, beside what the machine would need for the
same at its data sheet's speed. From the trace that LibTorch's profiler writes in hptrain
(trace/gG.rR.operations.json): kernels and copies on a GPU, operations on a CPU.
"""
import json
import re

# The first row whose pattern is in the name of an operation has it.
ROWS = [
    ("communication", r"nccl"),
    ("optimizer", r"adam|multi_tensor|squares_fp32|sum_partials"),
    ("loss", r"log_sums|losses_|cross_?entropy|nll_loss|log_softmax"),
    ("attention", r"flash|fmha|attention|softmax"),
    ("norms", r"rms_?norm|layer_norm|sum_columns"),
    ("rope", r"rotary"),
    ("activation", r"swiglu|silu|gelu"),
    ("GEMM", r"gemm|gemv|cutlass|cublas|xmma|nvjet|matmul|::linear|::mm|::bmm|::addmm"),
    ("gradient adds and residuals", r"functor_?add|aten::add_?$"),
    ("copies and fills", r"mem(cpy|set)|copy|fill|zero_|::to$|_to_copy|cat"),
]
REST = "other"
BUBBLES = "bubbles"

# GB/s of memory: vendors' data sheets.
BANDWIDTH = {"H100 80GB HBM3": 3350, "H100 SXM": 3350, "H200": 4800, "A100": 2039, "B200": 8000}


def kind_of(name):
    lower = name.lower()
    return next((row for row, pattern in ROWS if re.search(pattern, lower)), REST)


def own_times(events):
    """(name, microseconds) of each event of one thread, less those inside it."""
    events.sort(key=lambda e: (e["ts"], -e["dur"]))
    open_ones, found = [], []
    for event in events:
        while open_ones and open_ones[-1][0] <= event["ts"]:
            open_ones.pop()
        if open_ones:
            found[open_ones[-1][1]][1] -= event["dur"]
        open_ones.append((event["ts"] + event["dur"], len(found)))
        found.append([event["name"], event["dur"]])
    return found


def busy(events):
    """Microseconds in which at least one of them was under way."""
    total, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda e: e["ts"]):
        end = event["ts"] + event["dur"]
        total += max(0.0, end - max(until, event["ts"]))
        until = max(until, end)
    return total


def measured(path, steps, step_ms):
    """Milliseconds of a step by row."""
    with open(path) as text:
        events = [e for e in json.load(text)["traceEvents"] if e["ph"] == "X"]
    on_gpu = [e for e in events if e["cat"] == "gpu"]
    times = dict.fromkeys([row for row, _ in ROWS] + [REST], 0.0)
    if on_gpu:
        used = on_gpu
        pairs = [(e["name"], e["dur"]) for e in on_gpu]
    else:
        used, pairs = events, []
        for thread in {e["tid"] for e in used}:
            pairs += own_times([e for e in used if e["tid"] == thread])
    for name, microseconds in pairs:
        times[kind_of(name)] += microseconds / 1e3 / steps
    times[BUBBLES] = max(0.0, step_ms - busy(used) / 1e3 / steps)
    return times


def floors(m, seq_len, micro, bytes_of, recompute, tflops, gigabytes):
    """Milliseconds that a step needs at least, by row, for what can be counted. Operands and logits
    in bf16, parameters and moments as bytes_of says, gradients in fp32; the loss reads the logits twice and writes their gradient once; causal
    attention, its backward pass at 2.5 times the forward one."""
    if not tflops or not gigabytes:
        return {}
    tokens, dim, ffn, layers = micro * seq_len, m["dim"], m["ffn"], m["layers"]
    head = dim // m["heads"]
    q, k = m["heads"] * head, m["kv_heads"] * head
    of_layer = dim * (q + 2 * k) + q * dim + 3 * dim * ffn
    parameters = layers * of_layer + m["vocab"] * dim * (1 if m["tied"] else 2)
    passes = 8 if recompute == "full" else 6
    flops = {"GEMM": tokens * (passes * layers * of_layer + 6 * m["vocab"] * dim),
             "attention": layers * tokens * seq_len * q * (9 if recompute == "full" else 7)}
    again = 2 if recompute == "full" else 1  # forward passes
    # A layer's second norm also adds the residual stream; both pass on its gradient.
    norms = layers * (4 + 8) * again + layers * (8 + 8) + 4 + 6
    rounded = 2 if bytes_of["param"] == 4 else 0  # the weights in bf16 beside parameters in fp32
    read = {"norms": norms * tokens * dim,
            "rope": layers * tokens * (q + k) * 4 * (again + 1),
            "activation": layers * tokens * ffn * (6 * again + 10),
            "loss": tokens * m["vocab"] * (2 + 2 + 2),
            # Parameters and moments are read and written; the gradient is read twice.
            "optimizer": parameters * (2 * bytes_of["param"] + 4 * bytes_of["moment"] + 8 +
                                       rounded)}
    found = {row: count / tflops / 1e9 for row, count in flops.items()}
    found.update({row: count / gigabytes / 1e6 for row, count in read.items()})
    return found


def markdown(results):
    lines = []
    for one in results:
        lines += ["", f"One step of {one['what']}, {one['step_ms']:.1f} ms while it is traced:", ""]
        lines += ["| | ms | of the step | at least ms |", "| --- | --- | --- | --- |"]
        for row, ms in one["ms"].items():
            least = one["floor_ms"].get(row)
            lines.append(f"| {row} | {ms:.2f} | {100 * ms / one['step_ms']:.1f} % | "
                         f"{'' if least is None else f'{least:.2f}'} |")
    return lines
