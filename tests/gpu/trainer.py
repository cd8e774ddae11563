# SPDX-License-Identifier: Apache-2.0
"""Runs of hptrain, each a whole process, started as by hand (hptrain --workload FILE)."""
import array
import concurrent.futures
import fcntl
import itertools
import json
import math
import os
import random
import signal
import struct
import subprocess
import threading
import time

from judged import NoTimeLeft, RunFailed


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


PROGRESS_PAGE_BYTES = 4096  # common/worker/worker_abi.h
# As a holder starts it: workload, progress page and state arena on descriptors 3 to 5. The numbers
# of the others are above 9.
AS_WORKER = 'exec "$0" 3<"$1" 4<>"/proc/self/fd/$2" 5<>"/proc/self/fd/$3"'


class Trainer:
    """hptrain, run by run; several at a time where there is a processor for each, because a run is
    one process of one thread and waits for its GPU most of the time."""

    def __init__(self, program, scratch, kept, limit_s=math.inf):
        """The logs of runs that failed are appended to the file `kept`. No run takes longer than
        limit_s, and none goes on past the moment `until` of time.monotonic()."""
        self.program, self.scratch, self.kept, self.limit_s = program, scratch, kept, limit_s
        self.until = math.inf
        self.numbers = itertools.count(1)
        self.data = {}
        self.making_data = threading.Lock()
        self.keeping_log = threading.Lock()
        self.parallel = min(4, os.cpu_count() or 1)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.parallel)

    def dataset(self, vocab):
        with self.making_data:
            if vocab not in self.data:
                self.data[vocab] = os.path.join(self.scratch, f"tokens-{vocab}")
                write_dataset(self.data[vocab], 1000000, vocab)
            return self.data[vocab]

    def seconds_left(self):
        return self.until - time.monotonic()

    def workload(self, spec, directory):
        """`data` of a spec: a dataset that need not be made."""
        m = spec["model"]
        train = {
            "model": {"rope_theta": 5e5, "tied_embeddings": m["tied"],
                      **{k: v for k, v in m.items() if k != "tied"}},
            "lora": spec.get("lora", {}),
            "data": {"path": spec.get("data") or self.dataset(m["vocab"]), "seq_len": spec["seq_len"],
                     "mask": spec.get("mask", "none")},
            "batch": {"micro": spec["micro"], "global": spec.get("global", spec["micro"])},
            "steps": spec["steps"], "seed": 3, "precision": spec["precision"],
            "optimizer": {"lr": 1e-4, "moments": spec.get("moments", "fp32"),
                          "master": spec.get("master", "fp32")},
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
            "from_memory": spec.get("from_memory", False),
            "snapshot": {"every_steps": spec.get("copy_every", 0)},
            "train": train,
        }

    def failed(self, number, logs, why, blamed=0, kind=RunFailed):
        """Shows the ends of the logs, keeps them, and gives the exception, which has the last line
        of the rank that is to blame."""
        last = ""
        for rank, path in enumerate(logs):
            with open(path, errors="replace") as log:
                lines = log.read().strip().split("\n")
            last = lines[-1] if rank == blamed else last
            text = "\n".join([f"--- run {number}, rank {rank}: {why}", *lines[-200:], ""])
            with self.keeping_log, open(self.kept, "a") as kept:
                kept.write(text)
            # Of many that fail in one way not each shall be shown whole.
            shown = 40 if number <= 4 else 5
            print("\n".join([f"--- the end of run {number}, rank {rank}", *lines[-shown:], "---"]),
                  flush=True)
        return kind(f"run {number}: {why}; {last}")

    def begin(self, path, spec, environment, log):
        """A process of the workload in `path`. With `arena` in the spec it has that memory file, and
        one of its own with `copies`."""
        if "arena" not in spec and not spec.get("copies"):
            return subprocess.Popen([self.program, "--workload", path], env=environment, stderr=log)
        made = [os.memfd_create(name) for name in ("progress", "arena")]
        os.ftruncate(made[0], PROGRESS_PAGE_BYTES)
        given = [made[0], spec.get("arena", made[1])]
        passed = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in given]
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", AS_WORKER, self.program, path, *map(str, passed)],
                env=environment, stderr=log, pass_fds=passed)
        finally:
            for fd in made + passed:
                os.close(fd)

    def run(self, spec, stop_after=0):
        """Metrics by step, rank 0's log, and the directory of checkpoints. `stop_after` > 0: ended,
        by SIGKILL and without a checkpoint, after so many steps. With `dies` in the spec it ends
        itself by SIGKILL."""
        number = next(self.numbers)
        if self.seconds_left() <= 0:
            raise NoTimeLeft("it was not begun")
        directory = os.path.join(self.scratch, f"run-{number}")
        os.makedirs(directory)
        environment = {**os.environ, **spec.get("environment", {})}
        document = self.workload(spec, directory)
        processes, logs = [], []
        for rank in range(document["world_size"]):
            path = os.path.join(directory, f"rank-{rank}.json")
            with open(path, "w") as out:
                json.dump({**document, "rank": rank, "local_rank": rank}, out)
            logs.append(os.path.join(directory, f"rank-{rank}.log"))
            with open(logs[-1], "w") as log:
                processes.append(self.begin(path, spec, environment, log))
        metrics = document["metrics_path"]
        until, stopped = min(time.monotonic() + self.limit_s, self.until), False
        while any(p.poll() is None for p in processes):
            done = lines_in(metrics)
            late = time.monotonic() > until
            if (stop_after and done >= stop_after) or late:
                stopped = done >= stop_after > 0
                for p in processes:
                    p.send_signal(signal.SIGKILL)
                    p.wait()
                if not stopped and self.seconds_left() <= 0:
                    raise self.failed(number, logs, f"ended after {done} steps",
                                      kind=NoTimeLeft)
                if not stopped:
                    raise self.failed(number, logs, f"no end within {self.limit_s} s, {done} steps")
            time.sleep(0.02)
        codes = [p.returncode for p in processes]
        if spec.get("dies"):
            stopped = all(code == -signal.SIGKILL for code in codes)
            if not stopped:
                raise self.failed(number, logs, "it was not killed: exit code " +
                                  ", ".join(map(str, codes)))
        if not stopped and any(codes):
            raise self.failed(number, logs, "exit code " + ", ".join(map(str, codes)),
                              next(rank for rank, code in enumerate(codes) if code != 0))
        with open(logs[0]) as log:
            text = log.read()
        with open(metrics) as lines:
            steps = [json.loads(line) for line in lines if line.endswith("\n")]
        return steps, text, document["checkpoint_dir"]

    def start(self, spec, stop_after=0):
        """As run(), beside what comes; what it gives is called for the result."""
        return self.pool.submit(self.run, spec, stop_after).result
