# SPDX-License-Identifier: Apache-2.0
"""An independent reader of TensorBoard event files: TFRecord framing, CRC-32C bit by bit, protobuf
wire format. Prints one JSON object per event.

  read_events.py FILE
  read_events.py --tensorboard DIRECTORY   scalars as TensorBoard itself loads them
"""
import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert masked(data[at:at + 8]) == length_crc, "length"
        body = data[at + 12:at + 12 + length]
        (body_crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert len(body) == length and masked(body) == body_crc, "body"
        yield body
        at += 16 + length


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            value, at = data[at:at + 8], at + 8
        elif key & 7 == 5:
            value, at = data[at:at + 4], at + 4
        else:
            assert key & 7 == 2, key
            size = varint()
            value, at = data[at:at + size], at + size
            assert len(value) == size
        yield key >> 3, value


def event(body):
    result = {}
    for number, value in fields(body):
        if number == 1:
            (result["wall_time"],) = struct.unpack("<d", value)
        elif number == 2:
            result["step"] = value
        elif number == 3:
            result["file_version"] = value.decode()
        elif number == 7:
            result["session"] = dict(fields(value))[1]
        else:
            assert number == 5, number
            scalars = result["scalars"] = {}
            for one, entry in fields(value):
                assert one == 1
                parts = dict(fields(entry))
                scalars[parts[1].decode()] = struct.unpack("<f", parts[2])[0]
    return result


def tensorboard(directory):
    from tensorboard.backend.event_processing import event_accumulator
    loaded = event_accumulator.EventAccumulator(directory)
    loaded.Reload()
    for tag in loaded.Tags()["scalars"]:
        print(json.dumps({tag: [[e.step, e.value] for e in loaded.Scalars(tag)]}))


if __name__ == "__main__":
    if sys.argv[1] == "--tensorboard":
        tensorboard(sys.argv[2])
    else:
        with open(sys.argv[1], "rb") as f:
            for record in records(f.read()):
                print(json.dumps(event(record)))
