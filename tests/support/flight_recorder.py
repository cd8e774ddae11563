# SPDX-License-Identifier: Apache-2.0
"""A job without PyTorch that has what PyTorch's flight recorder has: a named pipe at which it is
asked, and a dump of the documented format (2.10; see common/recorder/dump.h), written in place.

  flight_recorder.py DIRECTORY

Ranks of a job meet in collectives by files in DIRECTORY. In the first life of the job the rank that
the variable HANGS names does not come to the third one: it stands still in `load`. HANGS=all: nobody
comes to it. Where DUMP_AT_START is set, each rank dumps once without being asked."""
import os
import struct
import sys
import threading
import time

RANK = os.environ["RANK"]
WORLD = int(os.environ["WORLD_SIZE"])


def pickled(value, memo):
    """As torch::jit::Pickler writes it: strings are memoised, aggregates have no type."""
    if value is None or value is True or value is False:
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        if 0 <= value < 1 << 8:
            return b"K" + struct.pack("<B", value)
        if 0 <= value < 1 << 16:
            return b"M" + struct.pack("<H", value)
        if -1 << 31 <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x08" + struct.pack("<q", value)
    if isinstance(value, str):
        if value in memo:
            return b"h" + bytes([memo[value]])
        memo[value] = len(memo)
        text = value.encode()
        return b"X" + struct.pack("<I", len(text)) + text + b"q" + bytes([memo[value]])
    if isinstance(value, tuple):
        return b"".join(pickled(item, memo) for item in value) + b"\x86"
    if isinstance(value, list):
        return b"](" + b"".join(pickled(item, memo) for item in value) + b"e"
    items = [part for item in value.items() for part in item]
    return b"}(" + b"".join(pickled(item, memo) for item in items) + b"u"


class FlightRecorder:
    def __init__(self):
        self.entries = []
        self.lock = threading.Lock()
        stem = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
        if stem:
            path = stem + RANK + ".pipe"
            if os.path.exists(path):
                os.unlink(path)
            os.mkfifo(path)
            self.pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            threading.Thread(target=self.answer, daemon=True).start()

    def begin(self, name, elements, line):
        with self.lock:
            number = len(self.entries) + 1
            torch = {"name": name, "filename": "/opt/torch/distributed/distributed_c10d.py", "line": 1}
            caller = {"name": "step", "filename": os.path.abspath(__file__), "line": line}
            self.entries.append({
                "frames": [torch, caller], "record_id": number - 1, "pg_id": 0,
                "process_group": ("0", "default_pg"), "collective_seq_id": number,
                "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:" + name,
                "time_created_ns": time.time_ns(), "input_sizes": [[elements]],
                "input_dtypes": ["Float"], "output_sizes": [[elements]],
                "output_dtypes": ["Float"], "state": "started",
                "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
                "retired": False, "timeout_ms": 600000, "is_p2p": False})
            return self.entries[-1]

    def complete(self, entry):
        with self.lock:
            entry["state"] = "completed"

    def dump(self):
        ranks = "[" + ", ".join(str(rank) for rank in range(WORLD)) + "]"
        with self.lock:
            text = b"\x80\x02" + pickled(
                {"version": "2.10",
                 "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
                 "entries": self.entries}, {}) + b"."
        path = os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + RANK
        with open(path, "wb", buffering=0) as file:  # a reader may come in the middle
            file.write(text[:len(text) // 2])
            time_of_half = os.stat(path).st_mtime_ns
            time.sleep(0.05)
            file.write(text[len(text) // 2:])
            # As where the clock of the file system has not ticked meanwhile.
            os.utime(path, ns=(time_of_half, time_of_half))

    def answer(self):
        while True:
            try:
                if os.read(self.pipe, 128):
                    self.dump()
            except BlockingIOError:
                pass
            time.sleep(0.02)


def meet(directory, step, life):
    name = f"{directory}/life{life}-step{step}-rank"
    open(name + RANK, "w").close()
    while not all(os.path.exists(name + str(rank)) for rank in range(WORLD)):
        time.sleep(0.005)


def load():
    while True:
        time.sleep(0.1)


def main(directory):
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    hangs = os.environ.get("HANGS", "")
    recorder = FlightRecorder()
    if os.environ.get("DUMP_AT_START"):
        recorder.dump()
    progress = open(os.environ.get("HPCTL_PROGRESS_FILE", os.devnull), "a", buffering=1)
    for step in range(1, 6):
        if life == 0 and step == 3:
            open(f"{directory}/reached-{RANK}", "w").close()
            if hangs in (RANK, "all"):
                load()
        entry = recorder.begin("all_reduce", 1024, 142)
        meet(directory, step, life)
        recorder.complete(entry)
        print(step, file=progress)


main(sys.argv[1])
