#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.sh runs once hptrain is built: checks on one card (and on several, where there are; more
of them in variants.py), then a benchmark beside PyTorch and a roofline of one step (roofline.py).
Writes OUT/results.json and OUT/results.md; exit code 1 when a check failed. Each run is a whole
hptrain process, started as by hand (hptrain --workload FILE).
"""
import argparse
import array
import concurrent.futures
import itertools
import json
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time

import torch

import roofline
import variants
from variants import same, worst

HERE = os.path.dirname(os.path.abspath(__file__))


def model(dim, layers, heads, kv_heads, ffn, vocab, tied=False):
    return {"dim": dim, "layers": layers, "heads": heads, "kv_heads": kv_heads, "ffn": ffn,
            "vocab": vocab, "tied": tied}


# Llama 3.2 1B and 3B, Llama 3 8B (trainer: common/base/model_presets.cc).
MODELS = {
    "1B": model(2048, 16, 32, 8, 8192, 128256, tied=True),
    "3B": model(3072, 28, 24, 8, 8192, 128256, tied=True),
    "8B": model(4096, 32, 32, 8, 14336, 128256),
}
SMALL = model(256, 4, 8, 2, 768, 2048)
# Dense bf16, TFLOP/s: vendors' data sheets.
PEAK = {"H100 80GB HBM3": 989, "H100 SXM": 989, "H200": 989, "A100": 312, "B200": 2250}


def write_dataset(prefix, tokens, vocab):
    """Random tokens as a Megatron-LM indexed dataset (int32) of documents of 1 to 99 tokens."""
    source = random.Random(7)
    values = array.array("i", (source.randrange(vocab) for _ in range(tokens)))
    lengths = [1 + 7 * i % 99 for i in range(tokens // 51)]
    with open(prefix + ".bin", "wb") as out:
        values[:sum(lengths)].tofile(out)
    n = len(lengths)
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, n, n + 1))
        out.write(struct.pack(f"<{n}i", *lengths))
        begins = itertools.accumulate((4 * length for length in lengths), initial=0)
        out.write(struct.pack(f"<{n}q", *itertools.islice(begins, n)))
        out.write(struct.pack(f"<{n + 1}q", *range(n + 1)))


def lines_in(path):
    """0 where it is not there yet."""
    try:
        with open(path) as lines:
            return sum(1 for _ in lines)
    except FileNotFoundError:
        return 0


class Trainer:
    def __init__(self, program, scratch):
        self.program, self.scratch = program, scratch
        self.numbers = itertools.count(1)
        self.data = {}

    def dataset(self, vocab):
        if vocab not in self.data:
            self.data[vocab] = os.path.join(self.scratch, f"tokens-{vocab}")
            write_dataset(self.data[vocab], 1000000, vocab)
        return self.data[vocab]

    def workload(self, spec, directory):
        m = spec["model"]
        train = {
            "model": {"rope_theta": 5e5, "tied_embeddings": m["tied"],
                      **{k: v for k, v in m.items() if k != "tied"}},
            "lora": spec.get("lora", {}),
            "data": {"path": self.dataset(m["vocab"]), "seq_len": spec["seq_len"],
                     "mask": spec.get("mask", "none")},
            "batch": {"micro": spec["micro"], "global": spec.get("global", spec["micro"])},
            "steps": spec["steps"], "seed": 3, "precision": spec["precision"],
            "optimizer": {"lr": 1e-4, "moments": spec.get("moments", "fp32")},
            "schedule": {"warmup_steps": 2}, "strategy": spec.get("strategy", "full"),
            "shard_group": spec.get("shard_group", 0),
            "loss": {"chunk_tokens": spec.get("chunk_tokens", 0)},
            "memory": {"activation_checkpointing": spec.get("recompute", "none"),
                       "offload": spec.get("offload", [])},
            "gpu": spec.get("gpu", {}),
            "metrics": {"trace_from": spec.get("trace_from", 0),
                        "trace_steps": spec.get("trace_steps", 0)},
        }
        return {
            "job": 1, "name": "gpu", "generation": spec.get("generation", 1),
            "parent_generation": 0, "node": "local", "world_size": spec.get("world_size", 1),
            "rendezvous_dir": os.path.join(directory, "rdzv"), "bind_address": "127.0.0.1",
            "resume_checkpoint": spec.get("resume", ""), "start_step": spec.get("start_step", 0),
            "checkpoint_dir": os.path.join(directory, "checkpoints"), "ledger_dir": "",
            "metrics_path": os.path.join(directory, "metrics.jsonl"),
            "checkpoint": {"every_steps": spec.get("save_every", 0), "every_minutes": 0},
            "train": train,
        }

    def run(self, spec, cpu=False, stop_after=0, limit_s=900):
        """Metrics by step, and rank 0's log. `stop_after` > 0: ended, by SIGKILL and without a
        checkpoint, after so many steps."""
        directory = os.path.join(self.scratch, f"run-{next(self.numbers)}")
        os.makedirs(directory)
        environment = {**os.environ, **spec.get("environment", {})}
        if cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        document = self.workload(spec, directory)
        processes, logs = [], []
        for rank in range(document["world_size"]):
            path = os.path.join(directory, f"rank-{rank}.json")
            with open(path, "w") as out:
                json.dump({**document, "rank": rank, "local_rank": rank}, out)
            logs.append(open(os.path.join(directory, f"rank-{rank}.log"), "w+"))
            processes.append(subprocess.Popen([self.program, "--workload", path],
                                              env=environment, stderr=logs[-1]))
        metrics = document["metrics_path"]
        until, stopped = time.monotonic() + limit_s, False
        while any(p.poll() is None for p in processes):
            done = lines_in(metrics)
            if (stop_after and done >= stop_after) or time.monotonic() > until:
                stopped = done >= stop_after > 0
                for p in processes:
                    p.send_signal(signal.SIGKILL)
                    p.wait()
            time.sleep(0.02)
        logs[0].seek(0)
        text = logs[0].read()
        for log in logs:
            log.close()
        if not stopped and any(p.returncode != 0 for p in processes):
            raise RuntimeError(text.strip().split("\n")[-1] if text else "no end within the limit")
        with open(metrics) as lines:
            steps = [json.loads(line) for line in lines if line.endswith("\n")]
        return steps, text, document["checkpoint_dir"]

    def run_all(self, specs):
        """The metrics of each. Side by side where there is a processor for each: a run is one
        process of one thread and waits for its GPU most of the time."""
        for spec in specs:
            self.dataset(spec["model"]["vocab"])
        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            return [steps for steps, _, _ in pool.map(self.run, specs)]


def runtime_of(log):
    """What the log says that the run has used, and why not more."""
    lines = [line for line in log.split("\n") if "runtime:" in line or "no fused kernels" in line]
    return "; ".join(lines) or "no such line"


def without_kernels(trainer, spec, fp32, bf16):
    """The fused kernels beside LibTorch's operations in whole steps: same losses, other kernels."""
    for precision, whole, bound in (("fp32", fp32, 1e-4), ("bf16", bf16, 2e-2)):
        plain, log, _ = trainer.run({**spec, "precision": precision,
                                     "environment": {"HPTRAIN_DEVICE_KERNELS": "none"}})
        yield f"{precision}: losses without fused kernels, to {bound:g}", \
            worst(plain, whole) < bound and "device_kernels LibTorch's" in log, \
            f"{worst(plain, whole):.2g}; {runtime_of(log)}"


