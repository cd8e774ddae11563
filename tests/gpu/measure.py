#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.sh runs once hptrain is built: checks on one card (checks.py, and on several, where there
are), operations beside those that they replaced (operations.py), a benchmark beside PyTorch
(benchmark.py, points.py) and a roofline of one micro-batch. Writes OUT/results.json and
OUT/results.md after each row, and the logs of runs that failed to OUT/failed.log; all else is in
SCRATCH. No part takes longer than eight minutes, and one that runs alone not longer than ten with
the build before it. What it has no time for is left out and says so. Exit code 1 when a check
failed.
"""
import argparse
import json
import math
import os
import shutil
import sys
import time

import torch

import benchmark
import checks
import operations
import points
import results as files
import roofline
from trainer import Trainer

PARTS = ("checks", "operations", "benchmark", "roofline")
# Of a part; and of a part that runs alone with the build before it. Machines are lent for commands
# of ten minutes.
MOST_SECONDS = 480
MOST_SECONDS_WITH_BUILD = 585


def of_product(table, product):
    return next((value for name, value in table.items() if name in product), None)


class Measurement:
    def __init__(self, args, results):
        self.args, self.results = args, results
        self.cuda = args.device == "cuda"
        self.product = results["machine"]["device"]
        self.trainer = Trainer(args.hptrain, args.scratch, os.path.join(args.out, "failed.log"))
        self.planner = points.Planner(args.point_plan, self.trainer)
        self.all_points = points.ON_GPU if self.cuda else points.ON_CPU
        self.points = points.chosen(self.all_points, args.points)
        self.peak = of_product(points.PEAK, self.product)

    def estimate(self, part):
        """About how many seconds it takes; None: not known."""
        if part == "checks":
            return checks.seconds(self.trainer, self.args.device)
        if part == "operations":
            return operations.SECONDS
        if part == "roofline":
            return 45 * len(self.of_roofline())
        plans = [(point, self.planner.plan(point, self.product)) for point in self.points]
        needed = [seconds for point, plan in plans
                  for _, seconds, _ in self.benchmark().runs(point, plan, self.args.peers)]
        return sum(needed) if all(needed) else None

    def benchmark(self):
        memory = torch.cuda.get_device_properties(0).total_memory if self.cuda else None
        return benchmark.Benchmark(self.trainer, self.planner, self.args.device, self.product,
                                   self.peak, memory)

    def of_roofline(self):
        return self.points if self.args.points else self.points[:1] + self.points[2:3]

    def most_seconds(self):
        if self.args.only:
            return max(60, min(MOST_SECONDS, MOST_SECONDS_WITH_BUILD - self.args.spent))
        return MOST_SECONDS

    def rows(self, part):
        """Yields the rows of one of PARTS."""
        if part == "checks":
            yield from checks.rows(self.trainer, self.args.kernels_check, self.args.device,
                                   torch.cuda.device_count() if self.cuda else 0)
        elif part == "operations":
            yield from operations.rows(self.args.operations_bench, self.args.device,
                                       self.trainer.seconds_left())
        elif part == "benchmark":
            done = {(row["point"], row["who"]) for row in self.results["benchmark"]}
            for row in self.benchmark().rows(self.points, self.args.peers, done):
                print(json.dumps(row), flush=True)
                yield row
        else:
            done = {row["what"] for row in self.results["roofline"]}
            for row in benchmark.rooflines(self.trainer, self.of_roofline(), self.peak,
                                           of_product(roofline.BANDWIDTH, self.product), done):
                print("\n".join(roofline.markdown([row])), flush=True)
                yield row

    def write(self):
        files.write(self.args.out, self.results)

    def run(self, part):
        if part in ("checks", "operations") and self.results[part]:
            print(f"{part}: done before", flush=True)
            return
        if part == "benchmark":  # of all points, also where there is no GPU
            self.results["plans"] = list(self.planner.rows(points.ON_GPU))
            print("\n".join(points.table(self.results["plans"])), flush=True)
        estimate, most = self.estimate(part), self.most_seconds()
        print(f"{part}: " + ("" if estimate is None else f"about {estimate:.0f} s, ") +
              f"at most {most} s", flush=True)
        begun = time.monotonic()
        self.trainer.until = begun + most
        # A hang of a check shall cost a part of the time that a machine is lent for.
        self.trainer.limit_s = 180 if part == "checks" and self.cuda else most
        for row in self.rows(part):
            self.results[part].append(row)
            self.write()
        self.trainer.until = math.inf
        self.results["seconds"][part] = time.monotonic() - begun
        self.write()
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hptrain", required=True)
    parser.add_argument("--kernels-check", required=True)
    parser.add_argument("--operations-bench", required=True)
    parser.add_argument("--point-plan", required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--scratch", required=True, help="is emptied")
    parser.add_argument("--resume", help="a former OUT, whose rows are kept")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--spent", type=int, default=0, help="seconds before this, of the build")
    parser.add_argument("--points", type=lambda text: text.split(","), default=[])
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    return parser.parse_args()


def main():
    args = arguments()
    args.out, args.scratch = os.path.abspath(args.out), os.path.abspath(args.scratch)
    shutil.rmtree(args.scratch, ignore_errors=True)
    for directory in (args.scratch, args.out):
        os.makedirs(directory, exist_ok=True)
    facts = files.machine(args.device == "cuda")
    print(", ".join(f"{k} {v}" for k, v in facts.items()), flush=True)
    results = files.gone_on_from(args.resume, facts) if args.resume else files.begun(facts)
    try:
        measurement = Measurement(args, results)
    except ValueError as error:
        print(f"--points: {error}", file=sys.stderr)
        return 2
    for part in (args.only,) if args.only else PARTS:
        measurement.run(part)
    shutil.rmtree(args.scratch)
    failed = [c["what"] for c in results["checks"] if c["passed"] is False]
    if failed:
        print("failed: " + "; ".join(failed))
        print("logs of runs that failed: " + measurement.trainer.kept)
    elif results["checks"]:
        print("all checks passed; see results.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
