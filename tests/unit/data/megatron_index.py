#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent reader and writer of Megatron-LM's indexed datasets, from the table of the format
(trainer/data/indexed_format.h is not looked at): what the tests of our own are compared with.

  megatron_index.py write PREFIX CODE < documents    one document per line, tokens as numbers;
                                                     "a b | c" is a document of two sequences
  megatron_index.py read PREFIX                      prints the same
"""
import struct
import sys

FORMATS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}


def write(prefix, code):
    lengths, bounds, tokens = [], [0], []
    for line in sys.stdin:
        for sequence in line.rstrip("\n").split("|"):
            numbers = [int(word) for word in sequence.split()]
            lengths.append(len(numbers))
            tokens += numbers
        bounds.append(len(lengths))
    letter = FORMATS[code]
    size = struct.calcsize("<" + letter)
    pointers = [size * sum(lengths[:i]) for i in range(len(lengths))]
    with open(prefix + ".bin", "wb") as out:
        out.write(struct.pack(f"<{len(tokens)}{letter}", *tokens))
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00")
        out.write(struct.pack("<QBQQ", 1, code, len(lengths), len(bounds)))
        out.write(struct.pack(f"<{len(lengths)}i", *lengths))
        out.write(struct.pack(f"<{len(pointers)}q", *pointers))
        out.write(struct.pack(f"<{len(bounds)}q", *bounds))


def read(prefix):
    with open(prefix + ".idx", "rb") as f:
        index = f.read()
    with open(prefix + ".bin", "rb") as f:
        tokens = f.read()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, boundaries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    at = 34
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    at += 4 * sequences
    pointers = struct.unpack_from(f"<{sequences}q", index, at)
    at += 8 * sequences
    bounds = struct.unpack_from(f"<{boundaries}q", index, at)
    assert at + 8 * boundaries == len(index)
    for first, last in zip(bounds, bounds[1:]):
        texts = []
        for s in range(first, last):
            numbers = struct.unpack_from(f"<{lengths[s]}{FORMATS[code]}", tokens, pointers[s])
            texts.append(" ".join(map(str, numbers)))
        print(" | ".join(texts))


if sys.argv[1] == "write":
    write(sys.argv[2], int(sys.argv[3]))
else:
    read(sys.argv[2])