def kernels_beside_references(program, device):
    """kernels_check.cc: each kernel alone, on the card that is there."""
    environment = dict(os.environ)
    if device == "cpu":
        stubs = os.path.join(os.path.dirname(program), "stub_cuda")
        environment["LD_PRELOAD"] = " ".join(os.path.join(stubs, name) for name in
                                             ("libcuda.so.1", "libnvrtc.so.12"))
    try:
        done = subprocess.run([program, device], env=environment, capture_output=True, text=True,
                              timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield "each kernel beside its reference", False, str(error)
        return
    print(done.stdout + done.stderr, end="", flush=True)
    failed = [line for line in done.stdout.split("\n") if line.startswith("FAILED")]
    last = (done.stdout + done.stderr).strip().split("\n")[-1]
    yield "each kernel beside its reference", done.returncode == 0, "; ".join(failed[:3] + [last])


def named_kernels(trainer, spec, fp32):
    """As checks(): what workload.train.gpu names is had, or refused when the job starts."""
    for gpu in ({"attention": "flash"}, {"attention": "products"},
                {"attention": "cudnn", "deterministic": False}):
        what = "bf16: " + ", ".join(f"{k} {v}" for k, v in gpu.items())
        try:
            first, _, _ = trainer.run({**spec, "precision": "bf16", "gpu": gpu})
        except RuntimeError as error:
            yield what, None if "is not to be had" in str(error) else False, str(error)
            continue
        yield what + ", losses of fp32, to 2e-2", worst(first, fp32) < 2e-2, \
            f"{worst(first, fp32):.2g}"
        if gpu.get("deterministic", True):
            again, _, _ = trainer.run({**spec, "precision": "bf16", "gpu": gpu})
            yield what + ", the same bits run to run", same(first, again), "8 steps"


def checks(trainer, device, cards):
    """Yields (what, passed, detail), of whole runs."""
    spec = {"model": SMALL, "seq_len": 128, "micro": 2, "global": 4, "steps": 8,
            "precision": "fp32", "save_every": 4}
    first, log, saved = trainer.run(spec)
    cuda = device == "cuda"
    yield "computes on the " + device, ("cuda sm_" in log) == cuda, runtime_of(log)
    yield "fp32: fused kernels by NVRTC", ("device_kernels nvrtc" in log) == cuda, runtime_of(log)
    base = os.path.join(saved, "step-8.g1")
    cpu, _, _ = trainer.run(spec, cpu=True)
    yield "fp32: losses of the CPU, to 1e-4", worst(first, cpu) < 1e-4, f"{worst(first, cpu):.2g}"
    again, _, _ = trainer.run(spec)
    yield "fp32: the same bits run to run", same(first, again), "8 steps, losses and norms"
    narrow, log, saved = trainer.run({**spec, "precision": "bf16"})
    yield "bf16: fused kernels by NVRTC", ("device_kernels nvrtc" in log) == cuda, runtime_of(log)
    yield "bf16: losses of fp32, to 2e-2", worst(narrow, first) < 2e-2, f"{worst(narrow, first):.2g}"
    again, _, _ = trainer.run({**spec, "precision": "bf16"})
    yield "bf16: the same bits run to run", same(narrow, again), "8 steps, losses and norms"
    resumed, _, _ = trainer.run({**spec, "precision": "bf16", "generation": 2, "start_step": 4,
                                 "resume": os.path.join(saved, "step-4.g1")})
    yield "bf16: goes on from a checkpoint with the same bits", same(resumed, narrow[4:]), \
        "steps 5 to 8"
    again, _, _ = trainer.run({**spec, "precision": "bf16", "recompute": "full"})
    yield "bf16: recomputation gives the same bits", same(again, narrow), "8 steps"
    for precision, whole in (("bf16", narrow), ("fp32", first)):
        moved, _, _ = trainer.run({**spec, "precision": precision, "recompute": "full",
                                   "offload": ["optimizer", "parameters", "activations"]})
        yield f"{precision}: offload gives the same bits", same(moved, whole), "8 steps"
    chunked, _, _ = trainer.run({**spec, "precision": "bf16", "chunk_tokens": 48})
    yield "bf16: loss in chunks, to 1e-3", worst(chunked, narrow) < 1e-3, \
        f"{worst(chunked, narrow):.2g}"
    if cuda:
        yield from without_kernels(trainer, spec, first, narrow)
    else:
        yield "losses without fused kernels", None, "no card here"
    yield from variants.checks(trainer, spec, first, narrow, base)
    # On a GPU all documents of a micro-batch in one call, in fp32 one by one.
    packed = {**spec, "mask": "documents"}
    one_by_one, _, _ = trainer.run(packed)
    yield "fp32: packed documents have losses of their own", not same(one_by_one, first), "8 steps"
    narrow, _, _ = trainer.run({**packed, "precision": "bf16"})
    yield "bf16: packed documents, losses of fp32, to 2e-2", worst(narrow, one_by_one) < 2e-2, \
        f"{worst(narrow, one_by_one):.2g}"
    again, _, _ = trainer.run({**packed, "precision": "bf16"})
    yield "bf16: packed documents, the same bits run to run", same(narrow, again), \
        "8 steps, losses and norms"
    yield from named_kernels(trainer, spec, first)
    if cards < 2:
        yield "several cards over NCCL", None, f"{cards} card(s) here"
        return
    for strategy in ("full", "shard_grad_op", "optimizer", "no_shard"):
        several, _, _ = trainer.run({**spec, "world_size": 2, "strategy": strategy})
        yield f"fp32: {strategy} on 2 cards, to 1e-4", worst(several, first) < 1e-4, \
            f"{worst(several, first):.2g}"
        moved, _, _ = trainer.run({**spec, "world_size": 2, "strategy": strategy,
                                   "offload": ["parameters" if strategy == "full" else "optimizer"]})
        yield f"fp32: {strategy} on 2 cards, offloaded: the same bits", same(moved, several), \
            "8 steps"
    # Both groups of two where there are four cards, and else two replicas.
    ranks, group = (4, 2) if cards >= 4 else (2, 1)
    several, _, _ = trainer.run({**spec, "world_size": ranks, "micro": 1, "strategy": "hybrid",
                                 "shard_group": group})
    yield f"fp32: hybrid on {ranks} cards, groups of {group}, to 1e-4", \
        worst(several, first) < 1e-4, f"{worst(several, first):.2g}"


def row_of(name, seq_len, who, step_ms, peak, flops, tokens, peak_tflops):
    median = statistics.median(step_ms)
    tflops = flops * tokens / median * 1e-9
    return {"model": name, "seq_len": seq_len, "who": who, "step_ms": median,
            "tokens_per_s": tokens / median * 1e3, "tflops": tflops,
            "mfu": tflops / peak_tflops if peak_tflops else None, "peak_memory_bytes": peak}


def benchmark(trainer, device, points, peak_tflops):
    for name, m, seq_len, micro, steps, extra in points:
        spec = {"model": m, "seq_len": seq_len, "micro": micro, "steps": 1000,
                "precision": "bf16", **extra}
        tokens, flops = micro * seq_len, None
        skip = max(1, steps // 3)
        try:
            lines, _, _ = trainer.run(spec, stop_after=steps)
            flops = lines[-1]["tflops"] * 1e12 / lines[-1]["tokens_per_s"]
            note = ", ".join(f"{k} {v}" for k, v in extra.items())
            yield row_of(name, seq_len, "hptrain" + (f" ({note})" if note else ""),
                         [s["step_ms"] for s in lines[skip:steps]], lines[-1]["peak_memory_bytes"],
                         flops, tokens, peak_tflops)
        except RuntimeError as error:
            yield {"model": name, "seq_len": seq_len, "who": "hptrain", "failed": str(error)}
        for who, compiled, titan in (("PyTorch eager", False, False),
                                     ("PyTorch compiled", True, False),
                                     ("TorchTitan's model, compiled", True, True)):
            peer = {"model": m, "seq_len": seq_len, "micro": micro, "steps": steps,
                    "device": device, "compile": compiled, "torchtitan": titan}
            done = subprocess.run([sys.executable, os.path.join(HERE, "peer.py"),
                                   json.dumps(peer)], capture_output=True, text=True, timeout=1800)
            said = done.stdout.strip().split("\n")[-1]
            result = json.loads(said) if said.startswith("{") else \
                {"failed": (done.stderr.strip().split("\n") or ["ended"])[-1]}
            if "failed" in result or flops is None:
                yield {"model": name, "seq_len": seq_len, "who": who,
                       "failed": result.get("failed", "hptrain gave no operations to count by")}
            else:
                yield row_of(name, seq_len, who, result["step_ms"][skip:],
                             result["peak_memory_bytes"], flops, tokens, peak_tflops)


def rooflines(trainer, points, peak_tflops, gigabytes):
    """One per point: a few steps, two of them traced."""
    for name, m, seq_len, micro, _, extra in points:
        traced = 2
        spec = {"model": m, "seq_len": seq_len, "micro": micro, "steps": 7, "precision": "bf16",
                "trace_from": 5, "trace_steps": traced, **extra}
        what = f"{name}, {micro} x {seq_len} tokens"
        try:
            lines, _, checkpoints = trainer.run(spec)
        except RuntimeError as error:
            print(f"no roofline of {what}: {error}", flush=True)
            continue
        path = os.path.join(os.path.dirname(checkpoints), "trace", "g1.r0.operations.json")
        step_ms = statistics.mean(s["step_ms"] for s in lines[4:4 + traced])
        yield {"what": what, "step_ms": step_ms, "ms": roofline.measured(path, traced, step_ms),
               "floor_ms": roofline.floors(m, seq_len, micro,
                                           2 if extra.get("moments") == "bf16" else 4,
                                           extra.get("recompute", "none"), peak_tflops,
                                           gigabytes)}


def markdown(results):
    lines = ["# hptrain on " + results["machine"]["device"], "",
             ", ".join(f"{k} {v}" for k, v in results["machine"].items()), "",
             ", ".join(f"{k} in {v:.0f} s" for k, v in results["seconds"].items()), "",
             "| check | result | |", "| --- | --- | --- |"]
    words = {True: "passed", False: "**FAILED**", None: "left out"}
    for check in results["checks"]:
        lines.append(f"| {check['what']} | {words[check['passed']]} | {check['detail']} |")
    lines += ["", "Medians; operations counted as by hptrain (attention whole).", "",
              "| model | seq | | step ms | tokens/s | TFLOP/s | MFU | peak GiB |",
              "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in results["benchmark"]:
        head = f"| {row['model']} | {row['seq_len']} | {row['who']} | "
        if "failed" in row:
            lines.append(head + f"none: {row['failed']} | | | | |")
            continue
        mfu = "" if row["mfu"] is None else f"{100 * row['mfu']:.1f} %"
        lines.append(head + f"{row['step_ms']:.1f} | {row['tokens_per_s']:.0f} | "
                     f"{row['tflops']:.4g} | {mfu} | {row['peak_memory_bytes'] / 2**30:.1f} |")
    return "\n".join(lines + roofline.markdown(results["roofline"])) + "\n"


PARTS = ("checks", "benchmark", "roofline")


def points_of(cuda):
    """(name, model, tokens of a sequence, sequences, steps, more of the spec)"""
    if not cuda:
        return [("small", SMALL, 128, 2, 6, {})]
    points = [(name, MODELS[name], seq, 8192 // seq, 30, {})
              for name in ("1B", "3B") for seq in (2048, 8192)]
    points += [("1B", MODELS["1B"], 8192, 1, 30, {"gpu": gpu})
               for gpu in ({"deterministic": False},
                           {"attention": "cudnn", "deterministic": False})]
    points += [("8B", MODELS["8B"], seq, 8192 // seq, 12,
                {"moments": "bf16", "recompute": "full"}) for seq in (2048, 8192)]
    points.append(("8B", MODELS["8B"], 8192, 1, 6,
                   {"moments": "bf16", "recompute": "full", "offload": ["optimizer"]}))
    return points


def all_checks(trainer, args, cards):
    """Yields a row of the results for each; what cannot be run is one that failed."""
    begun = time.monotonic()
    try:
        for what, passed, detail in itertools.chain(
                kernels_beside_references(args.kernels_check, args.device),
                checks(trainer, args.device, cards)):
            seconds = time.monotonic() - begun
            begun += seconds
            print(f"{what}: {'left out' if passed is None else passed} ({detail}), "
                  f"{seconds:.1f} s", flush=True)
            yield {"what": what, "passed": passed, "detail": detail, "seconds": seconds}
    except RuntimeError as error:
        yield {"what": "hptrain runs", "passed": False, "detail": str(error)}


def measure_part(part, trainer, args, device, points):
    """The rows of one of PARTS."""
    peak = next((v for k, v in PEAK.items() if k in device), None)
    if part == "checks":
        return list(all_checks(trainer, args, torch.cuda.device_count()
                               if args.device == "cuda" else 0))
    if part == "benchmark":
        rows = []
        for row in benchmark(trainer, args.device, points, peak):
            print(json.dumps(row), flush=True)
            rows.append(row)
        return rows
    bandwidth = next((v for k, v in roofline.BANDWIDTH.items() if k in device), None)
    found = list(rooflines(trainer, points[:1] + points[-2:-1], peak, bandwidth))
    print("\n".join(roofline.markdown(found)), flush=True)
    return found


def write_results(out, results):
    """After each part: what is known stays where a machine is lent for too short a time."""
    for name, text in (("results.json", json.dumps(results, indent=1) + "\n"),
                       ("results.md", markdown(results))):
        with open(os.path.join(out, name), "w") as file:
            file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hptrain", required=True)
    parser.add_argument("--kernels-check", required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    os.makedirs(args.out, exist_ok=True)
    scratch = os.path.join(os.path.abspath(args.out), "scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    device = torch.cuda.get_device_name(0) if cuda else "CPU (" + platform.machine() + ")"
    results = {"machine": {"device": device, "torch": torch.__version__,
                           "cuda": str(torch.version.cuda), "python": platform.python_version()},
               "checks": [], "benchmark": [], "roofline": [], "seconds": {}}
    trainer = Trainer(args.hptrain, scratch)
    for part in (args.only,) if args.only else PARTS:
        begun = time.monotonic()
        results[part] = measure_part(part, trainer, args, device, points_of(cuda))
        results["seconds"][part] = time.monotonic() - begun
        print(f"{part}: {results['seconds'][part]:.0f} s", flush=True)
        write_results(args.out, results)
    shutil.rmtree(scratch)
    failed = [c["what"] for c in results["checks"] if c["passed"] is False]
    if failed:
        print("failed: " + "; ".join(failed))
    elif results["checks"]:
        print("all checks passed; see results.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
