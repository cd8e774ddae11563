# SPDX-License-Identifier: Apache-2.0
"""Operations that decision 1406 joined, beside those that they replaced (operations_bench.cc)."""
import json
import subprocess

from checks import with_stubs

SECONDS = 25


def rows(program, device, limit_s):
    """Yields what it measures. What fails is printed alone: nothing else depends on it."""
    try:
        done = subprocess.run([program, device], env=with_stubs(program, device),
                              capture_output=True, text=True, timeout=max(1, limit_s))
        said, problem = done.stdout, "" if done.returncode == 0 else f"exit code {done.returncode}"
    except subprocess.TimeoutExpired as error:
        said = error.stdout or ""  # bytes, whatever was asked for
        said = said if isinstance(said, str) else said.decode()
        problem = f"no end within {limit_s:.0f} s"
    except OSError as error:
        said, problem = "", str(error)
    for line in said.split("\n"):
        print(line, flush=True)
        if line.startswith("{"):
            yield json.loads(line)
        elif line:
            problem += (problem and "; ") + line
    if problem:
        print(f"operations: {problem}", flush=True)


def table(measured):
    if not measured:
        return []
    lines = ["", "Operations that are joined, beside those that they replaced.", "",
             "| operation | ms | apart ms | saved |", "| --- | --- | --- | --- |"]
    for row in measured:
        saved = 1 - row["ms"] / row["apart_ms"]
        lines.append(f"| {row['what']} | {row['ms']:.3f} | {row['apart_ms']:.3f} | "
                     f"{100 * saved:.0f} % |")
    return lines
