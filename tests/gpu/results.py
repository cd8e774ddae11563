# SPDX-License-Identifier: Apache-2.0
"""The results of measure.py: OUT/results.json and OUT/results.md, whole after each row, so a run
that is killed leaves what it knew; and OUT/results.json of an earlier run, to go on from."""
import json
import os
import platform
import subprocess

import torch

import benchmark
import operations
import points
import roofline
from judged import NoTimeLeft

ROWS = ("checks", "plans", "operations", "benchmark", "roofline")


def machine(cuda):
    """What a result depends on, of this machine."""
    facts = {"device": torch.cuda.get_device_name(0) if cuda else f"CPU ({platform.machine()})",
             "torch": torch.__version__, "cuda": str(torch.version.cuda),
             "python": platform.python_version()}
    if not cuda:
        return facts
    asked = "driver_version,memory.total,compute_mode,mig.mode.current"
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=" + asked, "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    return {**facts, "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
            "cards": torch.cuda.device_count(), "cudnn": torch.backends.cudnn.version(),
            **dict(zip(asked.split(","), said.split("\n")[0].split(", ")))}


def markdown(results):
    lines = ["# hptrain on " + results["machine"]["device"], "",
             ", ".join(f"{k} {v}" for k, v in results["machine"].items()), "",
             ", ".join(f"{k} in {v:.0f} s" for k, v in results["seconds"].items()), "",
             "| check | result | |", "| --- | --- | --- |"]
    words = {True: "passed", False: "**FAILED**", None: "left out"}
    for check in results["checks"]:
        detail = check["detail"].replace("|", "\\|")
        lines.append(f"| {check['what']} | {words[check['passed']]} | {detail} |")
    lines += operations.table(results["operations"])
    lines += points.table(results["plans"]) + benchmark.table(results["benchmark"])
    return "\n".join(lines + roofline.markdown(results["roofline"])) + "\n"


def begun(facts):
    return {"machine": facts, "seconds": {}, **{rows: [] for rows in ROWS}}


def whole(results):
    """Whether each check was made, and passed or cannot be made here."""
    return "checks" in results["seconds"] and not any(
        check["passed"] is False or check["detail"].startswith(NoTimeLeft.TELLS)
        for check in results["checks"])


def gone_on_from(directory, facts):
    """The results in it, less what is to be tried again: rows that failed or were left out. Where
    they are of another machine, or none can be read, begun() and a word."""
    try:
        with open(os.path.join(directory, "results.json")) as file:
            former = json.load(file)
        if former["machine"] != facts:
            print(f"{directory}: results of another machine are not continued", flush=True)
            return begun(facts)
        if not whole(former):
            former["checks"] = []
        former["benchmark"] = [row for row in former["benchmark"] if "step_ms" in row]
        former.setdefault("operations", [])  # of a release that had none
        return former
    except (OSError, ValueError, KeyError) as error:
        print(f"{directory}: no results to go on from ({error})", flush=True)
        return begun(facts)


def write(out, results):
    for name, text in (("results.json", json.dumps(results, indent=1) + "\n"),
                       ("results.md", markdown(results))):
        path = os.path.join(out, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)
