"""Writer of GGUF version 3, and reader of a GGUF file's tensor types."""

import struct

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, UINT32: 4, INT32: 4, FLOAT32: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}
TENSOR_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
ALIGNMENT = 32


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


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
    """Writes a file. fields: [(key, type, value)]; tensors: [(name, sizes innermost first, dtype, data)],
    where data is bytes, or a function that returns pieces of them, called when they are written, with
    their number as an attribute `bytes`."""
    infos, offset = b"", 0
    for name, sizes, dtype, data in tensors:
        infos += (_string(name) + struct.pack("<I", len(sizes)) +
                  struct.pack(f"<{len(sizes)}Q", *sizes) +
                  struct.pack("<IQ", TENSOR_TYPES[dtype], offset))
        offset += _length(data) + -_length(data) % ALIGNMENT
    header = (b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) +
              b"".join(_field(*field) for field in fields) + infos)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for *_, data in tensors:
            for piece in data() if callable(data) else [data]:
                file.write(piece)
            file.write(bytes(-_length(data) % ALIGNMENT))


def _length(data):
    return data.bytes if callable(data) else len(data)


def read_tensor_types(path):
    """The type of each tensor, by name; a number if TENSOR_TYPES does not have it. ValueError if the
    file is not GGUF version 2 or 3."""
    names = {number: name for name, number in TENSOR_TYPES.items()}
    with open(path, "rb") as file:

        def take(form):
            data = file.read(struct.calcsize(form))
            try:
                return struct.unpack(form, data)[0]
            except struct.error:
                raise ValueError("truncated header") from None

        def skip(kind):
            if kind == STRING:
                file.seek(take("<Q"), 1)
            elif kind == ARRAY:
                element, count = take("<I"), take("<Q")
                if element in SIZES:
                    file.seek(count * SIZES[element], 1)
                else:
                    for _ in range(count):
                        skip(element)
            elif kind in SIZES:
                file.seek(SIZES[kind], 1)
            else:
                raise ValueError(f"unknown field type {kind}")

        if file.read(4) != b"GGUF":
            raise ValueError("not a GGUF file")
        if take("<I") not in (2, 3):
            raise ValueError("unsupported GGUF version; allowed: 2, 3")
        tensors, fields = take("<Q"), take("<Q")
        for _ in range(fields):
            skip(STRING)
            skip(take("<I"))
        types = {}
        for _ in range(tensors):
            name = file.read(take("<Q")).decode(errors="replace")
            for _ in range(take("<I")):
                take("<Q")
            number = take("<I")
            types[name] = names.get(number, number)
            take("<Q")
        return types
