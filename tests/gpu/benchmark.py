# SPDX-License-Identifier: Apache-2.0
"""The benchmark of hptrain beside PyTorch at equal tokens a step, and a roofline of one
micro-batch (roofline.py)."""
import importlib.util
import json
import os
import statistics
import subprocess
import sys

import roofline
from host_copies import cost_in
from judged import RunFailed
from points import seconds_of_run

HERE = os.path.dirname(os.path.abspath(__file__))
# (who, compiled, TorchTitan's, its steps' time over hptrain's planned ones, seconds before them)
PEERS = [("PyTorch eager", False, False, 1.5, 20), ("PyTorch compiled", True, False, 1.2, 120),
         ("TorchTitan's model, compiled", True, True, 1.2, 120)]


def row_of(point, who, step_ms, peak, flops, peak_tflops):
    """flops: of a token, with attention counted whole, and as causal attention computes it; None:
    not known."""
    median = statistics.median(step_ms)
    rate = point.tokens() / median * 1e3
    tflops = [count and count * rate / 1e12 for count in flops]
    mfu = [count / peak_tflops if count and peak_tflops else None for count in tflops]
    return {"point": point.name, "who": who, "step_ms": median, "tokens_per_s": rate,
            "tflops": tflops[0], "mfu": mfu[0], "mfu_causal": mfu[1], "peak_memory_bytes": peak}


def result_of_peer(spec, limit_s):
    """What peer.py prints."""
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, "peer.py"), json.dumps(spec)],
                              capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end within {limit_s:.0f} s"}
    said = done.stdout.strip().split("\n")[-1]
    return json.loads(said) if said.startswith("{") else \
        {"failed": (done.stderr.strip().split("\n") or ["ended"])[-1]}


def flops_of(plan):
    return plan.get("flops_per_token"), plan.get("flops_per_token_causal")


def label(point):
    note = ", ".join(f"{key} {value}" for key, value in point.more.items())
    return "hptrain" + (f" ({note})" if note else "")


class Benchmark:
    """memory: of a card, in bytes; None: not known. A run that needs longer than is left of its
    part, or more memory than there is, is left out, and says so."""

    def __init__(self, trainer, planner, device, product, peak_tflops, memory=None):
        self.trainer, self.planner, self.device = trainer, planner, device
        self.product, self.peak_tflops, self.memory = product, peak_tflops, memory

    def rows(self, points, peers, done):
        """done: (point, who) that need not be run again."""
        for point in points:
            plan = self.planner.plan(point, self.product)
            for who, needed_s, run in self.runs(point, plan, peers):
                if (point.name, who) in done:
                    continue
                row = {"point": point.name, "who": who}
                why = self.reason_against(plan if who == label(point) else {}, needed_s)
                if why:
                    yield {**row, "left_out": why}
                    continue
                if needed_s is not None:
                    print(f"{point.name}, {who}: about {needed_s:.0f} s", flush=True)
                try:
                    yield run()
                except RunFailed as error:
                    yield {**row, "failed": str(error)}

    def runs(self, point, plan, peers):
        """(who, about how many seconds, what gives its row)"""
        yield label(point), seconds_of_run(point, plan), lambda: self.hptrain(point, plan)
        for who, compiled, titan, factor, before_s in PEERS if peers else []:
            if titan and importlib.util.find_spec("torchtitan") is None:
                continue
            steps_s = point.steps * sum(plan["step_s"]) / 2 if "step_s" in plan else None
            yield who, None if steps_s is None else before_s + factor * steps_s, \
                lambda: self.peer(point, plan, who, compiled, titan)

    def reason_against(self, plan, needed_s):
        if self.memory and plan.get("gpu_bytes", 0) > self.memory:
            return (f"it needs {plan['gpu_bytes'] / 2**30:.0f} GiB, the card has "
                    f"{self.memory / 2**30:.0f}")
        left_s = self.trainer.seconds_left()
        if left_s <= 0 or (needed_s is not None and needed_s > left_s):
            return (f"no time: about {needed_s or 0:.0f} s, {max(0, left_s):.0f} s are left of "
                    "its part; --resume goes on")
        return None

    def hptrain(self, point, plan):
        # Ended without the checkpoint that a last step would write.
        lines, log, _ = self.trainer.run({**point.spec(), "steps": 1000}, stop_after=point.steps)
        row = row_of(point, label(point),
                     [s["step_ms"] for s in lines[point.skipped():point.steps]],
                     lines[-1]["peak_memory_bytes"], flops_of(plan), self.peak_tflops)
        return {**row, "copies": cost_in(log)} if cost_in(log) else row

    def peer(self, point, plan, who, compiled, titan):
        spec = {"model": point.model, "seq_len": point.seq_len, "micro": point.micro,
                "passes": point.passes, "steps": point.steps, "device": self.device,
                "compile": compiled, "torchtitan": titan}
        result = result_of_peer(spec, max(1, min(900, self.trainer.seconds_left())))
        if "failed" in result:
            raise RunFailed(result["failed"])
        return row_of(point, who, result["step_ms"][point.skipped():],
                      result["peak_memory_bytes"], flops_of(plan), self.peak_tflops)


def rooflines(trainer, points, peak_tflops, gigabytes, done):
    """One per point: a few steps of one micro-batch, two of them traced."""
    for point in points:
        traced = 2
        spec = {**point.spec(), "global": point.micro, "steps": 1000, "trace_from": 5,
                "trace_steps": traced}
        what = f"{point.name}, {point.micro} x {point.seq_len} tokens"
        if what in done:
            continue
        try:
            lines, _, checkpoints = trainer.run(spec, stop_after=8)
            path = os.path.join(os.path.dirname(checkpoints), "trace", "g1.r0.operations.json")
            step_ms = statistics.mean(s["step_ms"] for s in lines[4:4 + traced])
            times = roofline.measured(path, traced, step_ms)
        except (RunFailed, OSError, ValueError) as error:  # or there is no trace
            print(f"no roofline of {what}: {error}", flush=True)
            continue
        yield {"what": what, "step_ms": step_ms, "ms": times,
               "floor_ms": roofline.floors(point.model, point.seq_len, point.micro,
                                           point.state_bytes(),
                                           point.more.get("recompute", "none"), peak_tflops,
                                           gigabytes)}


def table(rows):
    lines = ["", "Medians. MFU counts attention whole, or causal (the half that is computed).", "",
             "| point | | step ms | tokens/s | TFLOP/s | MFU | causal | peak GiB |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    percent = lambda share: "" if share is None else f"{100 * share:.1f} %"
    for row in rows:
        head = f"| {row['point']} | {row['who']} | "
        if "step_ms" not in row:
            why = "left out: " + row["left_out"] if "left_out" in row else "none: " + row["failed"]
            lines.append(head + why.replace("|", "\\|") + " | | | | | |")
            continue
        lines.append(head + f"{row['step_ms']:.1f} | {row['tokens_per_s']:.0f} | "
                     f"{'' if row['tflops'] is None else format(row['tflops'], '.4g')} | {percent(row['mfu'])} | "
                     f"{percent(row['mfu_causal'])} | {row['peak_memory_bytes'] / 2**30:.1f} |")
    costs = [f"{row['point']}: {row['copies']}" for row in rows if "copies" in row]
    return lines + ([""] + costs if costs else [])
