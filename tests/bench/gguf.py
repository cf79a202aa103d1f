"""Writes GGUF, version 3."""

import struct

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_TYPES = {"F32": 0, "Q8_0": 8, "BF16": 30}
ALIGNMENT = 32


def _string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _field(key, kind, value):
    if isinstance(value, list):
        return (_string(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) +
                b"".join(_value(kind, element) for element in value))
    return _string(key) + struct.pack("<I", kind) + _value(kind, value)


def write_gguf(path, fields, tensors):
    """fields: [(key, type, value)]; tensors: [(name, sizes, innermost first, dtype, data)]."""
    infos, offset = b"", 0
    for name, sizes, dtype, data in tensors:
        infos += (_string(name) + struct.pack("<I", len(sizes)) +
                  struct.pack(f"<{len(sizes)}Q", *sizes) +
                  struct.pack("<IQ", TENSOR_TYPES[dtype], offset))
        offset += len(data) + -len(data) % ALIGNMENT
    header = (b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) +
              b"".join(_field(*field) for field in fields) + infos)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for *_, data in tensors:
            file.write(data)
            file.write(bytes(-len(data) % ALIGNMENT))
