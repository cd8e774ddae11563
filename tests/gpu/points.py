# SPDX-License-Identifier: Apache-2.0
"""The points of the benchmark, and what the plans behind `hpctl plan` say of them (point_plan.cc):
memory, operations of a token, and how long they will take."""
import json
import os
import subprocess
from dataclasses import dataclass, field


def model(dim, layers, heads, kv_heads, ffn, vocab, tied=False, **more):
    return {"dim": dim, "layers": layers, "heads": heads, "kv_heads": kv_heads, "ffn": ffn,
            "vocab": vocab, "tied": tied, **more}


def qwen(*widths, **more):
    return model(*widths, arch="qwen2", norm_eps=1e-6, **more)


# As in common/job/model_presets.cc.
LLAMA_1B = model(2048, 16, 32, 8, 8192, 128256, tied=True)
LLAMA_3B = model(3072, 28, 24, 8, 8192, 128256, tied=True)
LLAMA_8B = model(4096, 32, 32, 8, 14336, 128256)
QWEN_05B = qwen(896, 24, 14, 2, 4864, 151936, tied=True)
QWEN_15B = qwen(1536, 28, 12, 2, 8960, 151936, tied=True)
QWEN_3B = qwen(2048, 36, 16, 2, 11008, 151936, tied=True)
QWEN_7B = qwen(3584, 28, 28, 4, 18944, 152064)
SMALL = model(256, 4, 8, 2, 768, 2048)

# Dense bf16, TFLOP/s: vendors' data sheets.
PEAK = {"H100 80GB HBM3": 989, "H100 SXM": 989, "H200": 989, "A100": 312, "B200": 2250}


@dataclass
class Point:
    name: str  # what --points takes
    model: dict
    seq_len: int
    micro: int  # sequences
    passes: int = 1  # micro-batches of a step
    steps: int = 6  # the first third is not counted
    more: dict = field(default_factory=dict)  # of the spec (Trainer.workload)

    def tokens(self):
        return self.passes * self.micro * self.seq_len

    def state_bytes(self):
        return {"param": 2 if self.more.get("master") == "bf16" else 4,
                "moment": 2 if self.more.get("moments") == "bf16" else 4}

    def skipped(self):
        return max(1, self.steps // 3)

    def spec(self):
        return {"model": self.model, "seq_len": self.seq_len, "micro": self.micro,
                "global": self.passes * self.micro, "steps": self.steps, "precision": "bf16",
                **self.more}


FAST = {"gpu": {"deterministic": False}}
CUDNN = {"gpu": {"attention": "cudnn", "deterministic": False}}
LEAN = {"moments": "bf16", "recompute": "operations"}
NARROW = {"moments": "bf16", "master": "bf16", "recompute": "full", "strategy": "no_shard"}
COPIES = {"copies": True}
OFFLOADED = {**LEAN, "offload": ["optimizer"]}

# Llama at 262,144 tokens a step, Qwen2.5 at LLMQ's 524,288. Those of most worth come first.
ON_GPU = [
    Point("1B@2048", LLAMA_1B, 2048, 4, 32),
    # Long enough for the trial of copies in host memory (trainer/state/copy_pace.h).
    Point("1B@2048+copies", LLAMA_1B, 2048, 4, 32, 16, COPIES),
    Point("1B@8192+cudnn", LLAMA_1B, 8192, 1, 32, more=CUDNN),
    Point("8B@8192+offload", LLAMA_8B, 8192, 1, 32, 3, OFFLOADED),
    Point("Qwen2.5-0.5B@1024", QWEN_05B, 1024, 8, 64),
    Point("Qwen2.5-1.5B@1024", QWEN_15B, 1024, 8, 64, 4),
    Point("Qwen2.5-3B@1024", QWEN_3B, 1024, 8, 64, 3),
    Point("Qwen2.5-7B@1024+master", QWEN_7B, 1024, 2, 256, 2, NARROW),
    Point("Qwen2.5-7B@1024+offload", QWEN_7B, 1024, 8, 64, 3, OFFLOADED),
    Point("1B@8192", LLAMA_1B, 8192, 1, 32),
    Point("1B@8192+fast", LLAMA_1B, 8192, 1, 32, more=FAST),
    Point("3B@2048", LLAMA_3B, 2048, 4, 32, 4),
    Point("3B@8192", LLAMA_3B, 8192, 1, 32, 4),
    Point("Qwen2.5-7B@1024", QWEN_7B, 1024, 8, 64, 3, LEAN),
    Point("8B@8192", LLAMA_8B, 8192, 1, 32, 3, LEAN),
]
ON_CPU = [Point("small", SMALL, 128, 2, 2)]


def chosen(all_points, names):
    """Of the names after --points, in their order; all of them where none was given."""
    if not names:
        return all_points
    known = {point.name: point for point in all_points}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no point {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names]


class Planner:
    """Asks point_plan (point_plan.cc)."""

    def __init__(self, program, trainer):
        self.program, self.trainer = program, trainer

    def plan(self, point, product):
        """Its document; {} where it cannot be had, which costs the plan alone."""
        path = os.path.join(self.trainer.scratch, "planned.json")
        workload = self.trainer.workload({**point.spec(), "data": "/none"}, self.trainer.scratch)
        with open(path, "w") as out:
            json.dump({**workload, "rank": 0, "local_rank": 0}, out)
        try:
            done = subprocess.run([self.program, product, path], stdout=subprocess.PIPE, text=True,
                                  timeout=60, check=True)
            return json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(f"no plan of {point.name}: {error}", flush=True)
            return {}

    def rows(self, points):
        """What each needs of an H100 and of an H200."""
        for point in points:
            plans = {gpu: self.plan(point, gpu) for gpu in ("h100", "h200")}
            if not all(plans.values()):
                continue
            yield {"point": point.name, "gpu_bytes": plans["h100"]["gpu_bytes"],
                   "host_bytes": plans["h100"]["host_bytes"],
                   "of": {gpu: plan["gpu_bytes"] / plan["memory_bytes"]
                          for gpu, plan in plans.items()},
                   "step_s": plans["h100"]["step_s"]}


def seconds_of_run(point, plan):
    """About how long hptrain takes for it: to start, and its steps."""
    if "step_s" not in plan:
        return None
    return 25 + point.steps * sum(plan["step_s"]) / 2


def table(rows):
    if not rows:
        return []
    lines = ["", "Planned (`hpctl plan`): memory of a card, of it in percent, and of the host.", "",
             "| point | GiB | of an H100, 80 GB | of an H200, 141 GB | host GiB | s a step, H100 |",
             "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        of = [f"{100 * share:.0f} %" + (" **does not fit**" if share > 1 else "")
              for share in (row["of"]["h100"], row["of"]["h200"])]
        lines.append(f"| {row['point']} | {row['gpu_bytes'] / 2**30:.1f} | {of[0]} | {of[1]} | "
                     f"{row['host_bytes'] / 2**30:.0f} | "
                     f"{row['step_s'][0]:.1f} to {row['step_s'][1]:.1f} |")
    return lines
