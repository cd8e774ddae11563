#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says in the first seconds which of NVIDIA's functions that hptrain looks up at run time this
machine's libraries lack: the runtime's, the driver's and NVRTC's. Always exit code 0: hptrain does
without what is missing, and says so."""
import ctypes
import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# (what, source with the names, pattern of a file's name, name for the loader)
LIBRARIES = [
    ("CUDA runtime", "common/gpu/cuda_api.cc", r"libcudart\.so[.\d]*|libcudart-[^/]*", None),
    ("CUDA driver", "trainer/device/cuda_driver.cc", r"libcuda\.so[.\d]*", "libcuda.so.1"),
    ("NVRTC", "trainer/device/nvrtc_api.cc", r"libnvrtc\.so[.\d]*|libnvrtc-[^/]*", None),
]


def names_in(path):
    with open(os.path.join(ROOT, path)) as text:
        return re.findall(r'(?:find|function<[^"]*>)\("(\w+)"', text.read())


def loaded(pattern, maps="/proc/self/maps"):
    """The path of a library of that name that this process has loaded; None: there is none."""
    with open(maps) as lines:
        for line in lines:
            path = line.rstrip("\n").partition("/")[2]
            if re.fullmatch(pattern, os.path.basename(path)):
                return "/" + path
    return None


def beside(path, pattern):
    """A file of that name in the directory of another library."""
    directory = os.path.dirname(path)
    found = [name for name in sorted(os.listdir(directory)) if re.fullmatch(pattern, name)]
    return os.path.join(directory, found[0]) if found else None


def missing(path, names):
    library = ctypes.CDLL(path)
    return [name for name in names if not hasattr(library, name)]


def report():
    """Yields a line for each library."""
    runtime = loaded(LIBRARIES[0][2])
    for what, source, pattern, name in LIBRARIES:
        names = names_in(source)
        try:
            path = loaded(pattern) or name or (runtime and beside(runtime, pattern))
            lacks = missing(path, names) if path else None
        except OSError as error:
            yield f"{what}: cannot be loaded ({error})"
            continue
        if lacks is None:
            yield f"{what}: not found beside torch's libraries"
        elif lacks:
            yield f"{what}: {path} lacks {', '.join(lacks)}"
        else:
            yield f"{what}: {path} has all {len(names)} names"


def main():
    import torch
    if torch.cuda.is_available():
        torch.cuda.init()
    print("\n".join(report()), flush=True)


if __name__ == "__main__":
    main()
